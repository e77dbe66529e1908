//! State files on a real file system: written, taken over from upstream, damaged, lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cni::config::NetworkConfig;

use super::super::{Requested, State};
use super::*;

const UPSTREAM: &str = include_str!("../../tests/fixtures/state/upstream.json");
const UPSTREAM_4_3_0: &str = include_str!("../../tests/fixtures/state/upstream-4.3.0.json");

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
        progress,
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
fn upstream_s_file_is_read_and_written_back_byte_for_byte() {
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
            ("cbr0", "eth0", Progress::Started),
            ("shop/storage", "stor0", Progress::Started),
            ("shop/plain", "net2", Progress::Started),
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
fn the_complete_list_of_4_3_0_comes_before_its_bytes() {
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
                {"type":"flannel","delegate":{"isDefaultGateway":true,"mtu":9_007_199_254_740_993_u64}},
                {"type":"portmap","capabilities":{"portMappings":true}},
            ],
        })
    );
    assert_eq!(state.delegates[1].ifname.as_str(), "stor0");
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
                .all(|d| d.progress == Progress::Started)
        );
        assert_eq!(state.delegates[1].ifname.as_str(), "ext0");
    };
    for sidecar in [
        own.replace("\"containerID\":\"c1\"", "\"containerID\":\"c2\""),
        own.replace("\"schema\":1", "\"schema\":2"),
        own.replace("\"schema\":1", "\"schema\":1,\"new\":1"),
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
fn a_damaged_file_is_replaced_by_its_sidecar() {
    let place = Place::new();
    let state = state();
    place.store.begin(&state).unwrap();
    for content in [
        "",
        "[{",
        "null null",
        "[1]",
        r#"[{"Name":"a"}]"#,
        r#"[{"Bytes":"?"}]"#,
    ] {
        place.put("c1", content.as_bytes());
        assert_eq!(place.load().unwrap().as_ref(), Some(&state), "{content}");
    }
    place.store.record(&state).unwrap();
    fs::remove_file(place.path(".multus-rs/c1.json")).unwrap();
    assert_eq!(place.load().unwrap().unwrap().delegates.len(), 2);
}

#[test]
fn a_damaged_file_without_sidecar_is_an_error_that_names_it() {
    let place = Place::new();
    for end in 0..UPSTREAM.trim_end().len() {
        place.put("c1", &UPSTREAM.as_bytes()[..end]);
        match place.load() {
            Err(error @ StateError::Damaged { .. }) => {
                assert!(error.to_string().contains("/var/lib/cni/multus/c1"));
            }
            other => panic!("{end}: {other:?}"),
        }
    }
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
fn containers_and_orphans_are_told_apart() {
    let place = Place::new();
    assert_eq!(place.store.containers().unwrap(), []);
    place.store.begin(&state()).unwrap();
    place.put("results/cbr0-c1-eth0", b"{}");
    place.put(".multus-rs/c2.json", b"{}");
    place.put(".multus-rs/pending/1-c3", b"{}");
    assert_eq!(place.store.containers().unwrap(), [id()]);
    assert_eq!(place.store.orphans().unwrap(), ["c2".parse().unwrap()]);
}
