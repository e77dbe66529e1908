//! portmap with programs in the place of iptables, which record how they are run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::plugin::{end, start_with};

/// Does what it is asked, as far as the plugin can tell: all rules of others are there, and so is every chain.
const PROGRAM: &str = "\
#!/bin/sh
echo \"${0##*/} $*\" >> \"$RECORD\"
case $0 in *-restore) cat >> \"$RECORD\" ;; esac
";

/// Runs a verb for a container with 20 forwarded ports; returns what the programs recorded.
fn record(verb: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "iptables",
        "ip6tables",
        "iptables-restore",
        "ip6tables-restore",
    ] {
        let path = dir.path().join(name);
        fs::write(&path, PROGRAM).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let record = dir.path().join("record");
    fs::write(&record, "").unwrap();
    let ports =
        (1..=20).map(|port| json!({"hostPort": port, "containerPort": 80, "protocol": "tcp"}));
    // With `snat` the plugin would change a parameter of the kernel, too.
    let config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "portmap", "snat": false,
        "runtimeConfig": {"portMappings": ports.collect::<Vec<_>>()},
        "prevResult": {
            "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/no/such/netns"}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0}],
        },
    });
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let env = [
        ("PATH", path.as_str()),
        ("RECORD", record.to_str().unwrap()),
    ];
    let (output, document) = end(start_with("portmap", verb, "pod", &config, &env));
    assert!(output.status.success(), "{document}");
    fs::read_to_string(record).unwrap()
}

fn runs(record: &str) -> Vec<&str> {
    record
        .lines()
        .filter(|line| line.starts_with("ip"))
        .collect()
}

#[test]
fn all_ports_are_forwarded_in_one_run() {
    let record = record("ADD");
    assert_eq!(
        runs(&record),
        [
            "iptables -t nat -C PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT --wait",
            "iptables -t nat -C OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT --wait",
            "iptables-restore --noflush --wait",
        ]
    );
    for port in 1..=20 {
        let rule = format!(" -p tcp --dport {port} -j DNAT --to-destination 10.1.2.3:80\n");
        assert!(record.contains(&rule), "{record}");
    }
    let jumps = record.matches("\n-A CNI-HOSTPORT-DNAT ").count();
    assert_eq!(jumps, 2, "{record}");
}

/// A node with many services has tens of thousands of rules.
#[test]
fn tables_are_not_listed_as_a_whole() {
    let record = record("DEL");
    let runs = runs(&record);
    assert!(!runs.is_empty());
    for run in runs {
        let lists_all = run.contains(" -S") && !run.contains(" -S CNI-");
        assert!(!lists_all, "{run}");
    }
}
