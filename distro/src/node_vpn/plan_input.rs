//! The input of the VPN's address plan, from the distro's settings, and what of the plan the kubelet gets by itself.

use std::{net::IpAddr, path::Path};

use anyhow::{Context as _, bail, ensure};
use vpn::{
    Facts, Family,
    plan::{self, Datastore, DatastoreSettings, Host, Node, Plan, Refusal, Setting},
    provider::Selection,
};

use crate::{
    plan::Distro,
    settings::{Place, Role, Settings},
};

/// Files by which K3s and RKE2 recognise an etcd that has run, below their data directory.
const ETCD: &str = "server/db/etcd";

/// Returns the plan for a node with these settings.
pub(crate) fn plan(facts: &Facts, node: &Node, settings: &Settings) -> Result<Plan, Refusal> {
    let mut plan = plan::plan(facts, node)?;
    if let Some(node_ip) = kubelet_node_ip(&plan, settings) {
        plan.notes.push(format!(
            "with disable-cloud-controller {} gives the kubelet no node-ip where there are two families, and the node's InternalIP would be the LAN's: this server's kubelet gets {node_ip}, and each agent needs the same of its own addresses, as kubelet-arg",
            settings.distro.as_str()
        ));
        let added: Vec<String> = [node_ip]
            .into_iter()
            .filter(|arg| !settings.kubelet_arg.contains(arg))
            .collect();
        plan.settings.push(Setting {
            name: "kubelet-arg",
            values: [&settings.kubelet_arg[..], &added].concat(),
            added,
            reason: "without a cloud controller the kubelet gets two addresses no other way",
        });
    }
    Ok(plan)
}

/// Returns the kubelet's argument with the node's addresses where the distro passes none: without its cloud controller, for two families
/// (`kubeletArgsAndConfig` of K3s' `agent_linux.go`). The servers decide this for agents, which do not know it.
fn kubelet_node_ip(plan: &Plan, settings: &Settings) -> Option<String> {
    let node_ip = plan.settings.iter().find(|one| one.name == "node-ip")?;
    let is_ipv6 = |address: &String| address.contains(':');
    let has_both = node_ip.values.iter().any(is_ipv6) && !node_ip.values.iter().all(is_ipv6);
    let arg = format!("node-ip={}", node_ip.values.join(","));
    let is_other =
        |own: &String| own.trim_start_matches("--").starts_with("node-ip=") && *own != arg;
    let is_needed = has_both
        && settings.role == Some(Role::Server)
        && settings.disable_cloud_controller
        && !settings.disable_agent
        && !settings.kubelet_arg.iter().any(is_other);
    is_needed.then_some(arg)
}

/// Returns the settings that concern addresses. `exists` says whether a file of the node is there.
pub(crate) fn node(
    settings: &Settings,
    selection: &Selection,
    exists: impl Fn(&Path) -> bool,
    host: Host,
) -> anyhow::Result<Node> {
    ensure_no_auth(settings)?;
    let distro = match settings.distro {
        Distro::K3s => plan::Distro::K3s,
        Distro::Rke2 => plan::Distro::Rke2,
    };
    let role = match settings.role {
        Some(Role::Agent) => plan::Role::Agent,
        Some(Role::Server) => plan::Role::Server(Datastore::of(
            distro,
            &DatastoreSettings {
                endpoint: settings.datastore_endpoint.clone(),
                starts_etcd: settings.cluster_init || settings.cluster_reset,
                joins: settings.server.is_some(),
                is_on_disk: exists(&settings.data_dir.join(ETCD)),
            },
        )),
        None => bail!(
            "{name} starts neither a server nor an agent: name one of them, as in: -- {name} server",
            name = settings.distro.as_str()
        ),
    };
    Ok(Node {
        selection: selection.clone(),
        distro,
        role,
        settings: plan::Settings {
            node_ip: addresses("node-ip", &settings.node_ip)?,
            node_external_ip: addresses("node-external-ip", &settings.node_external_ip)?,
            advertise_address: addresses("advertise-address", &settings.advertise_address)?.pop(),
            bind_address: addresses("bind-address", &settings.bind_address)?.pop(),
            tls_san: settings.tls_san.clone(),
            tls_san_is_in_file: settings.place("tls-san") != Some(Place::Arguments),
            cluster_families: families(&settings.cluster_cidr)?,
            flannel_iface: settings.flannel_iface.clone(),
            flannel_backend: settings.flannel_backend.clone(),
            flannel_conf: settings.flannel_conf.clone(),
            server: settings.server.clone(),
        },
        host,
    })
}

/// Fails where the distro would start the VPN itself. Of the environment only what this program leaves to the distro counts, which is
/// nothing.
fn ensure_no_auth(settings: &Settings) -> anyhow::Result<()> {
    for name in ["vpn-auth", "vpn-auth-file"] {
        let place = match settings.place(name) {
            Some(Place::Arguments) => "among its arguments",
            Some(Place::File) => "in its configuration",
            Some(Place::Environment) | None => continue,
        };
        bail!(
            "{} has {name} {place} and would start the VPN too, with etcd's address at stake: take it out there, {}give it to multus-distro with --vpn-auth-file, before the `--`",
            settings.distro.as_str(),
            if name == "vpn-auth" {
                "write it into a file of mode 0600, and "
            } else {
                "and "
            }
        );
    }
    Ok(())
}

fn addresses<'a>(
    name: &str,
    values: impl IntoIterator<Item = &'a String>,
) -> anyhow::Result<Vec<IpAddr>> {
    let parse = |text: &String| {
        text.parse()
            .ok()
            .with_context(|| format!("{name} {text} is no IP address: correct it"))
    };
    values.into_iter().map(parse).collect()
}

/// Returns the families of the pods' networks, each once.
fn families(networks: &[String]) -> anyhow::Result<Vec<Family>> {
    let mut families = Vec::new();
    for network in networks {
        let address = network.split('/').next().and_then(|text| text.parse().ok());
        let family = address.map(Family::of);
        ensure!(
            family.is_some() && network.contains('/'),
            "cluster-cidr {network} is not a network: write it as 10.42.0.0/16"
        );
        families.extend(family.filter(|family| !families.contains(family)));
    }
    Ok(families)
}

#[cfg(test)]
mod tests {
    use vpn::plan::Role;

    use super::*;

    fn check(
        line: &str,
        env: &[(&str, &str)],
        file: &str,
        etcd: bool,
    ) -> anyhow::Result<(Settings, Node)> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let find = |key: &str| {
            let found = env.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        };
        let dir = tempfile::tempdir()?;
        for distro in ["k3s", "rke2"] {
            let dir = dir.path().join("etc/rancher").join(distro);
            std::fs::create_dir_all(&dir)?;
            std::fs::write(dir.join("config.yaml"), file)?;
        }
        let root = node::root::Root::open(dir.path())?;
        let settings = crate::settings::read(&root, &args, find, None)?;
        let exists = |path: &Path| {
            assert!(path.ends_with(ETCD), "{}", path.display());
            etcd && path.starts_with("/data")
        };
        let node = node(&settings, &Selection::default(), exists, Host::default())?;
        Ok((settings, node))
    }

    fn role(line: &str, env: &[(&str, &str)], file: &str, etcd: bool) -> Role {
        check(line, env, file, etcd).unwrap().1.role
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
            .1
            .settings;
        let texts = |addresses: &[IpAddr]| {
            let texts = addresses.iter().map(ToString::to_string);
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(&settings.node_ip), "10.0.0.1 fd00::1");
        assert_eq!(texts(&settings.node_external_ip), "1.2.3.4");
        assert_eq!(settings.tls_san, ["x", "a", "b", "c"]);
        assert!(!settings.tls_san_is_in_file);
        assert_eq!(settings.cluster_families, [Family::Ipv6, Family::Ipv4]);
        assert_eq!(settings.flannel_iface.as_deref(), Some("eth0"));
        let env = &[("K3S_NODE_IP", "1.1.1.1"), ("K3S_TLS_SAN", "z")];
        let settings = check("k3s server", env, "tls-san: [x, y]", false)
            .unwrap()
            .1
            .settings;
        // The distro has no such variables.
        assert!(settings.node_ip.is_empty());
        assert_eq!(settings.tls_san, ["x", "y"]);
        assert!(settings.tls_san_is_in_file);
    }

    #[test]
    fn kubelet_without_cloud_controller_gets_the_addresses_of_both_families() {
        let facts = Facts {
            interface: "ts7".to_owned(),
            addresses: ["100.64.0.1", "fd7a::1"]
                .map(|text| text.parse::<IpAddr>().unwrap())
                .into_iter()
                .collect(),
            dns_name: None,
            mtu: 1280,
            ranges: Vec::new(),
        };
        let off = "disable-cloud-controller: true";
        let both = "--cluster-cidr=10.42.0.0/16,fd42::/56";
        let arg = "--kubelet-arg=node-ip=100.64.0.1,fd7a::1";
        let swapped = "--kubelet-arg=node-ip=fd7a::1,100.64.0.1";
        for (line, file, expected) in [
            (format!("k3s server {both}"), off, Some(arg)),
            (
                format!("k3s server {both} --kubelet-arg=v=2"),
                off,
                Some(arg),
            ),
            (
                "k3s server --cluster-cidr=fd42::/56,10.42.0.0/16".to_owned(),
                off,
                Some(swapped),
            ),
            (format!("k3s server {both}"), "", None),
            (
                "k3s server --cluster-cidr=10.42.0.0/16".to_owned(),
                off,
                None,
            ),
            (format!("k3s server {both} --disable-agent"), off, None),
            (format!("k3s agent {both}"), off, None),
            (
                format!("k3s server {both} --kubelet-arg=node-ip=100.64.0.1"),
                off,
                None,
            ),
        ] {
            let (settings, node) = check(&line, &[], file, false).unwrap();
            let plan = plan(&facts, &node, &settings).unwrap();
            let args = plan.args();
            let found = args.iter().find(|arg| arg.starts_with("--kubelet-arg"));
            assert_eq!(found.map(String::as_str), expected, "{line} {file}");
            let is_said = plan.notes.iter().any(|note| note.contains("InternalIP"));
            assert_eq!(is_said, expected.is_some());
        }
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
