//! Finds the Multus that a cluster has: upstream's as a thin or thick plugin, from a chart or from plain manifests, or ours.

use api::options;
use chart::{Distro, IDENTITIES, Identity};
use serde_json::{Map, Value};

use super::{
    snapshot::{self, ClusterSnapshot, DaemonSet},
    values::node_path,
};

/// The daemon's program, in upstream's images and in ours.
const DAEMON: &str = "multus-daemon";
/// The programs that upstream's thin images start.
const THIN_PROGRAMS: [&str; 2] = ["thin_entrypoint", "entrypoint.sh"];
/// The environment variable by which our chart passes the daemon the name of its `DaemonSet`.
const OUR_VARIABLE: &str = "MULTUS_DAEMONSET";
/// The argument of our daemon where it installs plugins and serves no pods.
const PLUGINS: &str = "plugins";
/// Keys of the daemon's configuration that decide about pods' networks and have to be carried over.
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
/// Arguments of the thin plugin's entrypoint, each with the daemon's key for it.
const ARGUMENTS: [(&str, &str); 4] = [
    ("--namespace-isolation", "namespaceIsolation"),
    ("--global-namespaces", "globalNamespaces"),
    ("--multus-master-cni-file-name", "multusMasterCNI"),
    ("--readiness-indicator-file", "readinessindicatorfile"),
];

/// The role of a `DaemonSet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Upstream's Multus whose plugin does everything.
    Thin,
    /// Upstream's Multus with a daemon.
    Thick,
    /// This project's daemon.
    Ours,
    /// The daemon of the plugin dhcp.
    Dhcp,
    /// Upstream's controller of dynamic networks.
    DynamicNetworks,
    /// The controller of whereabouts.
    Whereabouts,
}

impl Kind {
    /// Returns the role of a `DaemonSet`, or `None` when it is not a part of a Multus installation.
    fn of(set: &DaemonSet) -> Option<Self> {
        let has_image = |part: &str| set.images.iter().any(|image| image.contains(part));
        let programs: Vec<_> = set
            .commands
            .iter()
            .map(|command| command.rsplit('/').next().unwrap_or_default())
            .collect();
        if has_image("dynamic-networks-controller") {
            Some(Self::DynamicNetworks)
        } else if has_image("whereabouts") {
            Some(Self::Whereabouts)
        } else if set.variables.iter().any(|name| name == OUR_VARIABLE) {
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

    /// Returns true for the kinds that attach pods' networks.
    pub(super) fn is_multus(self) -> bool {
        matches!(self, Self::Thin | Self::Thick | Self::Ours)
    }
}

/// Returns true for a `DaemonSet` of Multus, upstream's or ours.
pub(crate) fn is_multus(daemon_set: &Value) -> bool {
    Kind::of(&snapshot::daemon_set(daemon_set)).is_some_and(Kind::is_multus)
}

/// A `DaemonSet` of Multus, or of a companion that upstream's charts install with it.
#[derive(Debug)]
pub(super) struct Installation<'a> {
    pub(super) kind: Kind,
    pub(super) set: &'a DaemonSet,
    /// Our chart that can upgrade its release.
    pub(super) chart: Option<Identity>,
}

impl Installation<'_> {
    /// Returns true when it attaches pods' networks, and does not only install plugins.
    pub(super) fn attaches(&self) -> bool {
        let is_standalone =
            self.kind == Kind::Ours && self.set.arguments.iter().any(|one| one == PLUGINS);
        self.kind.is_multus() && !is_standalone
    }

    /// Returns namespace and name of its Helm release; those of the `DaemonSet` itself when Helm did not make it.
    pub(super) fn release(&self) -> (&str, &str) {
        match &self.set.release {
            Some((namespace, name)) => (namespace, name),
            None => (&self.set.namespace, &self.set.name),
        }
    }

    /// Returns the settings that decide about pods' networks, by the daemon's keys.
    pub(super) fn settings(&self, snapshot: &ClusterSnapshot) -> Map<String, Value> {
        let mut found = Map::new();
        if self.kind == Kind::Thin {
            for (argument, key) in ARGUMENTS {
                found.extend(self.argument(argument).map(|value| (key.to_owned(), value)));
            }
            return found;
        }
        for file in self.daemon_configs(snapshot) {
            for key in CARRIED {
                found.extend(options::get(&file, key).map(|value| (key.to_owned(), value.clone())));
            }
        }
        found
    }

    /// Returns the daemon's configuration files.
    fn daemon_configs(
        &self,
        snapshot: &ClusterSnapshot,
    ) -> impl Iterator<Item = Map<String, Value>> {
        self.set.config_maps.iter().filter_map(|name| {
            let key = (self.set.namespace.clone(), name.clone());
            let text = snapshot.config_maps.get(&key)?.get("daemon-config.json")?;
            serde_json::from_str(text).ok()
        })
    }

    /// Returns the value of an argument, as a boolean or as text.
    fn argument(&self, name: &str) -> Option<Value> {
        self.set.arguments.iter().find_map(|argument| {
            let rest = argument.strip_prefix(name)?;
            match rest.strip_prefix('=') {
                None => rest.is_empty().then_some(Value::Bool(true)),
                Some("true") => Some(Value::Bool(true)),
                Some("false") => Some(Value::Bool(false)),
                Some(text) => Some(text.into()),
            }
        })
    }
}

/// The namespace where distros install their charts, in which no tenant creates objects.
const DISTRO_NAMESPACE: &str = "kube-system";

/// Returns every `DaemonSet` of Multus and its companions. Those of the distros' namespace come first, since whoever may create a
/// `DaemonSet` somewhere can make it look like one of these.
pub(super) fn all(snapshot: &ClusterSnapshot) -> Vec<Installation<'_>> {
    let mut sets: Vec<_> = snapshot.daemon_sets.iter().collect();
    sets.sort_by_key(|set| set.namespace != DISTRO_NAMESPACE);
    let installations = sets.into_iter().filter_map(|set| {
        let kind = Kind::of(set)?;
        // The objects of upstream's manifests have the label `app: multus`, too.
        let may_be = |one: &Identity| one.distro.is_some() || kind == Kind::Ours;
        let chart = IDENTITIES
            .into_iter()
            .find(|one| one.name == set.app && may_be(one));
        Some(Installation { kind, set, chart })
    });
    installations.collect()
}

/// Returns whether the daemons give addresses of `multus-ipam`; `None` where none of ours runs, or its configuration was not read.
pub(super) fn is_ipam_on(snapshot: &ClusterSnapshot) -> Option<bool> {
    let installed = all(snapshot).into_iter();
    let mut ours = installed.filter(|one| one.kind == Kind::Ours && one.attaches());
    let config = ours.find_map(|one| one.daemon_configs(snapshot).next())?;
    Some(options::get(&config, "ipam") == Some(&Value::Bool(true)))
}

/// The chart to install, the release that it becomes, and the reason.
pub(super) struct Choice {
    pub(super) chart: Identity,
    pub(super) namespace: String,
    pub(super) release: String,
    pub(super) reason: String,
}

/// Chooses the chart. An existing release keeps its name, since the selector of its `DaemonSet` cannot be changed; else the nodes' distro decides.
pub(super) fn choose(snapshot: &ClusterSnapshot, installed: &[Installation<'_>]) -> Choice {
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
    let (chart, reason) = if runs("+rke2") {
        (Identity::of(Distro::Rke2), "nodes run RKE2")
    } else if runs("+k3s") {
        (Identity::of(Distro::K3s), "nodes run K3s")
    } else if installed.iter().any(|one| one.kind.is_multus()) {
        (
            Identity::of(Distro::Rke2),
            "the nodes run neither K3s nor RKE2, and the objects of upstream's manifests have the names of the chart multus",
        )
    } else {
        (
            Identity::OTHER,
            "the nodes run neither K3s nor RKE2, and the charts differ only in their names",
        )
    };
    Choice {
        chart,
        namespace: DISTRO_NAMESPACE.to_owned(),
        release: chart.name.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Returns the settings of an installation that the new daemons would not have: key, old value and new value.
pub(super) fn lost_settings(
    installation: &Installation<'_>,
    snapshot: &ClusterSnapshot,
    ours: &Map<String, Value>,
) -> Vec<(String, Value, Value)> {
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
            let new = options::get(ours, &key).cloned().unwrap_or_default();
            let is_same = comparable(&new) == comparable(&value)
                || (new.is_null() && is_default(&key, &value));
            (!is_same).then_some((key, value, new))
        })
        .collect()
}
