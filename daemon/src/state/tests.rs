//! State files on a real file system: written, taken over from upstream, damaged, lost.

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

struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

impl Place {
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
        config: NetworkConfig::parse(config.as_bytes()).unwrap(),
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
        untold: false,
        failing_since: None,
        rebooted: false,
    }
}

#[test]
fn what_is_written_is_read() {
    let place = Place::new();
    assert_eq!(place.load().unwrap(), None);
    let mut state = state();
    place.store.begin(&state).unwrap();
    assert_eq!(place.load().unwrap().as_ref(), Some(&state));
    let file = fs::read(place.path("c1")).unwrap();
    state.delegates[1].progress = Progress::Started;
    place.store.record(&state).unwrap();
    assert_eq!(place.load().unwrap().as_ref(), Some(&state));
    assert_eq!(fs::read(place.path("c1")).unwrap(), file);
    place.store.remove(&id()).unwrap();
    place.store.remove(&id()).unwrap();
    assert_eq!(place.load().unwrap(), None);
    assert!(!place.path(".multus-rs/c1.json").exists());
}

#[test]
fn only_root_may_read_it() {
    let place = Place::new();
    place.store.begin(&state()).unwrap();
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("c1"), 0o600);
    assert_eq!(mode(".multus-rs/c1.json"), 0o600);
    assert_eq!(mode(".multus-rs"), 0o700);
    assert_eq!(mode(""), 0o700);
}

#[test]
fn upstream_s_file_is_read_and_written_back() {
    let place = Place::new();
    place.put("c1", UPSTREAM.as_bytes());
    let state = place.load().unwrap().unwrap();
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
    place.store.begin(&state).unwrap();
    assert_eq!(fs::read_to_string(place.path("c1")).unwrap(), UPSTREAM);
}

#[test]
fn what_4_3_0_wrote_is_read() {
    let place = Place::new();
    place.put("c1", UPSTREAM_4_3_0.as_bytes());
    let state = place.load().unwrap().unwrap();
    let config: Value = serde_json::from_slice(state.delegates[0].config.bytes()).unwrap();
    assert_eq!(
        config,
        json!({
            "cniVersion": "1.0.0",
            "name": "cbr0",
            "disableGC": true,
            "plugins": [
                // Its `Bytes` have lost the delegate; the large number was lost before its plugin saw it.
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

/// But for the list that is complete, which later releases do not write either, and which its DEL does not read.
#[test]
fn what_is_written_is_what_4_3_0_writes() {
    let place = Place::new();
    place.put("c1", UPSTREAM_4_3_0.as_bytes());
    let state = place.load().unwrap().unwrap();
    place.store.begin(&state).unwrap();
    let ours: Vec<Map<String, Value>> =
        serde_json::from_slice(&fs::read(place.path("c1")).unwrap()).unwrap();
    let theirs: Vec<Map<String, Value>> = serde_json::from_str(UPSTREAM_4_3_0).unwrap();
    for (index, (ours, mut theirs)) in ours.into_iter().zip(theirs).enumerate() {
        theirs.shift_remove("CNINetworkConfigList").unwrap();
        if index == 0 {
            theirs["Bytes"] = ours["Bytes"].clone();
        }
        if index == 2 {
            // Of a list in a definition, the name as if it were a plugin.
            let conf = theirs["Conf"].as_object_mut().unwrap();
            assert_eq!(conf.shift_remove("name"), Some(json!("plain")));
        }
        // As text: the order counts, too.
        assert_eq!(json!(ours).to_string(), json!(theirs).to_string());
    }
}

#[test]
fn a_sidecar_that_does_not_belong_counts_for_nothing() {
    let place = Place::new();
    place.store.begin(&state()).unwrap();
    let own = fs::read_to_string(place.path(".multus-rs/c1.json")).unwrap();
    let file = fs::read(place.path("c1")).unwrap();
    let alone = |place: &Place| {
        let state = place.load().unwrap().unwrap();
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
        place.put(".multus-rs/c1.json", sidecar.as_bytes());
        alone(&place);
    }
    fs::remove_file(place.path(".multus-rs/c1.json")).unwrap();
    alone(&place);

    // Upstream rewrote its file: one blank is enough to part the two.
    place.put(".multus-rs/c1.json", own.as_bytes());
    place.put("c1", &[file.as_slice(), b" "].concat());
    alone(&place);

    // Upstream detached the container: what the sidecar says is over.
    fs::remove_file(place.path("c1")).unwrap();
    assert_eq!(place.load().unwrap(), None);
}

#[test]
fn a_newer_sidecar_is_read_after_a_roll_back() {
    let place = Place::new();
    let state = state();
    place.store.begin(&state).unwrap();
    let own = fs::read_to_string(place.path(".multus-rs/c1.json")).unwrap();
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
    place.put(".multus-rs/c1.json", newer.as_bytes());
    assert_eq!(place.load().unwrap(), Some(state));
}

/// Upstream decodes the whole file into types of its own.
#[test]
fn only_what_fits_is_written_for_upstream() {
    let place = Place::new();
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
    place.store.begin(&state).unwrap();
    let file: Value = serde_json::from_slice(&fs::read(place.path("c1")).unwrap()).unwrap();
    assert_eq!(
        file[0]["Conf"],
        json!({"ipam": {}, "name": "odd", "type": "x"})
    );
    assert_eq!(
        file[1]["ConfList"],
        json!({"name": "list", "disableGC": true, "plugins": [
            {"dns": {"domain": "a", "search": ["b"], "other": 1}, "ipam": {}, "type": "x"}]})
    );
    assert_eq!(place.load().unwrap(), Some(state), "nothing is lost");
}

#[test]
fn an_empty_list_is_a_container_without_attachments() {
    let place = Place::new();
    for content in ["[]", "null"] {
        place.put("c1", content.as_bytes());
        assert_eq!(place.load().unwrap().unwrap().delegates, []);
    }
}

#[test]
fn whoever_has_left_a_file_is_known() {
    let place = Place::new();
    assert!(place.store.known().unwrap().is_empty());
    place.store.begin(&state()).unwrap();
    place.put("results/cbr0-c0-eth0", b"{}");
    place.put(".multus-rs/c2.json", b"{}");
    place.put(".multus-rs/pending/1-c0", b"{}");
    place.put(".multus-rs-c3.tmp", b"[");
    place.put(".multus-rs/.multus-rs-c4.json.tmp", b"{");
    drop(place.store.lock(&"c5".parse().unwrap()).unwrap());
    let known = place.store.known().unwrap();
    let known: Vec<_> = known.iter().map(ContainerId::as_str).collect();
    assert_eq!(known, ["c1", "c2", "c3", "c4"]);
    for id in ["c3", "c4"] {
        place.store.remove(&id.parse().unwrap()).unwrap();
    }
    let known = place.store.known().unwrap();
    let known: Vec<_> = known.iter().map(ContainerId::as_str).collect();
    assert_eq!(known, ["c1", "c2"]);
}

#[test]
fn an_uninstall_removes_the_file_of_locks_alone() {
    let place = Place::new();
    let (root, dir) = (
        Root::open(place.dir.path()).unwrap(),
        std::path::Path::new("/var/lib/cni/multus"),
    );
    assert!(!super::remove_locks(&root, dir).unwrap());
    place.store.begin(&state()).unwrap();
    drop(place.store.lock(&"c1".parse().unwrap()).unwrap());
    assert!(super::remove_locks(&root, dir).unwrap());
    assert!(!place.path(".multus-rs/container.locks").exists());
    assert!(place.path(".multus-rs/c1.json").exists());
}
