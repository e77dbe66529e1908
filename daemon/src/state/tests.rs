//! Tests of state files on a real file system: written, taken over from upstream, damaged and lost.

mod boots;
mod damage;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use cni::config::NetworkConfig;
use cni::env::ContainerId;
use node::root::Root;
use serde_json::{Map, Value, json};

use super::{Delegate, PodRef, Progress, Requested, State, StateError, Store};

const UPSTREAM: &str = include_str!("../../tests/fixtures/state/upstream.json");
const UPSTREAM_4_3_0: &str = include_str!("../../tests/fixtures/state/v4.3.0/c1");

struct Fixture {
    dir: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        Self {
            store: Store::new(root, "/var/lib/cni/multus"),
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("var/lib/cni/multus").join(name)
    }

    fn put(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn load(&self) -> Result<Option<State>, StateError> {
        self.store.load(&id(), &"eth0".parse().unwrap())
    }
}

fn id() -> ContainerId {
    "c1".parse().unwrap()
}

fn delegate(name: &str, ifname: &str, config: &str, progress: Progress) -> Delegate {
    Delegate {
        name: name.to_owned(),
        ifname: ifname.parse().unwrap(),
        config: NetworkConfig::parse(config.as_bytes()).unwrap().into(),
        requested: Requested::default(),
        capability_args: Map::new(),
        args: None,
        progress,
        displaced: Vec::new(),
    }
}

fn state() -> State {
    let mut second = delegate(
        "shop/b",
        "ext0",
        r#"{"name":"b","type":"macvlan"}"#,
        Progress::Planned,
    );
    second.requested = Requested {
        interface: Some("ext0".to_owned()),
        mac: Some("02:aa:00:00:00:05".to_owned()),
        ips: vec!["10.20.0.5/24".to_owned()],
        ..Requested::default()
    };
    second.capability_args.insert(
        "portMappings".to_owned(),
        json!([{"hostPort":80,"containerPort":80}]),
    );
    State {
        container_id: id(),
        ifname: "eth0".parse().unwrap(),
        netns: Some("/var/run/netns/x".to_owned()),
        pod: PodRef {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned(),
            uid: "5b0c".to_owned(),
        },
        delegates: vec![
            delegate(
                "cbr0",
                "eth0",
                r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel"}]}"#,
                Progress::Started,
            ),
            second,
        ],
        status_pending: false,
        failing_since: None,
        netns_process: Some(7),
        rebooted: false,
    }
}

#[test]
fn written_state_is_loaded_until_it_is_removed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.load().unwrap(), None);
    let mut state = state();
    fixture.store.begin(&state).unwrap();
    assert_eq!(fixture.load().unwrap().as_ref(), Some(&state));
    let file = fs::read(fixture.path("c1")).unwrap();
    state.delegates[1].progress = Progress::Started;
    fixture.store.record(&state).unwrap();
    assert_eq!(fixture.load().unwrap().as_ref(), Some(&state));
    assert_eq!(fs::read(fixture.path("c1")).unwrap(), file);
    fixture.store.remove(&id()).unwrap();
    fixture.store.remove(&id()).unwrap();
    assert_eq!(fixture.load().unwrap(), None);
    assert!(!fixture.path(".multus-rs/c1.json").exists());
}

#[test]
fn state_files_are_readable_by_root_alone() {
    let fixture = Fixture::new();
    fixture.store.begin(&state()).unwrap();
    let mode = |name: &str| {
        fs::metadata(fixture.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode("c1"), 0o600);
    assert_eq!(mode(".multus-rs/c1.json"), 0o600);
    assert_eq!(mode(".multus-rs"), 0o700);
    assert_eq!(mode(""), 0o700);
}

#[test]
fn upstreams_file_is_loaded_and_written_back_unchanged() {
    let fixture = Fixture::new();
    fixture.put("c1", UPSTREAM.as_bytes());
    let state = fixture.load().unwrap().unwrap();
    let names: Vec<_> = state
        .delegates
        .iter()
        .map(|d| (d.name.as_str(), d.ifname.as_str(), d.progress))
        .collect();
    assert_eq!(
        names,
        [
            ("cbr0", "eth0", Progress::Unknown),
            ("shop/storage", "stor0", Progress::Unknown),
            ("shop/plain", "net2", Progress::Unknown),
        ]
    );
    assert_eq!(state.delegates[1].requested.ips, ["10.20.0.5/24"]);
    assert_eq!(
        state.delegates[1].capability_args,
        json!({"ips":["10.20.0.5/24"],"mac":"02:aa:00:00:00:05"})
            .as_object()
            .cloned()
            .unwrap()
    );
    fixture.store.begin(&state).unwrap();
    assert_eq!(fs::read_to_string(fixture.path("c1")).unwrap(), UPSTREAM);
}

#[test]
fn file_of_upstream_4_3_0_is_loaded() {
    let fixture = Fixture::new();
    fixture.put("c1", UPSTREAM_4_3_0.as_bytes());
    let state = fixture.load().unwrap().unwrap();
    let config: Value = serde_json::from_slice(state.delegates[0].config.bytes()).unwrap();
    assert_eq!(
        config,
        json!({
            "cniVersion": "1.0.0",
            "name": "cbr0",
            "disableGC": true,
            "plugins": [
                // Its `Bytes` lack the delegate. The large number was rounded before the plugin saw it.
                {"type":"flannel","delegate":{"isDefaultGateway":true,"mtu":9_007_199_254_740_992_u64}},
                {"type":"portmap","capabilities":{"portMappings":true}},
            ],
        })
    );
    let ifnames: Vec<_> = state.delegates.iter().map(|d| d.ifname.as_str()).collect();
    assert_eq!(ifnames, ["eth0", "stor0", "net2"]);
    assert_eq!(state.delegates[1].requested.ips, ["10.20.0.5/24"]);
    assert_eq!(
        state.delegates[1].config.value()["ipam"]["subnet"],
        "10.20.0.0/24"
    );
}

/// The complete list is not compared: later releases do not write it either, and upstream's DEL does not read it.
#[test]
fn upstreams_file_is_written_as_4_3_0_writes_it() {
    let fixture = Fixture::new();
    fixture.put("c1", UPSTREAM_4_3_0.as_bytes());
    let state = fixture.load().unwrap().unwrap();
    fixture.store.begin(&state).unwrap();
    let ours: Vec<Map<String, Value>> =
        serde_json::from_slice(&fs::read(fixture.path("c1")).unwrap()).unwrap();
    let theirs: Vec<Map<String, Value>> = serde_json::from_str(UPSTREAM_4_3_0).unwrap();
    for (index, (ours, mut theirs)) in ours.into_iter().zip(theirs).enumerate() {
        theirs.shift_remove("CNINetworkConfigList").unwrap();
        if index == 0 {
            theirs["Bytes"] = ours["Bytes"].clone();
        }
        if index == 2 {
            // For a list in a definition, upstream writes the name as that of a plugin, too.
            let conf = theirs["Conf"].as_object_mut().unwrap();
            assert_eq!(conf.shift_remove("name"), Some(json!("plain")));
        }
        // Compared as text, since the order counts, too.
        assert_eq!(json!(ours).to_string(), json!(theirs).to_string());
    }
}

#[test]
fn sidecar_that_does_not_match_is_ignored() {
    let fixture = Fixture::new();
    fixture.store.begin(&state()).unwrap();
    let own = fs::read_to_string(fixture.path(".multus-rs/c1.json")).unwrap();
    let file = fs::read(fixture.path("c1")).unwrap();
    let check_ignored = |fixture: &Fixture| {
        let state = fixture.load().unwrap().unwrap();
        assert_eq!(state.pod, PodRef::default());
        assert!(
            state
                .delegates
                .iter()
                .all(|d| d.progress == Progress::Unknown)
        );
        assert_eq!(state.delegates[1].ifname.as_str(), "ext0");
    };
    for sidecar in [
        own.replace("\"containerID\":\"c1\"", "\"containerID\":\"c2\""),
        own.replace("\"schema\":1", "\"schema\":2"),
        own[..own.len() / 2].to_owned(),
        String::new(),
    ] {
        assert_ne!(sidecar, own);
        fixture.put(".multus-rs/c1.json", sidecar.as_bytes());
        check_ignored(&fixture);
    }
    fs::remove_file(fixture.path(".multus-rs/c1.json")).unwrap();
    check_ignored(&fixture);

    // Upstream rewrote its file: one blank more is enough for a mismatch.
    fixture.put(".multus-rs/c1.json", own.as_bytes());
    fixture.put("c1", &[file.as_slice(), b" "].concat());
    check_ignored(&fixture);

    // Upstream detached the container and removed its own file.
    fs::remove_file(fixture.path("c1")).unwrap();
    assert_eq!(fixture.load().unwrap(), None);
}

#[test]
fn sidecar_with_unknown_fields_is_loaded() {
    let fixture = Fixture::new();
    let state = state();
    fixture.store.begin(&state).unwrap();
    let own = fs::read_to_string(fixture.path(".multus-rs/c1.json")).unwrap();
    let mut newer = own.clone();
    for (old, new) in [
        ("\"schema\":1", "\"schema\":1,\"new\":1"),
        ("\"ifname\":\"ext0\"", "\"ifname\":\"ext0\",\"new\":[]"),
        ("\"uid\":", "\"new\":{},\"uid\":"),
        ("\"mac\":", "\"new\":null,\"mac\":"),
    ] {
        assert!(newer.contains(old), "{old}");
        newer = newer.replace(old, new);
    }
    fixture.put(".multus-rs/c1.json", newer.as_bytes());
    assert_eq!(fixture.load().unwrap(), Some(state));
}

/// Upstream decodes the complete file into its own types.
#[test]
fn values_of_unexpected_types_are_not_written_for_upstream() {
    let fixture = Fixture::new();
    let mut state = state();
    state.delegates = vec![
        delegate(
            "odd",
            "eth0",
            r#"{"name":"odd","type":"x","ipam":{"type":7},"dns":{"nameservers":"10.0.0.1"},"disableGC":true}"#,
            Progress::Started,
        ),
        delegate(
            "list",
            "net1",
            r#"{"name":"list","disableGC":"true","plugins":[
                {"type":"x","name":7,"cniVersion":{},"ipam":"dhcp","dns":{"domain":"a","search":["b"],"other":1}}]}"#,
            Progress::Started,
        ),
    ];
    fixture.store.begin(&state).unwrap();
    let file: Value = serde_json::from_slice(&fs::read(fixture.path("c1")).unwrap()).unwrap();
    assert_eq!(
        file[0]["Conf"],
        json!({"ipam": {}, "name": "odd", "type": "x"})
    );
    assert_eq!(
        file[1]["ConfList"],
        json!({"name": "list", "disableGC": true, "plugins": [
            {"dns": {"domain": "a", "search": ["b"], "other": 1}, "ipam": {}, "type": "x"}]})
    );
    assert_eq!(fixture.load().unwrap(), Some(state), "nothing is lost");
}

#[test]
fn empty_list_is_a_container_without_attachments() {
    let fixture = Fixture::new();
    for content in ["[]", "null"] {
        fixture.put("c1", content.as_bytes());
        assert_eq!(fixture.load().unwrap().unwrap().delegates, []);
    }
}

#[test]
fn every_container_with_a_file_is_known() {
    let fixture = Fixture::new();
    assert!(fixture.store.known().unwrap().is_empty());
    fixture.store.begin(&state()).unwrap();
    fixture.put("results/cbr0-c0-eth0", b"{}");
    fixture.put(".multus-rs/c2.json", b"{}");
    fixture.put(".multus-rs/pending/1-c0", b"{}");
    fixture.put(".multus-rs-c3.tmp", b"[");
    fixture.put(".multus-rs/.multus-rs-c4.json.tmp", b"{");
    drop(fixture.store.lock(&"c5".parse().unwrap()).unwrap());
    let known = fixture.store.known().unwrap();
    let known: Vec<_> = known.iter().map(ContainerId::as_str).collect();
    assert_eq!(known, ["c1", "c2", "c3", "c4"]);
    for id in ["c3", "c4"] {
        fixture.store.remove(&id.parse().unwrap()).unwrap();
    }
    let known = fixture.store.known().unwrap();
    let known: Vec<_> = known.iter().map(ContainerId::as_str).collect();
    assert_eq!(known, ["c1", "c2"]);
}

#[test]
fn remove_locks_removes_the_lock_file_alone() {
    let fixture = Fixture::new();
    let (root, dir) = (
        Root::open(fixture.dir.path()).unwrap(),
        std::path::Path::new("/var/lib/cni/multus"),
    );
    assert!(!super::remove_locks(&root, dir).unwrap());
    fixture.store.begin(&state()).unwrap();
    drop(fixture.store.lock(&"c1".parse().unwrap()).unwrap());
    assert!(super::remove_locks(&root, dir).unwrap());
    assert!(!fixture.path(".multus-rs/container.locks").exists());
    assert!(fixture.path(".multus-rs/c1.json").exists());
}

/// Daemons of other releases read these keys, whatever the fields are called here.
#[test]
fn keys_of_the_sidecar_are_stable() {
    let fixture = Fixture::new();
    let mut state = state();
    state.status_pending = true;
    state.failing_since = Some(7);
    let requested = &mut state.delegates[1].requested;
    requested.annotation_keys = Some(Map::from_iter([("mac".to_owned(), json!("02:00"))]));
    requested.plugged = true;
    fixture.store.begin(&state).unwrap();
    let own = fs::read(fixture.path(".multus-rs/c1.json")).unwrap();
    let own: Value = serde_json::from_slice(&own).unwrap();
    assert_eq!(own["untold"], true);
    assert_eq!(own["failingSince"], 7);
    let requested = &own["delegates"][1]["requested"];
    assert_eq!(requested["wishes"], json!({"mac": "02:00"}));
    assert_eq!(requested["plugged"], true);
}

#[test]
fn record_that_could_not_be_read_again_is_refused() {
    let fixture = Fixture::new();
    let config = |bytes| json!({"type": "t", "name": "n", "note": "x".repeat(bytes)}).to_string();
    let state = |bytes| State {
        delegates: vec![delegate("n", "net1", &config(bytes), Progress::Started)],
        ..State::unknown(&id(), &"eth0".parse().unwrap())
    };
    let (large, too_large) = (state(8 << 20), state(13 << 20));
    for written in [
        fixture.store.begin(&too_large).map(drop),
        fixture.store.record(&too_large),
    ] {
        let error = written.unwrap_err();
        assert!(matches!(error, StateError::TooLarge { .. }), "{error}");
        assert!(fixture.store.known().unwrap().is_empty());
    }
    fixture.store.begin(&large).unwrap();
    assert_eq!(fixture.load().unwrap(), Some(large.clone()));
    fixture.store.record(&too_large).unwrap_err();
    assert_eq!(fixture.load().unwrap(), Some(large));
}
