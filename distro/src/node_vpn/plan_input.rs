//! The input of the VPN's address plan, from the distro's arguments, environment and configuration.
//!
//! Only what the distro reads counts: most of its flags have no environment variable, and a flag may have one dash or two.

use std::{net::IpAddr, path::Path};

use anyhow::{Context as _, bail, ensure};
use vpn::{
    Family,
    auth::ProviderName,
    plan::{Datastore, DatastoreSettings, Host, Node, Role, Settings},
};

use crate::{
    config,
    plan::Distro,
    program::{config_file, distro},
};

/// The distro's settings, from wherever it reads them.
struct Sources<'a, V> {
    distro: Distro,
    args: &'a [String],
    variable: V,
    file: config::Settings,
}

/// A flag of the distro: its long name, its short one, and the end of its environment variable's name.
struct Flag {
    long: &'static str,
    short: Option<&'static str>,
    variable: Option<&'static str>,
}

const fn flag(long: &'static str) -> Flag {
    Flag {
        long,
        short: None,
        variable: None,
    }
}

const fn flag_or_variable(long: &'static str, variable: &'static str) -> Flag {
    Flag {
        long,
        short: None,
        variable: Some(variable),
    }
}

const NODE_IP: Flag = Flag {
    long: "node-ip",
    short: Some("i"),
    variable: None,
};
const SERVER: Flag = Flag {
    long: "server",
    short: Some("s"),
    variable: Some("URL"),
};
const DATA_DIR: Flag = Flag {
    long: "data-dir",
    short: Some("d"),
    variable: Some("DATA_DIR"),
};

/// Files by which K3s and RKE2 recognise an etcd that has run, below their data directory.
const ETCD: &str = "server/db/etcd";

/// Reads the settings that concern addresses. `exists` says whether a file of the node is there.
pub(crate) fn read(
    args: &[String],
    variable: impl Fn(&str) -> Option<String>,
    read_file: impl Fn(&Path) -> anyhow::Result<config::Settings>,
    exists: impl Fn(&Path) -> bool,
    explicit: Option<Distro>,
    host: Host,
) -> anyhow::Result<Node> {
    let distro = distro(args, explicit)?;
    let file = read_file(&config_file(distro, args, &variable))?;
    let sources = Sources {
        distro,
        args,
        variable,
        file,
    };
    sources.ensure_no_auth()?;
    let tls_san = flag("tls-san");
    let settings = Settings {
        node_ip: sources.addresses(&NODE_IP)?,
        node_external_ip: sources.addresses(&flag("node-external-ip"))?,
        advertise_address: sources.addresses(&flag("advertise-address"))?.pop(),
        bind_address: sources.addresses(&flag("bind-address"))?.pop(),
        tls_san: sources.list(&tls_san),
        tls_san_is_in_file: sources.values(&tls_san).is_empty(),
        cluster_families: sources.families()?,
        flannel_iface: sources.last(&flag("flannel-iface")),
        flannel_backend: sources.last(&flag("flannel-backend")),
        flannel_conf: sources.last(&flag("flannel-conf")),
        server: sources.last(&SERVER),
    };
    let data_dir = sources.last(&DATA_DIR);
    let data_dir = data_dir.unwrap_or_else(|| format!("/var/lib/rancher/{}", distro.as_str()));
    let distro = match distro {
        Distro::K3s => vpn::plan::Distro::K3s,
        Distro::Rke2 => vpn::plan::Distro::Rke2,
    };
    let role = match args.get(1).map(String::as_str) {
        Some("agent") => Role::Agent,
        Some("server") => Role::Server(Datastore::of(
            distro,
            &DatastoreSettings {
                endpoint: sources.last(&flag_or_variable(
                    "datastore-endpoint",
                    "DATASTORE_ENDPOINT",
                )),
                starts_etcd: sources.is_set(&flag_or_variable("cluster-init", "CLUSTER_INIT"))
                    || sources.is_set(&flag_or_variable("cluster-reset", "CLUSTER_RESET")),
                joins: settings.server.is_some(),
                is_on_disk: exists(&Path::new(&data_dir).join(ETCD)),
            },
        )),
        _ => bail!(
            "{} starts neither a server nor an agent: name one of them first, as in: -- k3s server",
            args[0]
        ),
    };
    Ok(Node {
        provider: ProviderName::Tailscale,
        distro,
        role,
        settings,
        host,
    })
}

impl<V: Fn(&str) -> Option<String>> Sources<'_, V> {
    /// Fails where the distro would start the VPN itself. Of the environment only what this program leaves to the distro counts, which
    /// is nothing.
    fn ensure_no_auth(&self) -> anyhow::Result<()> {
        for name in ["vpn-auth", "vpn-auth-file"] {
            let flag = flag(name);
            let place = if !self.values(&flag).is_empty() {
                "among its arguments"
            } else if self.file.value(name).is_some() {
                "in its configuration"
            } else {
                continue;
            };
            bail!(
                "{} has {name} {place} and would start the VPN too, with etcd's address at stake: take it out there, {}give it to multus-distro with --vpn-auth-file, before the `--`",
                self.distro.as_str(),
                if name == "vpn-auth" {
                    "write it into a file of mode 0600, and "
                } else {
                    "and "
                }
            );
        }
        Ok(())
    }

    /// Returns the values of a flag among the arguments.
    fn values(&self, flag: &Flag) -> Vec<String> {
        let mut values = Vec::new();
        let mut args = self.args.iter();
        while let Some(arg) = args.next() {
            let name = arg
                .strip_prefix("--")
                .or_else(|| arg.strip_prefix('-'))
                .unwrap_or_default();
            let is_flag = |name: &str| name == flag.long || Some(name) == flag.short;
            match name.split_once('=') {
                Some((name, value)) if is_flag(name) => values.push(value.to_owned()),
                None if is_flag(name) => values.extend(args.next().cloned()),
                _ => {}
            }
        }
        values
    }

    /// Returns the last value from the first of arguments, environment and file that has one.
    fn last(&self, flag: &Flag) -> Option<String> {
        let from_args = self.values(flag).pop();
        let found = from_args
            .or_else(|| self.variable_of(flag))
            .or_else(|| self.file.value(flag.long));
        found.filter(|value| !value.is_empty())
    }

    fn variable_of(&self, flag: &Flag) -> Option<String> {
        let name = flag.variable?;
        let program = self.distro.as_str().to_uppercase();
        (self.variable)(&format!("{program}_{name}"))
    }

    /// Returns whether a switch is on: alone it needs no value.
    fn is_set(&self, flag: &Flag) -> bool {
        let from_args = self.args.iter().rev().find_map(|arg| {
            let name = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
            match name.strip_prefix(flag.long)? {
                "" => Some(true),
                value => value.strip_prefix('=').map(config::is_true),
            }
        });
        from_args
            .or_else(|| self.variable_of(flag).map(|value| config::is_true(&value)))
            .or_else(|| {
                self.file
                    .value(flag.long)
                    .map(|value| config::is_true(&value))
            })
            .unwrap_or_default()
    }

    /// Returns all values of a list: those of the arguments, or those of the file.
    fn list(&self, flag: &Flag) -> Vec<String> {
        let values = self.values(flag);
        if values.is_empty() {
            return self.file.values(flag.long);
        }
        let values = values.iter();
        values.flat_map(|value| config::split(value)).collect()
    }

    fn addresses(&self, flag: &Flag) -> anyhow::Result<Vec<IpAddr>> {
        let parse = |text: &String| {
            text.parse()
                .ok()
                .with_context(|| format!("{} {text} is no IP address: correct it", flag.long))
        };
        self.list(flag).iter().map(parse).collect()
    }

    /// Returns the families of the pods' networks, each once.
    fn families(&self) -> anyhow::Result<Vec<Family>> {
        let flag = flag("cluster-cidr");
        let mut families = Vec::new();
        for network in self.list(&flag) {
            let address = network.split('/').next().and_then(|text| text.parse().ok());
            let family = address.map(Family::of);
            ensure!(
                family.is_some() && network.contains('/'),
                "cluster-cidr {network} is no network: write it as 10.42.0.0/16"
            );
            families.extend(family.filter(|family| !families.contains(family)));
        }
        Ok(families)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, env: &[(&str, &str)], file: &str, etcd: bool) -> anyhow::Result<Node> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let find = |key: &str| {
            let found = env.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        };
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("config.yaml"), file)?;
        let root = node::root::Root::open(dir.path())?;
        let settings = |_: &Path| config::read(&root, Path::new("/config.yaml"));
        let exists = |path: &Path| {
            assert!(path.ends_with(ETCD), "{}", path.display());
            etcd && path.starts_with("/data")
        };
        read(&args, find, settings, exists, None, Host::default())
    }

    fn role(line: &str, env: &[(&str, &str)], file: &str, etcd: bool) -> Role {
        check(line, env, file, etcd).unwrap().role
    }

    #[test]
    fn role_and_datastore_come_from_arguments_environment_file_and_disk() {
        use Datastore::{Etcd, External, Sqlite};
        let server = Role::Server;
        assert_eq!(role("k3s agent", &[], "", false), Role::Agent);
        assert_eq!(role("rke2 agent", &[], "", true), Role::Agent);
        assert_eq!(role("k3s server", &[], "", true), server(Sqlite));
        let on_disk = "k3s server --data-dir /data";
        assert_eq!(role(on_disk, &[], "", true), server(Etcd));
        assert_eq!(
            role("k3s server -d=/x", &[], "data-dir: /data", true),
            server(Sqlite)
        );
        for line in [
            "--cluster-init",
            "-cluster-init",
            "--cluster-init=true",
            "-s https://a",
        ] {
            assert_eq!(
                role(&format!("k3s server {line}"), &[], "", false),
                server(Etcd)
            );
        }
        let init = "cluster-init: true";
        assert_eq!(role("k3s server", &[], init, false), server(Etcd));
        assert_eq!(
            role("k3s server --cluster-init=false", &[], init, false),
            server(Sqlite)
        );
        let env = &[("K3S_URL", "https://a")];
        assert_eq!(role("k3s server", env, "", false), server(Etcd));
        let env = &[("K3S_DATASTORE_ENDPOINT", "mysql://x")];
        assert_eq!(role("k3s server", env, "", false), server(External));
        assert_eq!(role("rke2 server", env, "", false), server(Etcd));
        assert!(check("k3s etcd-snapshot", &[], "", false).is_err());
    }

    #[test]
    fn settings_are_read_as_the_distro_reads_them() {
        let line = "k3s server -i 10.0.0.1,fd00::1 -node-external-ip=1.2.3.4 --tls-san a --tls-san=b,c --cluster-cidr fd42::/56,10.42.0.0/16";
        let settings = check(line, &[], "tls-san: [x]\nflannel-iface: eth0\n", false)
            .unwrap()
            .settings;
        let texts = |addresses: &[IpAddr]| {
            let texts = addresses.iter().map(ToString::to_string);
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(&settings.node_ip), "10.0.0.1 fd00::1");
        assert_eq!(texts(&settings.node_external_ip), "1.2.3.4");
        assert_eq!(settings.tls_san, ["a", "b", "c"]);
        assert!(!settings.tls_san_is_in_file);
        assert_eq!(settings.cluster_families, [Family::Ipv6, Family::Ipv4]);
        assert_eq!(settings.flannel_iface.as_deref(), Some("eth0"));
        let env = &[("K3S_NODE_IP", "1.1.1.1"), ("K3S_TLS_SAN", "z")];
        let settings = check("k3s server", env, "tls-san: [x, y]", false)
            .unwrap()
            .settings;
        // The distro has no such variables.
        assert!(settings.node_ip.is_empty());
        assert_eq!(settings.tls_san, ["x", "y"]);
        assert!(settings.tls_san_is_in_file);
    }

    #[test]
    fn vpn_of_the_distro_itself_is_refused() {
        for (line, file, place) in [
            (
                "k3s server --vpn-auth name=tailscale,joinKey=k",
                "",
                "arguments",
            ),
            ("k3s agent -vpn-auth=x", "", "arguments"),
            ("k3s agent --vpn-auth-file /k", "", "arguments"),
            (
                "rke2 agent",
                "vpn-auth: name=tailscale,joinKey=k",
                "configuration",
            ),
            ("k3s server", "vpn-auth-file: /k", "configuration"),
        ] {
            let error = check(line, &[], file, false).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
            assert!(
                error.contains("with --vpn-auth-file, before the `--`"),
                "{error}"
            );
            assert!(!error.contains("joinKey"), "{error}");
        }
    }

    #[test]
    fn malformed_addresses_are_named() {
        let fails = |line: &str, part: &str| {
            let error = check(line, &[], "", false).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        fails("k3s agent --node-ip eth0", "node-ip eth0");
        fails(
            "k3s server --cluster-cidr 10.42.0.0",
            "cluster-cidr 10.42.0.0",
        );
        fails("k3s server --cluster-cidr x/16", "cluster-cidr x/16");
    }
}
