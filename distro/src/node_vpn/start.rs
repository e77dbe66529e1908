//! The start of a distro on a node with a VPN: waits for the VPN, and returns the arguments that put the node on it.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use cmdline::BadUsage;
use node::root::Root;
use vpn::{
    Prefix,
    flannel::net_conf,
    plan::Plan,
    provider::{Pods, Selection},
};

use crate::{
    node_vpn::{
        auth::{self, AuthArgs},
        curl::curl,
        files::VpnFiles,
        host, own_subnet, plan_input, pod_networks,
    },
    plan::Distro,
    settings::{self, Role, Settings, variable},
    unit,
};

/// The options of `run` that concern the VPN.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    auth: AuthArgs,
    /// The networks of the cluster's pods, where an agent cannot ask its server for them
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    vpn_cluster_cidr: Vec<Prefix>,
    /// Seconds to wait for the VPN
    #[arg(long, default_value_t = 120, hide = true)]
    vpn_timeout: u64,
}

/// Returns whether this program puts the node on a VPN. K3s' own variables alone do not say so: with them K3s brings its VPN up itself.
pub(crate) fn is_wanted(root: &Root, options: &Options) -> bool {
    options.auth.are_given(variable)
        || VpnFiles::new(root).is_used()
            && auth::VARIABLES.iter().any(|name| variable(name).is_some())
}

/// Waits until the VPN is up; returns further arguments of the distro, or `None` where this program puts the node on no VPN.
pub(crate) fn args(
    root: &Root,
    options: &Options,
    settings: &Settings,
    print_note: impl Fn(&str),
) -> anyhow::Result<Option<Vec<String>>> {
    if !is_wanted(root, options) {
        if let Some(name) = auth::VARIABLES.iter().find(|name| variable(name).is_some()) {
            print_note(&format!(
                "{name} is left to {}: `multus-distro install --vpn-auth-file FILE` puts the node on the VPN by this program",
                settings.distro.as_str()
            ));
        }
        return Ok(None);
    }
    // The key is not needed here: the settings alone say that the node is on a VPN, and wrong ones are reported at once.
    let Some(taken) =
        auth::take(&options.auth, variable).map_err(|error| BadUsage(format!("{error:#}")))?
    else {
        return Ok(None);
    };
    taken.notes.iter().for_each(|text| print_note(text));
    let selection = taken.auth.selection.clone();
    drop(taken);
    let exists = |file: &Path| root.exists(file);
    let node = plan_input::node(settings, &selection, exists, host::read()?)
        .map_err(|error| BadUsage(format!("{error:#}")))?;
    let networks = flannel_networks(&options.vpn_cluster_cidr, &selection, settings)?;
    let files = VpnFiles::new(root);
    let facts = files.wait(&selection, Duration::from_secs(options.vpn_timeout))?;
    let plan = plan_input::plan(&facts, &node, settings)?;
    plan.notes.iter().for_each(|text| print_note(text));
    if let Some(mut networks) = networks {
        if networks.is_empty() && settings.role == Some(Role::Agent) {
            networks = networks_of_server(&files, settings, print_note)?;
        }
        files.write_net_conf(&flannel_conf(networks, &plan, &selection, settings)?)?;
    }
    Ok(Some(plan.args()))
}

/// Fails where [`args`] would with these settings, as far as can be said while the VPN is down.
pub(crate) fn check(root: &Root, selection: &Selection, settings: &Settings) -> anyhow::Result<()> {
    let exists = |file: &Path| root.exists(file);
    let node = plan_input::node(settings, selection, exists, host::read()?)?;
    flannel_networks(&[], selection, settings)?;
    if let Ok(facts) = VpnFiles::new(root).wait(selection, Duration::ZERO) {
        plan_input::plan(&facts, &node, settings)?;
    }
    Ok(())
}

/// Asks the server for the networks of pods; without an answer they are those of the agent's last start, which may be none.
fn networks_of_server(
    files: &VpnFiles<'_>,
    settings: &Settings,
    print_note: impl Fn(&str),
) -> anyhow::Result<Vec<Prefix>> {
    match pod_networks::ask(settings, &files.run_dir(), curl) {
        Ok(networks) => Ok(networks),
        Err(error) => {
            print_note(&format!(
                "the server names no networks of pods: {error:#}; those of the last start count, else the default ones, and --vpn-cluster-cidr names others"
            ));
            files.networks()
        }
    }
}

/// Returns the networks of pods that options or settings name, which may be none; `None` where flannel does not run, or has no
/// configuration of this program's.
pub(crate) fn flannel_networks(
    options: &[Prefix],
    selection: &Selection,
    settings: &Settings,
) -> anyhow::Result<Option<Vec<Prefix>>> {
    if settings.distro == Distro::Rke2
        || settings.flannel_backend.as_deref() == Some("none")
        || selection.pods == Pods::Vxlan
    {
        return Ok(None);
    }
    if settings.cluster_cidr.is_empty() {
        return Ok(Some(options.to_vec()));
    }
    ensure!(
        options.is_empty(),
        BadUsage(
            "--vpn-cluster-cidr is for agents, and this server has cluster-cidr: leave it out"
                .to_owned()
        )
    );
    Ok(Some(prefixes("cluster-cidr", &settings.cluster_cidr)?))
}

/// Returns flannel's configuration, whose hook is this program. Without networks it has K3s' default one.
pub(crate) fn flannel_conf(
    mut networks: Vec<Prefix>,
    plan: &Plan,
    selection: &Selection,
    settings: &Settings,
) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let hook = format!("{} vpn hook", unit::plain_path(&program)?);
    if networks.is_empty() {
        let node_ip = plan.settings.iter().find(|one| one.name == "node-ip");
        let first = node_ip.and_then(|setting| setting.values.first()?.parse().ok());
        networks = prefixes(
            "cluster-cidr",
            &settings::pod_networks(&settings.cluster_cidr, first),
        )?;
    }
    let kubeconfig = settings.data_dir.join(own_subnet::KUBECONFIG);
    Ok(net_conf(
        networks.into_iter().collect(),
        &hook,
        selection.pods,
        unit::plain_path(&kubeconfig)?,
    ))
}

/// Returns the networks that a setting of the cluster names.
pub(crate) fn prefixes(setting: &str, texts: &[String]) -> Result<Vec<Prefix>, BadUsage> {
    let parse = |text: &String| {
        text.parse()
            .map_err(|error| BadUsage(format!("{setting}: {error}")))
    };
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, thread};

    use clap::Parser as _;
    use vpn::{
        Facts,
        plan::Setting,
        state::{RUN_DIR, STATE, State},
    };

    use super::*;
    use crate::settings;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// A node whose VPN is its loopback interface.
    struct Node {
        dir: tempfile::TempDir,
        root: Root,
    }

    impl Node {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::open(dir.path()).unwrap();
            let file = dir.path().join("auth");
            fs::write(&file, "name=tailscale").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            Self { dir, root }
        }

        fn state(&self, state: &State) {
            let dir = self.dir.path().join(RUN_DIR.trim_start_matches('/'));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(STATE), serde_json::to_vec(state).unwrap()).unwrap();
        }

        fn is_up_on(&self, interface: &str) {
            self.state(&State::running(&Facts {
                interface: interface.to_owned(),
                addresses: [std::net::IpAddr::from([127, 0, 0, 1])]
                    .into_iter()
                    .collect(),
                dns_name: None,
                mtu: 1280,
                ranges: Vec::new(),
            }));
        }

        fn args(&self, more: &[&str], command: &str) -> anyhow::Result<Option<Vec<String>>> {
            self.args_within("--vpn-timeout=0", more, command)
        }

        fn args_within(
            &self,
            timeout: &str,
            more: &[&str],
            command: &str,
        ) -> anyhow::Result<Option<Vec<String>>> {
            let file = self.dir.path().join("auth");
            let auth = ["x", timeout, "--vpn-auth-file", file.to_str().unwrap()];
            let line = Line::try_parse_from(auth.iter().chain(more)).unwrap();
            let settings = self.settings(command);
            args(&self.root, &line.options, &settings, |_| {})
        }

        fn settings(&self, command: &str) -> Settings {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            // Variables that K3s does not read.
            let variables = |name: &str| {
                let unread = ["K3S_FLANNEL_BACKEND", "K3S_CLUSTER_CIDR", "K3S_NODE_IP"];
                unread.contains(&name).then(|| "none".to_owned())
            };
            settings::read(&self.root, &command, variables, None).unwrap()
        }

        fn error(&self, more: &[&str], command: &str) -> String {
            format!("{:#}", self.args(more, command).unwrap_err())
        }

        fn net_conf(&self) -> serde_json::Value {
            let text = fs::read(self.dir.path().join("var/lib/multus-vpn/net-conf.json")).unwrap();
            serde_json::from_slice(&text).unwrap()
        }
    }

    const AGENT: &str = "k3s agent --server https://127.0.0.1:6443";

    #[test]
    fn agent_gets_the_addresses_of_the_vpn_and_the_configuration_of_flannel() {
        let node = Node::new();
        node.is_up_on("lo");
        assert_eq!(
            node.args(&[], AGENT).unwrap().unwrap(),
            [
                "--node-ip=127.0.0.1",
                "--flannel-iface=lo",
                "--flannel-conf=/var/lib/multus-vpn/net-conf.json"
            ]
        );
        let conf = node.net_conf();
        assert_eq!(conf["Network"], "10.42.0.0/16");
        let command = conf["Backend"]["PostStartupCommand"].as_str().unwrap();
        assert!(
            command.starts_with('/') && command.ends_with(" vpn hook"),
            "{command}"
        );
        let other = ["--vpn-cluster-cidr", "10.9.0.0/16,fd09::/56"];
        node.args(&other, AGENT).unwrap();
        let conf = node.net_conf();
        assert_eq!(
            (&conf["Network"], &conf["IPv6Network"]),
            (&"10.9.0.0/16".into(), &"fd09::/56".into())
        );
        let mode = fs::metadata(node.dir.path().join("run/multus-vpn"))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o700);
    }

    #[test]
    fn node_without_settings_of_a_vpn_is_started_at_once() {
        let node = Node::new();
        let line = Line::try_parse_from(["x"]).unwrap();
        let settings = node.settings("k3s agent");
        assert_eq!(
            args(&node.root, &line.options, &settings, |_| {}).unwrap(),
            None
        );
    }

    #[test]
    fn distro_that_waits_in_vain_says_what_is_missing() {
        let node = Node::new();
        let missing = node.error(&[], AGENT);
        assert!(
            missing.contains("multus-vpn.service does not run: systemctl start"),
            "{missing}"
        );
        node.state(&State::missing("invalid authkey: correct the key"));
        let refused = node.error(&[], AGENT);
        let expected = "the VPN is not up after 0 s, and the distro needs its addresses: invalid authkey: correct the key; see journalctl -u multus-vpn.service";
        assert_eq!(refused, expected);
        // A state of before the interface was renamed.
        node.is_up_on("ts9");
        assert!(
            node.error(&[], AGENT)
                .contains("no interface has its addresses any more")
        );
    }

    #[test]
    fn distro_that_waits_gets_the_addresses_when_the_vpn_is_up() {
        let node = Node::new();
        let run_dir = node.dir.path().join(RUN_DIR.trim_start_matches('/'));
        let args = thread::scope(|scope| {
            scope.spawn(|| {
                // The distro makes the directory when it begins to wait.
                while !run_dir.exists() {
                    thread::yield_now();
                }
                let files = VpnFiles::new(&node.root);
                files.write_state(&State::missing("starting")).unwrap();
                let facts = Facts {
                    interface: "lo".to_owned(),
                    addresses: [std::net::IpAddr::from([127, 0, 0, 1])]
                        .into_iter()
                        .collect(),
                    dns_name: None,
                    mtu: 1280,
                    ranges: Vec::new(),
                };
                files.write_state(&State::running(&facts)).unwrap();
            });
            node.args_within("--vpn-timeout=60", &[], AGENT)
        });
        assert_eq!(args.unwrap().unwrap()[0], "--node-ip=127.0.0.1");
    }

    #[test]
    fn networks_of_pods_are_those_of_the_server() {
        let node = Node::new();
        let file = node.dir.path().join("etc/rancher/k3s/config.yaml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let networks = |options: &[Prefix], line: &str| {
            let settings = node.settings(line);
            let found = flannel_networks(options, &Selection::default(), &settings)?;
            let conf = |first: &str, networks| {
                let values = vec![first.to_owned()];
                let setting = Setting {
                    name: "node-ip",
                    added: values.clone(),
                    values,
                    reason: "",
                };
                let plan = Plan {
                    settings: vec![setting],
                    notes: Vec::new(),
                };
                let text = flannel_conf(networks, &plan, &Selection::default(), &settings).unwrap();
                let conf: serde_json::Value = serde_json::from_str(&text).unwrap();
                ["Network", "IPv6Network"].map(|key| conf[key].as_str().unwrap().to_owned())
            };
            let default_ipv4 = |networks: Vec<Prefix>| {
                let [ipv4, ipv6] = conf("10.0.0.1", networks.clone());
                let [other, _] = conf("fd11::10", networks);
                // Only the default follows the node's first address.
                format!("{ipv4} {ipv6} {}", ipv4 == other)
            };
            anyhow::Ok((
                found.clone().map(default_ipv4),
                found.map(|found| conf("fd11::10", found)),
            ))
        };
        let check = |line: &str, text: &str, expected: Option<&str>| {
            fs::write(&file, text).unwrap();
            let (found, _) = networks(&[], line).unwrap();
            assert_eq!(found.as_deref(), expected, "{line} {text}");
        };
        let one = Some("10.99.0.0/16 ::/0 true");
        let both = Some("10.99.0.0/16 fd99::/56 true");
        for line in [
            "k3s server --cluster-cidr 10.99.0.0/16",
            "k3s server -cluster-cidr=10.99.0.0/16",
            "k3s --debug server --cluster-cidr=10.99.0.0/16",
        ] {
            check(line, "", one);
        }
        for line in [
            "k3s server --cluster-cidr 10.99.0.0/16,fd99::/56",
            "k3s server --cluster-cidr 10.99.0.0/16 --cluster-cidr=fd99::/56",
        ] {
            check(line, "", both);
        }
        check("k3s server", "cluster-cidr: 10.99.0.0/16", one);
        check(
            "k3s server",
            "cluster-cidr: [10.99.0.0/16, 'fd99::/56']",
            both,
        );
        check("k3s server", "", Some("10.42.0.0/16 ::/0 false"));
        let (_, ipv6) = networks(&[], "k3s server").unwrap();
        assert_eq!(ipv6.unwrap(), ["0.0.0.0/0", "fd00:42::/56"]);
        // Variables of the environment that K3s does not read change nothing.
        check("k3s server --flannel-backend=none", "", None);
        check("rke2 agent", "", None);
        assert!(networks(&[], "k3s server --cluster-cidr x").is_err());
        let option = ["10.8.0.0/16".parse().unwrap()];
        let agent = networks(&option, "k3s agent").unwrap();
        assert_eq!(agent.0.as_deref(), Some("10.8.0.0/16 ::/0 true"));
        let both = networks(&option, "k3s server --cluster-cidr=10.9.0.0/16");
        assert!(both.unwrap_err().to_string().contains("leave it out"));
    }
}
