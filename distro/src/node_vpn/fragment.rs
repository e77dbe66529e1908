//! The address plan as a file of the distro's `config.yaml.d`, for nodes that start the distro without this program.

use vpn::plan::Plan;

/// Returns the file. Each key has all its values, those that are set elsewhere too, since a key replaces that of earlier files.
pub(crate) fn config(plan: &Plan) -> String {
    let lines = plan.settings.iter().map(|setting| {
        // A text of JSON is one of YAML, and never a number.
        let value = match &setting.values[..] {
            [one] => serde_json::json!(one),
            all => serde_json::json!(all),
        };
        format!("{}: {value}\n", setting.name)
    });
    let head = "# made by `multus-distro vpn plan --config`\n".to_owned();
    lines.fold(head, |text, line| text + &line)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use node::root::Root;
    use vpn::plan::{Host, HostAddress};

    use super::*;
    use crate::{node_vpn::plan_input, settings};

    /// The file with the plan's own settings gives the same plan, and adds nothing more.
    #[test]
    fn file_is_read_back_as_the_plan_that_it_was_made_of() {
        let facts = vpn::Facts {
            interface: "ts7".to_owned(),
            addresses: ["100.64.0.1", "fd7a::1"]
                .map(|text| text.parse::<std::net::IpAddr>().unwrap())
                .into_iter()
                .collect(),
            dns_name: Some("a.tail1234.ts.net".to_owned()),
            mtu: 1280,
            ranges: Vec::new(),
        };
        let host = Host {
            addresses: vec![HostAddress {
                interface: "eth0".to_owned(),
                address: "192.168.1.10".parse().unwrap(),
                length: 24,
            }],
            default_ipv4: Some("eth0".to_owned()),
            default_ipv6: None,
        };
        for (line, own) in [
            ("k3s server", ""),
            (
                "k3s server --cluster-init",
                "cluster-cidr: 10.42.0.0/16\ntls-san: [x, y]\n",
            ),
            (
                "k3s server",
                "disable-cloud-controller: true\nkubelet-arg: v=2\n",
            ),
            ("k3s agent --server https://a:6443", ""),
            ("rke2 server", "cluster-cidr: 10.42.0.0/16\n"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::open(dir.path()).unwrap();
            let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let etc = dir.path().join("etc/rancher").join(&args[0]);
            fs::create_dir_all(etc.join("config.yaml.d")).unwrap();
            fs::write(etc.join("config.yaml"), own).unwrap();
            let plan = || {
                let settings = settings::read(&root, &args, |_| None, None).unwrap();
                let selection = vpn::provider::Selection::default();
                let node =
                    plan_input::node(&settings, &selection, |_| false, host.clone()).unwrap();
                plan_input::plan(&facts, &node, &settings).unwrap()
            };
            let before = plan();
            assert!(!before.args().is_empty());
            let file = config(&before);
            fs::write(etc.join("config.yaml.d/90-vpn.yaml"), &file).unwrap();
            let after = plan();
            assert_eq!(after.args(), [""; 0], "{line} {file}");
            assert_eq!(config(&after), file);
        }
    }
}
