//! The cache on a real file system.

use std::os::unix::fs::PermissionsExt;
use std::{fs, path::PathBuf};

use serde_json::json;

use super::*;

fn entry() -> Entry {
    Entry {
        kind: KIND.to_owned(),
        container_id: "0f1e".to_owned(),
        config: br#"{"name":"n"}"#.to_vec(),
        if_name: "net1".to_owned(),
        network_name: "n".to_owned(),
        netns: "/run/netns/a".to_owned(),
        cni_args: vec![("K".to_owned(), "v".to_owned())],
        capability_args: json!({"mac": "02::"}).as_object().unwrap().clone(),
        result: json!({"cniVersion": "1.0.0", "dns": {}})
            .as_object()
            .unwrap()
            .clone(),
        incomplete: false,
    }
}

fn names() -> (ContainerId, IfName) {
    (
        ContainerId::parse("0f1e").unwrap(),
        IfName::parse("net1").unwrap(),
    )
}

#[test]
fn file_equals_that_of_the_reference_library() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("multus/results");
    store(&dir, &entry()).unwrap();
    let file = dir.join("n-0f1e-net1");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        r#"{"kind":"cniCacheV1","containerId":"0f1e","config":"eyJuYW1lIjoibiJ9","ifName":"net1","networkName":"n","netns":"/run/netns/a","cniArgs":[["K","v"]],"capabilityArgs":{"mac":"02::"},"result":{"cniVersion":"1.0.0","dns":{}}}"#
    );
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn entry_is_stored_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (container, ifname) = names();
    assert_eq!(load(dir.path(), "n", &container, &ifname).unwrap(), None);
    store(dir.path(), &entry()).unwrap();
    store(dir.path(), &entry()).unwrap();
    assert_eq!(
        load(dir.path(), "n", &container, &ifname).unwrap(),
        Some(entry())
    );
    assert_eq!(list(dir.path()).unwrap(), [entry()]);
    remove(dir.path(), "n", &container, &ifname).unwrap();
    remove(dir.path(), "n", &container, &ifname).unwrap();
    assert_eq!(list(dir.path()).unwrap(), []);
    assert_eq!(list(&dir.path().join("absent")).unwrap(), []);
}

#[test]
fn entry_written_by_go_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (container, ifname) = names();
    let text = r#"{"kind":"cniCacheV1","containerId":"0f1e","config":"e30=","ifName":"net1","networkName":"n","cniArgs":null,"result":{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/8"}]}}"#;
    fs::write(dir.path().join("n-0f1e-net1"), text).unwrap();
    let entry = load(dir.path(), "n", &container, &ifname).unwrap().unwrap();
    assert_eq!(
        entry.parse_result(Version::LATEST).unwrap().ips[0].address,
        "10.0.0.2/8"
    );
}

#[test]
fn damaged_entry_is_an_error_and_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    let (container, ifname) = names();
    for text in [
        "",
        "{\"kind\":\"cniCa",
        "{}",
        r#"{"kind":"other","containerId":"a","ifName":"b","networkName":"c"}"#,
    ] {
        fs::write(dir.path().join("n-0f1e-net1"), text).unwrap();
        let error = load(dir.path(), "n", &container, &ifname).unwrap_err();
        assert!(
            matches!(error, CacheError::Damaged { .. }),
            "{text:?}: {error}"
        );
        assert_eq!(list(dir.path()).unwrap(), []);
    }
}

#[test]
fn names_cannot_leave_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (container, ifname) = names();
    assert!(matches!(
        path(dir.path(), "../n", &container, &ifname),
        Err(CacheError::Name(_))
    ));
    let evil = Entry {
        container_id: "../0f1e".to_owned(),
        ..entry()
    };
    assert!(matches!(store(dir.path(), &evil), Err(CacheError::Name(_))));
}

#[test]
fn entries_of_a_container_are_in_the_order_written() {
    let dir = tempfile::tempdir().unwrap();
    let make = |container: &str, network: &str, ifname: &str| {
        let entry = Entry {
            container_id: container.to_owned(),
            network_name: network.to_owned(),
            if_name: ifname.to_owned(),
            ..entry()
        };
        store(dir.path(), &entry).unwrap();
        dir.path().join(format!("{network}-{container}-{ifname}"))
    };
    let first = make("0f1e", "zebra", "eth0");
    make("0f1e", "ape", "net-1");
    make("0f1e-x", "n", "net1");
    make("a", "n-0f1e", "net1");
    make("b", "n-0f1e-a-very-long-name", "net1");
    fs::File::open(first)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let (container, _) = names();
    let found = container_entries(dir.path(), &container).unwrap();
    let found: Vec<_> = found.iter().map(|entry| entry.if_name.as_str()).collect();
    assert_eq!(found, ["eth0", "net-1"]);
    let other = ContainerId::parse("ape").unwrap();
    assert_eq!(container_entries(dir.path(), &other).unwrap(), []);
}

#[test]
fn entries_keep_their_order_when_the_clock_jumps_back() {
    let start = SystemTime::now();
    let at = |seconds| start + std::time::Duration::from_secs(seconds);
    let mut times = vec![start];
    for now in [at(7200), at(60), at(61), at(7300)] {
        times.push(next_time(times[times.len() - 1], now));
    }
    assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
    assert_eq!((times[1], times[4]), (at(7200), at(7300)));
}

#[test]
fn temporary_file_of_a_killed_process_is_no_entry_and_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (container, ifname) = names();
    store(dir.path(), &entry()).unwrap();
    let complete = fs::read(dir.path().join("n-0f1e-net1")).unwrap();
    let leave = |names: &[&str]| -> Vec<PathBuf> {
        let paths: Vec<_> = names.iter().map(|name| dir.path().join(name)).collect();
        for path in &paths {
            fs::write(path, &complete).unwrap();
        }
        paths
    };
    let left = leave(&[".n-0f1e-net1.tmp"]);
    assert_eq!(list(dir.path()).unwrap().len(), 1);
    assert_eq!(container_entries(dir.path(), &container).unwrap().len(), 1);
    store(dir.path(), &entry()).unwrap();
    assert!(!left[0].exists(), "store replaces it");
    let left = leave(&[".n-0f1e-net1.tmp"]);
    remove(dir.path(), "n", &container, &ifname).unwrap();
    assert!(!left[0].exists());
    let left = leave(&[".n-0f1e-net1.tmp", ".n-other-net1.tmp", "n-0f1e-net1"]);
    remove_temporary(dir.path(), &container).unwrap();
    let existing: Vec<_> = left.iter().map(|path| path.exists()).collect();
    assert_eq!(existing, [false, true, true]);
}
