//! The settings of K3s and RKE2 that this program reads, as `pkg/cli/cmds` of both declares them.

use crate::plan::Distro;

/// A setting of the distro.
#[derive(Debug)]
pub(super) struct Flag {
    /// The flag without dashes, which is also the key in configuration files.
    pub(super) name: &'static str,
    pub(super) short: Option<&'static str>,
    /// The environment variable's name behind the distro's own, as `DATA_DIR` of `K3S_DATA_DIR`.
    pub(super) variable: Option<&'static str>,
    pub(super) kind: Kind,
    /// The only distro that has it.
    only: Option<Distro>,
}

/// The values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// On or off; as an argument it takes no further one.
    Switch,
    /// One value: the last one counts.
    Single,
    /// All values count, and a comma separates several.
    List,
    /// All values count, commas in them too.
    Words,
}

impl Flag {
    /// Returns the environment variable that the distro reads.
    pub(super) fn variable(&self, distro: Distro) -> Option<String> {
        let suffix = self.variable?;
        let is_read = self.only.is_none_or(|only| only == distro);
        is_read.then(|| format!("{}_{suffix}", distro.as_str().to_uppercase()))
    }

    /// Returns whether an argument or a key has this name, without its dashes.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.short == Some(name)
    }

    const fn short(self, short: &'static str) -> Self {
        Self {
            short: Some(short),
            ..self
        }
    }

    const fn variable_named(self, suffix: &'static str) -> Self {
        Self {
            variable: Some(suffix),
            ..self
        }
    }

    const fn only(self, distro: Distro) -> Self {
        Self {
            only: Some(distro),
            ..self
        }
    }
}

const fn flag(name: &'static str, kind: Kind) -> Flag {
    Flag {
        name,
        short: None,
        variable: None,
        kind,
        only: None,
    }
}

/// The variables of the distros' own VPN have no row: this program takes them, and hides them from the distro.
pub(super) static TABLE: &[Flag] = {
    use Distro::{K3s, Rke2};
    use Kind::{List, Single, Switch, Words};
    &[
        flag("advertise-address", Single),
        flag("bind-address", Single),
        flag("cluster-cidr", List),
        flag("cluster-init", Switch)
            .variable_named("CLUSTER_INIT")
            .only(K3s),
        flag("cluster-reset", Switch).variable_named("CLUSTER_RESET"),
        flag("cni", List).variable_named("CNI").only(Rke2),
        flag("container-runtime-endpoint", Single),
        flag("data-dir", Single)
            .short("d")
            .variable_named("DATA_DIR"),
        flag("datastore-endpoint", Single).variable_named("DATASTORE_ENDPOINT"),
        flag("debug", Switch).variable_named("DEBUG"),
        flag("disable", List),
        flag("disable-agent", Switch),
        flag("disable-cloud-controller", Switch),
        flag("disable-helm-controller", Switch).only(K3s),
        flag("docker", Switch).only(K3s),
        flag("flannel-backend", Single).only(K3s),
        flag("flannel-conf", Single).only(K3s),
        flag("flannel-iface", Single).only(K3s),
        flag("kubelet-arg", Words),
        flag("node-external-ip", List),
        flag("node-ip", List).short("i"),
        flag("server", Single).short("s").variable_named("URL"),
        flag("service-cidr", List),
        flag("system-default-registry", Single).variable_named("SYSTEM_DEFAULT_REGISTRY"),
        flag("tls-san", List),
        flag("token", Single).short("t").variable_named("TOKEN"),
        flag("token-file", Single).variable_named("TOKEN_FILE"),
        flag("vpn-auth", Single).only(K3s),
        flag("vpn-auth-file", Single).only(K3s),
    ]
};
