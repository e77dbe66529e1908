//! The settings of K3s and RKE2: one table of them, and one reader over arguments, environment and configuration files.
//!
//! The rules are those of K3s' sources, which RKE2 uses as well. `pkg/configfilearg/parser.go` puts the configuration, as further
//! arguments, before those of the command line: of a single value the command line's counts, a list has the values of both, and each
//! counts more than an environment variable. Most settings have no variable.
//!
//! Nothing is checked here: a setting with a value that the distro refuses is the distro's to report.

mod args;
mod files;
mod table;

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use node::root::Root;

pub(crate) use self::args::role;
use self::table::{Flag, Kind, TABLE};
use crate::plan::{Distro, Server};

/// The part of a node in the cluster, as the distro's command names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Agent,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let all = [Self::Server, Self::Agent];
        all.into_iter().find(|role| role.as_str() == name)
    }
}

/// The place that a setting was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Arguments,
    File,
    Environment,
}

/// The token to join with, which is not printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) Option<String>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The settings of one start of the distro.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the distro, under the distro's name"
)]
pub(crate) struct Settings {
    pub(crate) distro: Distro,
    /// `None` where the command starts neither.
    pub(crate) role: Option<Role>,
    /// The configuration file, which need not exist.
    pub(crate) config_file: PathBuf,
    pub(crate) data_dir: PathBuf,
    /// The default registry; empty for none.
    pub(crate) registry: String,
    pub(crate) disable_agent: bool,
    pub(crate) disable_cloud_controller: bool,
    pub(crate) disable_helm_controller: bool,
    /// The manifests that the distro removes.
    pub(crate) disable: Vec<String>,
    /// The networks that RKE2 deploys.
    pub(crate) cni: Vec<String>,
    pub(crate) docker: bool,
    pub(crate) container_runtime_endpoint: Option<String>,
    pub(crate) node_ip: Vec<String>,
    pub(crate) node_external_ip: Vec<String>,
    pub(crate) advertise_address: Option<String>,
    pub(crate) bind_address: Option<String>,
    pub(crate) tls_san: Vec<String>,
    pub(crate) cluster_cidr: Vec<String>,
    pub(crate) service_cidr: Vec<String>,
    pub(crate) flannel_backend: Option<String>,
    pub(crate) flannel_conf: Option<String>,
    pub(crate) flannel_iface: Option<String>,
    pub(crate) kubelet_arg: Vec<String>,
    /// The URL of the server to join.
    pub(crate) server: Option<String>,
    pub(crate) token: Token,
    pub(crate) token_file: Option<String>,
    pub(crate) cluster_init: bool,
    pub(crate) cluster_reset: bool,
    pub(crate) datastore_endpoint: Option<String>,
    /// The place of each setting that is set; that of a list is the one that the distro reads last.
    places: BTreeMap<&'static str, Place>,
}

/// Returns a variable of this process' environment; an empty one counts as absent.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the settings of a command. The explicit distro is for a program of another name.
pub(crate) fn read(
    root: &Root,
    args: &[String],
    variable: impl Fn(&str) -> Option<String>,
    explicit: Option<Distro>,
) -> anyhow::Result<Settings> {
    let distro = distro(args, explicit)?;
    let name = distro.as_str();
    let config_file = variable(&format!("{}_CONFIG_FILE", name.to_uppercase()))
        .or_else(|| args::config_file(args).map(str::to_owned))
        .unwrap_or_else(|| format!("/etc/rancher/{name}/config.yaml"));
    let config_file = PathBuf::from(config_file);
    let sources = Sources {
        distro,
        args: args::values(args),
        files: files::read(root, &config_file)?,
        variable,
    };
    let list = |name| sources.list(name);
    let single = |name| sources.single(name);
    let is_on = |name| sources.is_on(name);
    let places = TABLE.iter().filter_map(|flag| {
        let (place, _) = sources.found(flag)?;
        Some((flag.name, place))
    });
    Ok(Settings {
        distro,
        role: role(args),
        data_dir: single("data-dir").map_or_else(|| default_data_dir(distro), PathBuf::from),
        registry: single("system-default-registry").unwrap_or_default(),
        disable_agent: is_on("disable-agent"),
        disable_cloud_controller: is_on("disable-cloud-controller"),
        disable_helm_controller: is_on("disable-helm-controller"),
        disable: list("disable"),
        cni: list("cni"),
        docker: is_on("docker"),
        container_runtime_endpoint: single("container-runtime-endpoint"),
        node_ip: list("node-ip"),
        node_external_ip: list("node-external-ip"),
        advertise_address: single("advertise-address"),
        bind_address: single("bind-address"),
        tls_san: list("tls-san"),
        cluster_cidr: list("cluster-cidr"),
        service_cidr: list("service-cidr"),
        flannel_backend: single("flannel-backend"),
        flannel_conf: single("flannel-conf"),
        flannel_iface: single("flannel-iface"),
        kubelet_arg: list("kubelet-arg"),
        server: single("server"),
        token: Token(single("token")),
        token_file: single("token-file"),
        cluster_init: is_on("cluster-init"),
        cluster_reset: is_on("cluster-reset"),
        datastore_endpoint: single("datastore-endpoint"),
        places: places.collect(),
        config_file,
    })
}

impl Settings {
    /// Returns the place of a setting, or `None` where it is not set.
    pub(crate) fn place(&self, name: &str) -> Option<Place> {
        self.places.get(name).copied()
    }

    /// Returns where to change a setting, for the user.
    pub(crate) fn place_text(&self, name: &str) -> String {
        match self.place(name) {
            Some(Place::Arguments) => format!("the arguments of {}", self.distro.as_str()),
            Some(Place::Environment) => format!("the environment of {}", self.distro.as_str()),
            Some(Place::File) | None => self.config_file.display().to_string(),
        }
    }

    /// Returns what the staged files depend on.
    pub(crate) fn staging(&self) -> Server<'_> {
        Server {
            registry: &self.registry,
            runs_agent: !self.disable_agent,
        }
    }

    /// Returns further arguments by which the distro disables these manifests too. The list of a file is repeated: the distros' pages say
    /// that arguments replace it, and their sources that they add to it.
    pub(crate) fn args_to_disable(&self, names: &[&str]) -> Vec<String> {
        let is_missing = |name: &&&str| self.disable.iter().all(|known| known != **name);
        let missing: Vec<&str> = names.iter().filter(is_missing).copied().collect();
        let is_repeated = !missing.is_empty() && self.place("disable") == Some(Place::File);
        let before = self.disable.iter().map(String::as_str);
        before
            .filter(|_| is_repeated)
            .chain(missing.iter().copied())
            .map(|name| format!("--disable={name}"))
            .collect()
    }

    /// Fails where RKE2 brings its own Multus.
    pub(crate) fn ensure_no_own_multus(&self) -> anyhow::Result<()> {
        ensure!(
            !self.has_own_multus(),
            "rke2 is configured to bring its own multus: take `multus` out of its cni list, this program brings it"
        );
        Ok(())
    }

    pub(crate) fn has_own_multus(&self) -> bool {
        self.distro == Distro::Rke2 && self.cni.iter().any(|network| network == "multus")
    }
}

/// Returns what a command starts, which must be a server or an agent.
pub(crate) fn require_role(args: &[String], distro: Distro) -> anyhow::Result<Role> {
    let (program, name) = (&args[0], distro.as_str());
    role(args).with_context(|| {
        format!("{program} is started neither as server nor as agent: write it after the program, as in: -- {name} server")
    })
}

/// Returns the networks of pods, or the distro's default for a node whose first address this is.
pub(crate) fn pod_networks(cluster_cidr: &[String], first: Option<IpAddr>) -> Vec<String> {
    or_default(cluster_cidr, first, "10.42.0.0/16", "fd00:42::/56")
}

/// Returns the same of the networks of services.
pub(crate) fn service_networks(service_cidr: &[String], first: Option<IpAddr>) -> Vec<String> {
    or_default(service_cidr, first, "10.43.0.0/16", "fd00:43::/112")
}

/// Returns the networks, or the default of the address' family (`GetDefaultAddresses` of pkg/util/net.go).
fn or_default(networks: &[String], first: Option<IpAddr>, ipv4: &str, ipv6: &str) -> Vec<String> {
    if !networks.is_empty() {
        return networks.to_vec();
    }
    let is_ipv6 = first.is_some_and(|address| address.is_ipv6());
    vec![if is_ipv6 { ipv6 } else { ipv4 }.to_owned()]
}

/// The values of all settings, where they were found.
struct Sources<V> {
    distro: Distro,
    args: BTreeMap<&'static str, Vec<String>>,
    files: files::Files,
    variable: V,
}

impl<V: Fn(&str) -> Option<String>> Sources<V> {
    /// Returns the place that counts, and all values: those of the files come before those of the arguments.
    fn found(&self, flag: &Flag) -> Option<(Place, Vec<String>)> {
        let mut values = self.files.values(|key| flag.is_named(key));
        let from_args = self.args.get(flag.name);
        values.extend(from_args.into_iter().flatten().cloned());
        if from_args.is_some() || !values.is_empty() {
            let place = from_args.map_or(Place::File, |_| Place::Arguments);
            return Some((place, values));
        }
        let value = (self.variable)(&flag.variable(self.distro)?)?;
        Some((Place::Environment, vec![value]))
    }

    fn single(&self, name: &str) -> Option<String> {
        let (_, values) = self.found(row(name))?;
        values.into_iter().last().filter(|value| !value.is_empty())
    }

    fn is_on(&self, name: &str) -> bool {
        let last = self
            .found(row(name))
            .and_then(|(place, values)| Some((place, values.last()?.clone())));
        last.is_some_and(|(place, value)| {
            is_true(&value) || place == Place::File && YAML_TRUE.contains(&&*value)
        })
    }

    fn list(&self, name: &str) -> Vec<String> {
        let flag = row(name);
        let values = self.found(flag).map(|(_, values)| values);
        let values = values.unwrap_or_default().into_iter();
        if flag.kind == Kind::Words {
            return values.collect();
        }
        values
            .flat_map(|value| split(&value).collect::<Vec<_>>())
            .collect()
    }
}

fn row(name: &str) -> &'static Flag {
    let mut rows = TABLE.iter();
    rows.find(|flag| flag.name == name)
        .expect("each setting that is read has a row, as any test of the reader shows")
}

/// Splits a comma-separated list as the distros do.
fn split(list: &str) -> impl Iterator<Item = String> {
    let items = list.split(',').map(|item| item.trim().to_owned());
    items.filter(|item| !item.is_empty())
}

/// The further words for true of YAML 1.1, which the distros read their files as.
const YAML_TRUE: [&str; 8] = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON"];

/// Reads a switch as the distros do, which are Go programs.
fn is_true(value: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&value)
}

/// Returns the data directory of a distro that is started without `--data-dir`.
pub(crate) fn default_data_dir(distro: Distro) -> PathBuf {
    Path::new("/var/lib/rancher").join(distro.as_str())
}

/// Returns the distro of a command, by the program's name where the explicit one does not say it.
pub(crate) fn distro(args: &[String], explicit: Option<Distro>) -> anyhow::Result<Distro> {
    let Some(program) = args.first() else {
        bail!("no program: give it after --, as in: -- k3s server")
    };
    let name = Path::new(program).file_name().unwrap_or_default();
    let named = [Distro::K3s, Distro::Rke2]
        .into_iter()
        .find(|distro| name == distro.as_str());
    match (named, explicit) {
        (Some(named), Some(explicit)) => {
            ensure!(
                named == explicit,
                "--distro {} contradicts the program {program}: leave it out",
                explicit.as_str()
            );
            Ok(named)
        }
        (Some(distro), None) | (None, Some(distro)) => Ok(distro),
        (None, None) => {
            bail!("{program} is neither k3s nor rke2: name the distro with --distro")
        }
    }
}

#[cfg(test)]
mod tests;
