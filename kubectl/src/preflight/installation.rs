//! Which Multus a cluster has: upstream's as a thin or thick plugin, from a chart or from plain manifests, or ours.

use api::options;
use chart::{Distro, IDENTITIES, Identity};
use serde_json::{Map, Value};

use super::{
    snapshot::{self, DaemonSet, Snapshot},
    values::{Values, node_path},
};

/// Programs of upstream's images, and of ours.
const DAEMON: &str = "multus-daemon";
const THIN_PROGRAMS: [&str; 2] = ["thin_entrypoint", "entrypoint.sh"];
/// The variable by which a chart of ours tells the daemon its `DaemonSet`.
const OURS: &str = "MULTUS_DAEMONSET";
/// Keys of the daemon's file that change what pods get, and that have to be carried over.
const CARRIED: [&str; 9] = [
    "namespaceIsolation",
    "globalNamespaces",
    "clusterNetwork",
    "defaultNetworks",
    "systemNamespaces",
    "multusNamespace",
    "multusMasterCNI",
    "readinessindicatorfile",
    "auxiliaryCNIChainName",
];
/// Arguments of the thin plugin's entrypoint, with the key for each.
const ARGUMENTS: [(&str, &str); 4] = [
    ("--namespace-isolation", "namespaceIsolation"),
    ("--global-namespaces", "globalNamespaces"),
    ("--multus-master-cni-file-name", "multusMasterCNI"),
    ("--readiness-indicator-file", "readinessindicatorfile"),
];

/// What a `DaemonSet` is to Multus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Upstream's, whose shim does everything.
    Thin,
    /// Upstream's, with a daemon.
    Thick,
    Ours,
    /// The plugin dhcp, kept serving.
    Dhcp,
    /// Upstream's hot plug.
    DynamicNetworks,
    Whereabouts,
}

impl Kind {
    /// What a `DaemonSet` is, or `None` where it has nothing to do with Multus.
    fn of(set: &DaemonSet) -> Option<Self> {
        let has_image = |words: &str| set.images.iter().any(|image| image.contains(words));
        let programs: Vec<_> = set
            .commands
            .iter()
            .map(|command| command.rsplit('/').next().unwrap_or_default())
            .collect();
        if has_image("dynamic-networks-controller") {
            Some(Self::DynamicNetworks)
        } else if has_image("whereabouts") {
            Some(Self::Whereabouts)
        } else if set.variables.iter().any(|name| name == OURS) {
            Some(Self::Ours)
        } else if programs.contains(&DAEMON) {
            Some(Self::Thick)
        } else if programs.iter().any(|one| THIN_PROGRAMS.contains(one)) && has_image("multus") {
            Some(Self::Thin)
        } else if programs.contains(&"dhcp") {
            Some(Self::Dhcp)
        } else {
            None
        }
    }

    /// Whether it gives pods their networks.
    pub(super) fn is_multus(self) -> bool {
        matches!(self, Self::Thin | Self::Thick | Self::Ours)
    }
}

/// Whether an object is a `DaemonSet` of Multus, upstream's or ours.
pub(crate) fn is_multus(daemon_set: &Value) -> bool {
    Kind::of(&snapshot::daemon_set(daemon_set)).is_some_and(Kind::is_multus)
}

/// A `DaemonSet` of Multus, or of what goes with it.
#[derive(Debug)]
pub(super) struct Installation<'a> {
    pub(super) kind: Kind,
    pub(super) set: &'a DaemonSet,
    /// The chart that an upgrade of its release takes to be ours.
    pub(super) chart: Option<Identity>,
}

impl Installation<'_> {
    /// Namespace and name of the Helm release that it belongs to, or would if it were made by Helm.
    pub(super) fn release(&self) -> (&str, &str) {
        match &self.set.release {
            Some((namespace, name)) => (namespace, name),
            None => (&self.set.namespace, &self.set.name),
        }
    }

    /// The settings that change what pods get, by the daemon's keys.
    pub(super) fn settings(&self, snapshot: &Snapshot) -> Map<String, Value> {
        let mut found = Map::new();
        if self.kind == Kind::Thin {
            for (argument, key) in ARGUMENTS {
                found.extend(self.argument(argument).map(|value| (key.to_owned(), value)));
            }
            return found;
        }
        let files = self.set.config_maps.iter().filter_map(|name| {
            let key = (self.set.namespace.clone(), name.clone());
            snapshot.config_maps.get(&key)?.get("daemon-config.json")
        });
        for text in files {
            let Ok(Value::Object(file)) = serde_json::from_str(text) else {
                continue;
            };
            for key in CARRIED {
                found.extend(options::get(&file, key).map(|value| (key.to_owned(), value.clone())));
            }
        }
        found
    }

    /// The value of an argument, as a switch or as text.
    fn argument(&self, name: &str) -> Option<Value> {
        self.set.arguments.iter().find_map(|word| {
            let rest = word.strip_prefix(name)?;
            match rest.strip_prefix('=') {
                None => rest.is_empty().then_some(Value::Bool(true)),
                Some("true") => Some(Value::Bool(true)),
                Some("false") => Some(Value::Bool(false)),
                Some(text) => Some(text.into()),
            }
        })
    }
}

/// Every installation of Multus and of what goes with it.
pub(super) fn all(snapshot: &Snapshot) -> Vec<Installation<'_>> {
    let sets = snapshot.daemon_sets.iter();
    sets.filter_map(|set| {
        let kind = Kind::of(set)?;
        let chart = IDENTITIES.into_iter().find(|one| one.name == set.app);
        Some(Installation { kind, set, chart })
    })
    .collect()
}

/// The chart to install, the release that it becomes, and why.
pub(super) struct Choice {
    pub(super) chart: Identity,
    pub(super) namespace: String,
    pub(super) release: String,
    pub(super) reason: String,
}

/// An existing release keeps its name, since the selector of its `DaemonSet` cannot be changed; else the nodes' distro decides.
pub(super) fn choose(snapshot: &Snapshot, installed: &[Installation<'_>]) -> Choice {
    let existing = installed
        .iter()
        .filter(|one| one.kind.is_multus())
        .find_map(|one| Some((one.chart?, one)));
    if let Some((chart, one)) = existing {
        let (namespace, release) = one.release();
        return Choice {
            chart,
            namespace: namespace.to_owned(),
            release: release.to_owned(),
            reason: format!(
                "release {namespace}/{release} of that chart is installed, and an upgrade keeps its name"
            ),
        };
    }
    let runs = |suffix: &str| {
        let mut nodes = snapshot.nodes.iter();
        nodes.any(|node| node.kubelet.contains(suffix))
    };
    let (distro, reason) = if runs("+rke2") {
        (Distro::Rke2, "nodes run RKE2")
    } else if runs("+k3s") {
        (Distro::K3s, "nodes run K3s")
    } else {
        (
            Distro::Rke2,
            "the nodes are of neither K3s nor RKE2, and both charts are the same but for the name",
        )
    };
    let chart = Identity::of(distro);
    Choice {
        chart,
        namespace: "kube-system".to_owned(),
        release: chart.name.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Settings of an installation that the new daemons would not have: key, old value and new value.
pub(super) fn lost_settings(
    installation: &Installation<'_>,
    snapshot: &Snapshot,
    values: &Values,
) -> Vec<(String, Value, Value)> {
    let ours = values.daemon_config();
    let comparable = |value: &Value| match value {
        Value::String(text) => Value::from(node_path(text)),
        value => value.clone(),
    };
    let is_default = |key: &str, value: &Value| {
        let default = options::find(key).and_then(|option| option.default);
        value == &Value::Bool(false)
            || value == ""
            || default
                .is_some_and(|default| serde_json::from_str(default).ok().as_ref() == Some(value))
    };
    let theirs = installation.settings(snapshot).into_iter();
    theirs
        .filter_map(|(key, value)| {
            let new = options::get(&ours, &key).cloned().unwrap_or_default();
            let is_same = comparable(&new) == comparable(&value)
                || (new.is_null() && is_default(&key, &value));
            (!is_same).then_some((key, value, new))
        })
        .collect()
}
