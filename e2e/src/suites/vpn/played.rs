//! The part of K3s in this suite: a program named `k3s` that writes down its arguments, and kubelet,
//! flannel and API server that are started with the addresses in them.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::{
    cluster::kubelet,
    control_plane::{Components, ControlPlane, Endpoints},
    node::{
        Node, Service,
        cgroup::Cgroup,
        layout::{ContainerdVersion, Layout},
        runtime::{NodePlugins, Runtime},
    },
    sh,
    test_env::TestEnv,
};

/// The directory of the program that plays K3s.
const PROGRAMS: &str = "/srv/bin";
/// The arguments that it got, one on each line.
const ARGUMENTS: &str = "/srv/k3s.arguments";
/// Networks of pods: that of K3s unless a server has others, and one of IPv6.
pub(super) const PODS: &str = "10.42.0.0/16";
pub(super) const PODS6: &str = "fd42::/56";
/// The place where K3s writes the kubeconfig of its kubelet.
const KUBECONFIG: &str = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig";
/// The configuration of flannel that multus-distro writes.
pub(super) const NET_CONF: &str = "/var/lib/multus-vpn/net-conf.json";
/// The file that flannel writes for its CNI plugin.
const SUBNET: &str = "/run/flannel/subnet.env";

/// The arguments with which multus-distro has started K3s.
#[derive(Debug)]
pub(super) struct Arguments(Vec<String>);

impl Arguments {
    /// Returns all values of a flag; K3s separates several ones by commas, or repeats the flag.
    pub(super) fn values(&self, flag: &str) -> Vec<String> {
        let (flag, with_value) = (format!("--{flag}"), format!("--{flag}="));
        let mut values = Vec::new();
        let mut words = self.0.iter();
        while let Some(word) = words.next() {
            let value = if *word == flag {
                words.next().map(String::as_str)
            } else {
                word.strip_prefix(&with_value)
            };
            let parts = value.into_iter().flat_map(|value| value.split(','));
            values.extend(parts.map(str::to_owned));
        }
        values
    }

    /// Returns the first value of a flag.
    pub(super) fn one(&self, flag: &str) -> anyhow::Result<String> {
        let values = self.values(flag);
        let first = values.into_iter().next();
        first.with_context(|| format!("K3s got no --{flag}: {:?}", self.0))
    }

    /// Returns the first value of a flag that is an IPv4 address.
    pub(super) fn ipv4(&self, flag: &str) -> anyhow::Result<String> {
        let values = self.values(flag);
        let first = values.into_iter().find(|value| !value.contains(':'));
        first.with_context(|| format!("K3s got no IPv4 address by --{flag}: {:?}", self.0))
    }
}

/// Installs the program that plays K3s.
pub(super) fn install(node: &Node) -> anyhow::Result<()> {
    let program = format!("{PROGRAMS}/k3s");
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >{ARGUMENTS}.new && mv {ARGUMENTS}.new {ARGUMENTS} && exec sleep 2147483647\n"
    );
    node.write(&program, text)?;
    node.run(&["chmod", "755", &program]).map(drop)
}

/// Starts K3s by multus-distro with this role and these arguments, in a cluster with these networks of pods; `log` names the log.
pub(super) fn start(
    env: &TestEnv,
    node: &Node,
    log: &str,
    networks: &[&str],
    (role, arguments): (&str, &[&str]),
) -> anyhow::Result<Service> {
    let _ = fs::remove_file(node.path(ARGUMENTS));
    let path = format!("{PROGRAMS}:{}:{}", env.bin.display(), super::machine_path());
    node.serve(log, env.program("multus-distro"), |command| {
        command
            .env("PATH", path)
            .arg("run")
            .arg(format!("--vpn-auth-file={}", super::AUTH))
            // No server answers, which would name them.
            .args((role == "agent").then(|| format!("--vpn-cluster-cidr={}", networks.join(","))))
            .args(["--vpn-timeout=20", "--", "k3s", role])
            .args(arguments)
    })
}

/// Waits until K3s is started by this multus-distro; returns its arguments.
pub(super) fn arguments(node: &Node, distro: &Service) -> anyhow::Result<Arguments> {
    let text =
        sh::until(
            60,
            &format!("K3s is started on {}", node.name),
            || match fs::read_to_string(node.path(ARGUMENTS)) {
                Err(_) if node.runs(distro) => anyhow::bail!("it has no arguments yet"),
                read => Ok(read.ok()),
            },
        )?;
    let text = text.context("multus-distro has ended without K3s")?;
    Ok(Arguments(text.lines().map(str::to_owned).collect()))
}

/// Starts what a K3s server with embedded etcd starts: etcd at the first `node-ip`, and the API server.
pub(super) fn control_plane(node: &Node, k3s: &Arguments) -> anyhow::Result<ControlPlane> {
    let name = |name: String| {
        if name.parse::<std::net::IpAddr>().is_ok() {
            format!("IP:{name}")
        } else {
            format!("DNS:{name}")
        }
    };
    let endpoints = Endpoints {
        api: k3s.ipv4("advertise-address")?,
        names: k3s.values("tls-san").into_iter().map(name).collect(),
        etcd: k3s.ipv4("node-ip")?,
        pods: k3s.values("cluster-cidr").join(","),
    };
    // The API server trusts a kubelet only at the addresses in its certificate, as in K3s.
    let authority = node.dir.join("control/pki/ca.crt");
    let trusts = format!("--kubelet-certificate-authority={}", authority.display());
    ControlPlane::start_at(node, Components::All, vec![trusts], endpoints)
}

/// A node of the cluster.
pub(super) struct Member {
    pub(super) runtime: Runtime,
    _cgroup: Cgroup,
    pub(super) flannel: Service,
}

/// Starts what K3s starts on every node, and waits for flannel.
pub(super) fn join(
    env: &TestEnv,
    node: &Node,
    control: &ControlPlane,
    k3s: &Arguments,
    server: &str,
) -> anyhow::Result<Member> {
    let runtime = Runtime::start(
        env,
        node,
        (Layout::K3s, ContainerdVersion::V2),
        NodePlugins::Reference,
    )?;
    let default_network = node.path(&format!("{}/10-primary.conflist", runtime.paths.conf_dir));
    fs::remove_file(&default_network)?;
    let [internal, external] = ["node-ip", "node-external-ip"].map(|flag| k3s.values(flag));
    let names: Vec<_> = internal
        .iter()
        .chain(&external)
        .map(|address| format!("IP:{address}"))
        .chain([format!("DNS:{}", node.name)])
        .collect();
    let (name, subject) = (
        format!("kubelet-{}", node.name),
        format!("/O=system:nodes/CN=system:node:{}", node.name),
    );
    control.pki.sign(
        &name,
        &subject,
        &format!("subjectAltName={}", names.join(",")),
    )?;
    let [certificate, key] = ["crt", "key"].map(|end| control.pki.file(&format!("{name}.{end}")));
    let (cgroup, _) = kubelet::join_at(
        node,
        server,
        control,
        &runtime,
        &internal.join(","),
        &[
            format!("--tls-cert-file={}", certificate.display()),
            format!("--tls-private-key-file={}", key.display()),
        ],
    )?;
    let url = format!("https://{server}:6443");
    let file = control.pki.client_kubeconfig(&url, &name);
    node.write(KUBECONFIG, file)?;
    let flannel = start_flannel(node, control, k3s, server)?;
    let member = Member {
        runtime,
        _cgroup: cgroup,
        flannel,
    };
    member.write_default_network(node)?;
    Ok(member)
}

/// Starts flannel with the configuration and on the interface that K3s was started with.
pub(super) fn start_flannel(
    node: &Node,
    control: &ControlPlane,
    k3s: &Arguments,
    server: &str,
) -> anyhow::Result<Service> {
    let _ = fs::remove_file(node.path(SUBNET));
    let kubeconfig = node.dir.join("flannel.conf");
    control
        .pki
        .kubeconfig(&kubeconfig, &format!("https://{server}:6443"), "admin")?;
    let link = k3s.one("flannel-iface")?;
    let address = addresses_of(node, &link)?.join(",");
    let network = k3s.one("flannel-conf")?;
    ensure!(network == NET_CONF, "flannel gets {network}");
    node.serve("flannel", "flanneld", |command| {
        command
            .env("NODE_NAME", &node.name)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([
                format!("--interface={link}"),
                format!("--address={address}"),
                format!("--environment={SUBNET}"),
            ])
            .arg(format!("--network={network}"))
    })
}

impl Member {
    /// Writes the default network that flannel's CNI plugin makes of flannel's file; returns its MTU.
    pub(super) fn write_default_network(&self, node: &Node) -> anyhow::Result<u64> {
        let settings = sh::until(
            60,
            &format!("flannel has a subnet on {}", node.name),
            || {
                ensure!(node.runs(&self.flannel), "flannel has ended: see its log");
                Ok(fs::read_to_string(node.path(SUBNET))?)
            },
        )?;
        let value = |name: &str| {
            let lines = settings.lines();
            let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            let value = values.next();
            value.with_context(|| format!("{SUBNET} has no {name}"))
        };
        let mtu: u64 = value("FLANNEL_MTU")?.parse()?;
        // Flannel's file has the address of the bridge, which is the first of the subnet.
        let ipv4 = value("FLANNEL_SUBNET")?.replace(".1/", ".0/");
        let (mut ranges, mut routes) = (
            vec![json!([{"subnet": ipv4}])],
            vec![json!({"dst": PODS}), json!({"dst": "0.0.0.0/0"})],
        );
        if let Ok(subnet) = value("FLANNEL_IPV6_SUBNET") {
            let ipv6 = subnet.replace("::1/", "::/");
            ranges.push(json!([{"subnet": ipv6}]));
            routes.extend([json!({"dst": PODS6}), json!({"dst": "::/0"})]);
        }
        let network = json!({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "forceAddress": true,
                "ipMasq": value("FLANNEL_IPMASQ")? == "false", "mtu": mtu,
                "ipam": {"type": "host-local", "ranges": ranges, "routes": routes}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ]});
        let path = format!("{}/10-primary.conflist", self.runtime.paths.conf_dir);
        node.write(&path, network.to_string())?;
        Ok(mtu)
    }
}

/// Returns the addresses of an interface that other nodes reach, IPv4 first.
fn addresses_of(node: &Node, link: &str) -> anyhow::Result<Vec<String>> {
    let text = node.run(&[
        "ip", "-json", "address", "show", "dev", link, "scope", "global",
    ])?;
    let links: serde_json::Value = serde_json::from_str(&text)?;
    let found = links[0]["addr_info"].as_array().into_iter().flatten();
    let addresses = found.filter_map(|one| one["local"].as_str());
    let addresses: Vec<_> = addresses.map(str::to_owned).collect();
    ensure!(!addresses.is_empty(), "{link} has no address");
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_repeated_or_separated_by_commas() {
        let words = [
            "agent",
            "--node-ip=100.64.0.1,fd7a::1",
            "--tls-san",
            "a",
            "--tls-san=b",
        ];
        let arguments = Arguments(words.map(str::to_owned).to_vec());
        assert_eq!(arguments.values("node-ip"), ["100.64.0.1", "fd7a::1"]);
        assert_eq!(arguments.values("tls-san"), ["a", "b"]);
        assert_eq!(arguments.ipv4("node-ip").unwrap(), "100.64.0.1");
        assert!(arguments.one("node").is_err());
    }
}
