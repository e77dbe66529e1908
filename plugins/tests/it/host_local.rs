//! host-local with many processes at once, and with processes that are killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::plugin::{end, fail, start, succeed};

const PLUGIN: &str = "host-local";
const PROCESSES: usize = 64;

/// A network with these ranges in a directory of its own.
fn network(dir: &TempDir, ranges: &Value) -> Value {
    json!({
        "cniVersion": "1.1.0",
        "name": "net",
        "type": "macvlan",
        "ipam": { "type": PLUGIN, "dataDir": dir.path(), "ranges": ranges },
    })
}

fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the names of the files of leases.
fn lease_files(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir.join("net")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock" && !name.starts_with("last_reserved_ip."))
        .collect()
}

#[test]
fn no_address_is_handed_out_twice_to_64_processes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    // Room for all of them, and for none more: 66 hosts less the gateways.
    let ranges = json!([
        [{ "subnet": "10.0.0.0/24", "rangeEnd": "10.0.0.33" },
         { "subnet": "10.0.1.0/24", "rangeStart": "10.0.1.10", "rangeEnd": "10.0.1.41" }],
        [{ "subnet": "fd00::/120" }],
    ]);
    let config = network(&dir, &ranges);
    let children: Vec<_> = (0..PROCESSES)
        .map(|index| start(PLUGIN, "ADD", &format!("pod-{index}"), &config))
        .collect();
    let mut seen = BTreeSet::new();
    for child in children {
        let (output, result) = end(child);
        assert!(output.status.success(), "{result}");
        let addresses = addresses(&result);
        assert_eq!(addresses.len(), 2);
        for address in addresses {
            assert!(seen.insert(address.clone()), "{address} twice");
        }
    }
    assert_eq!(
        fail(PLUGIN, "ADD", "one-more", &config),
        "failed to allocate for range 0: no IP addresses available in range set: \
         10.0.0.1-10.0.0.33,10.0.1.10-10.0.1.41"
    );
    assert_eq!(lease_files(dir.path()).len(), 2 * PROCESSES);
    let children: Vec<_> = (0..PROCESSES)
        .map(|index| start(PLUGIN, "DEL", &format!("pod-{index}"), &config))
        .collect();
    for child in children {
        assert!(end(child).0.status.success());
    }
    assert_eq!(lease_files(dir.path()), BTreeSet::new());
}

#[test]
fn processes_that_are_killed_leave_nothing_that_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let config = network(&dir, &json!([[{ "subnet": "10.0.0.0/27" }]]));
    let fastest = {
        let begin = Instant::now();
        succeed(PLUGIN, "ADD", "first", &config);
        succeed(PLUGIN, "DEL", "first", &config);
        begin.elapsed()
    };
    // The moments of the kills cover the life of a process.
    for index in 0..100u32 {
        let mut child = start(PLUGIN, "ADD", &format!("pod-{index}"), &config);
        let wait = Instant::now() + fastest * (index % 50) / 50;
        while Instant::now() < wait {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        end(child);
        succeed(PLUGIN, "DEL", &format!("pod-{index}"), &config);
        assert_eq!(lease_files(dir.path()), BTreeSet::new());
    }
    for index in 0..29 {
        succeed(PLUGIN, "ADD", &format!("full-{index}"), &config);
    }
}

#[test]
fn lifecycle_keeps_the_files_of_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = network(&dir, &json!([[{ "subnet": "10.0.0.0/29" }]]));
    let result = succeed(PLUGIN, "ADD", "a", &config);
    assert_eq!(
        result["ips"],
        json!([{ "address": "10.0.0.2/29", "gateway": "10.0.0.1" }])
    );
    assert_eq!(
        fail(PLUGIN, "ADD", "a", &config),
        "failed to allocate for range 0: 10.0.0.2 has been allocated to a, duplicate allocation is not allowed"
    );
    assert_eq!(
        fail(PLUGIN, "CHECK", "b", &config),
        "host-local: Failed to find address added by container b"
    );
    succeed(PLUGIN, "CHECK", "a", &config);

    // A failing ADD gives back what it has, and the other addresses stay.
    config["args"] = json!({ "cni": { "ips": ["10.0.0.5", "10.9.9.9"] } });
    assert_eq!(
        fail(PLUGIN, "ADD", "a", &config),
        "failed to allocate all requested IPs: 10.9.9.9"
    );
    config["args"] = json!({ "cni": { "ips": ["10.0.0.1"] } });
    assert_eq!(
        fail(PLUGIN, "ADD", "b", &config),
        "failed to allocate for range 0: requested ip 10.0.0.1 is subnet's gateway"
    );
    config["args"] = json!({ "cni": { "ips": ["10.0.0.2/29"] } });
    assert_eq!(
        fail(PLUGIN, "ADD", "b", &config),
        "failed to allocate for range 0: requested IP address 10.0.0.2 is not available in range set 10.0.0.1-10.0.0.6"
    );
    config["args"] = json!({});
    assert_eq!(
        lease_files(dir.path()),
        BTreeSet::from(["10.0.0.2".to_owned()])
    );

    succeed(PLUGIN, "ADD", "b", &config);
    std::fs::write(dir.path().join("net/10.0.0.3"), "old").unwrap();
    config["cni.dev/valid-attachments"] = json!([{ "containerID": "a", "ifname": "eth0" }, { "containerID": "old", "ifname": "net1" }]);
    succeed(PLUGIN, "GC", "", &config);
    assert_eq!(
        lease_files(dir.path()),
        BTreeSet::from(["10.0.0.2".to_owned(), "10.0.0.3".to_owned()])
    );
    config["cni.dev/valid-attachments"] = json!([{ "containerID": "a" }]);
    fail(PLUGIN, "GC", "", &config);
    assert_eq!(lease_files(dir.path()).len(), 2);
}

#[test]
fn full_directory_is_read_fast_enough() {
    let dir = tempfile::tempdir().unwrap();
    let config = network(&dir, &json!([[{ "subnet": "10.0.0.0/21" }]]));
    std::fs::create_dir(dir.path().join("net")).unwrap();
    for host in 0..1000 {
        let name = format!("net/10.0.{}.{}", host / 250, host % 250 + 2);
        std::fs::write(dir.path().join(name), format!("{host:064}\r\neth0")).unwrap();
    }
    let begin = Instant::now();
    let result = succeed(PLUGIN, "ADD", "a", &config);
    // A hundred times what it takes: the limit is for a scan that grows faster than the directory.
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(addresses(&result), ["10.0.0.252/21"]);
}
