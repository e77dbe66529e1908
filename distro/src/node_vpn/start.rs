//! The start of a distro on a node with a VPN: waits for the VPN, and returns the arguments that put the node on it.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use cmdline::BadUsage;
use node::root::Root;
use vpn::{
    Prefix,
    flannel::net_conf,
    plan::{Plan, plan},
};

use crate::{
    config,
    node_vpn::{
        auth::{self, AuthArgs},
        files::VpnFiles,
        host, plan_input,
        report::{CLUSTER_CIDR, CLUSTER_CIDR_IPV6},
    },
    plan::Distro,
    program, unit,
};

/// The options of `server` and `agent` that concern the VPN.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    auth: AuthArgs,
    /// The networks of the cluster's pods, where an agent's servers have others than the default one
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    vpn_cluster_cidr: Vec<Prefix>,
    /// Seconds to wait for the VPN
    #[arg(long, default_value_t = 120, hide = true)]
    vpn_timeout: u64,
}

/// Waits until the VPN is up; returns further arguments of the distro, or `None` where the node is on no VPN.
pub(crate) fn args(
    root: &Root,
    options: &Options,
    command: &[String],
    distro: Option<Distro>,
    print_note: impl Fn(&str),
) -> anyhow::Result<Option<Vec<String>>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    // The key is not needed here: the settings alone say that the node is on a VPN, and wrong ones are reported at once.
    let Some(taken) =
        auth::take(&options.auth, variable).map_err(|error| BadUsage(format!("{error:#}")))?
    else {
        return Ok(None);
    };
    taken.notes.iter().for_each(|text| print_note(text));
    drop(taken);
    let node = plan_input::read(
        command,
        variable,
        |file: &Path| config::read(root, file),
        |file: &Path| root.exists(file),
        distro,
        host::read()?,
    )
    .map_err(|error| BadUsage(format!("{error:#}")))?;
    let networks = flannel_networks(root, options, command, distro)?;
    let files = VpnFiles::new(root);
    let facts = files.wait(Duration::from_secs(options.vpn_timeout))?;
    let plan = plan(&facts, &node)?;
    plan.notes.iter().for_each(|text| print_note(text));
    if let Some(networks) = networks {
        let program = std::env::current_exe().context("cannot find this program's own path")?;
        let hook = format!("{} vpn hook", unit::plain_path(&program)?);
        let networks = match networks {
            Networks::Of(networks) => networks,
            Networks::Default => vec![default_network(&plan)],
        };
        let conf = net_conf(networks.into_iter().collect(), &hook);
        files.write_net_conf(&conf)?;
    }
    Ok(Some(plan.args()))
}

/// The networks of pods.
#[derive(Debug, PartialEq, Eq)]
enum Networks {
    Of(Vec<Prefix>),
    /// Neither arguments nor configuration have any.
    Default,
}

/// Returns K3s' own default, which has the family of the first `node-ip` (pkg/util/net.go).
fn default_network(plan: &Plan) -> Prefix {
    let node_ip = plan.settings.iter().find(|one| one.name == "node-ip");
    let first = node_ip.and_then(|setting| setting.values.first());
    let is_ipv6 = first.is_some_and(|address| address.contains(':'));
    let default = if is_ipv6 {
        CLUSTER_CIDR_IPV6
    } else {
        CLUSTER_CIDR
    };
    default.parse().expect("a test parses both")
}

/// Returns the networks of pods for flannel's configuration; none where flannel does not run.
fn flannel_networks(
    root: &Root,
    options: &Options,
    command: &[String],
    distro: Option<Distro>,
) -> anyhow::Result<Option<Networks>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let distro = program::distro(command, distro)?;
    let settings = config::read(root, &program::config_file(distro, command, variable))?;
    let setting = |name: &str| program::setting(distro, command, variable, &settings, (name, None));
    if distro == Distro::Rke2 {
        return Ok(None);
    }
    if setting("flannel-backend").as_deref() == Some("none") {
        return Ok(None);
    }
    let networks = match (&options.vpn_cluster_cidr[..], setting("cluster-cidr")) {
        ([], None) => return Ok(Some(Networks::Default)),
        ([], Some(cidr)) => config::split(&cidr)
            .map(|text| {
                text.parse()
                    .map_err(|error| BadUsage(format!("cluster-cidr: {error}")))
            })
            .collect::<Result<Vec<Prefix>, _>>()?,
        (networks, None) => networks.to_vec(),
        (_, Some(_)) => {
            return Err(BadUsage(
                "--vpn-cluster-cidr is for agents, and this server has cluster-cidr: leave it out"
                    .to_owned(),
            )
            .into());
        }
    };
    ensure!(
        !networks.is_empty(),
        BadUsage("cluster-cidr is empty: leave it out".to_owned())
    );
    Ok(Some(Networks::Of(networks)))
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
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            args(&self.root, &line.options, &command, None, |_| {})
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
        assert_eq!(conf["Network"], CLUSTER_CIDR);
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
        assert_eq!(mode.mode() & 0o077 & 0o022, 0);
    }

    #[test]
    fn node_without_settings_of_a_vpn_is_started_at_once() {
        let node = Node::new();
        let line = Line::try_parse_from(["x"]).unwrap();
        let command = ["k3s".to_owned(), "agent".to_owned()];
        assert_eq!(
            args(&node.root, &line.options, &command, None, |_| {}).unwrap(),
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
        let networks = |more: &[&str], line: &str| {
            let auth = Line::try_parse_from(["x"].iter().chain(more)).unwrap();
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = flannel_networks(&node.root, &auth.options, &command, None);
            found.map(|found| {
                found.map(|found| match found {
                    Networks::Of(all) => all.iter().map(ToString::to_string).collect(),
                    Networks::Default => vec!["default".to_owned()],
                })
            })
        };
        let some = |list: &[&str]| {
            Some(
                list.iter()
                    .map(|text| (*text).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(networks(&[], "k3s server").unwrap(), some(&["default"]));
        for (address, expected) in [("10.0.0.1", CLUSTER_CIDR), ("fd11::10", CLUSTER_CIDR_IPV6)] {
            let values = vec![address.to_owned()];
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
            assert_eq!(default_network(&plan).to_string(), expected);
        }
        assert_eq!(
            networks(&[], "k3s server --cluster-cidr 10.9.0.0/16,fd09::/56").unwrap(),
            some(&["10.9.0.0/16", "fd09::/56"])
        );
        assert_eq!(
            networks(&[], "k3s server --flannel-backend=none").unwrap(),
            None
        );
        assert_eq!(networks(&[], "rke2 agent").unwrap(), None);
        assert!(networks(&[], "k3s server --cluster-cidr x").is_err());
        let both = networks(
            &["--vpn-cluster-cidr=10.8.0.0/16"],
            "k3s server --cluster-cidr=10.9.0.0/16",
        );
        assert!(both.unwrap_err().to_string().contains("leave it out"));
    }
}
