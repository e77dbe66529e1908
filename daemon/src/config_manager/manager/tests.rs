//! Tests of a manager over a node's directories.

use serde_json::json;

use super::*;

const DEFAULT_NETWORK: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"bridge","capabilities":{"portMappings":true}}]}"#;
const OURS: &str = "/net.d/00-multus.conf";

struct Fixture {
    dir: tempfile::TempDir,
    root: Arc<Root>,
    manager: Manager,
}

impl Fixture {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    fn with(config: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        root.make_dirs("/net.d", 0o755).unwrap();
        let manager = manager(&root, config);
        Self { dir, root, manager }
    }

    fn restart(&mut self, config: &Value) {
        self.manager = manager(&self.root, config);
    }

    /// Updates the configuration and returns the problem, if any.
    fn update(&mut self) -> Option<String> {
        self.update_in("/net.d")
    }

    fn update_in(&mut self, dir: &str) -> Option<String> {
        self.manager.update(&target(dir));
        self.manager.readiness.problem()
    }

    fn write(&self, path: &str, text: &str) {
        self.root
            .write_atomic(path, text.as_bytes(), 0o600)
            .unwrap();
    }

    fn read(&self, path: &str) -> String {
        String::from_utf8(self.root.read(path, MAX_FILE).unwrap()).unwrap()
    }

    fn config(&self) -> Value {
        serde_json::from_str(&self.read(OURS)).unwrap()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        self.root.list(dir).unwrap()
    }

    /// Creates a file outside the node's tree, as in a mounted ConfigMap.
    fn mount(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn manager(root: &Arc<Root>, config: &Value) -> Manager {
    let config = Config::parse(config.as_object().unwrap().clone()).unwrap();
    let readiness = Readiness::new(&[Gate::Configuration]);
    Manager::new(Arc::clone(root), Arc::new(config), Arc::new(readiness))
}

fn target(dir: &str) -> Target {
    Target {
        dir: dir.into(),
        accepted: None,
    }
}

#[test]
fn without_a_default_network_nothing_is_written_and_the_last_file_stays() {
    let mut fixture = Fixture::new();
    let problem = fixture.update().unwrap();
    assert!(
        problem.contains("no CNI configuration of a default network in /net.d"),
        "{problem}"
    );
    assert!(fixture.names("/net.d").is_empty());
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    let valid = fixture.read(OURS);
    for broken in ["", "{\"half", "{}", r#"{"type":"multus-shim","name":"x"}"#] {
        fixture.write("/net.d/10-a.conflist", broken);
        let problem = fixture.update().unwrap();
        assert!(
            problem.contains("10-a.conflist can no longer be used"),
            "{problem}"
        );
        assert_eq!(fixture.read(OURS), valid);
    }
    fixture.root.remove("/net.d/10-a.conflist").unwrap();
    let missing = "no CNI configuration of a default network";
    assert!(fixture.update().unwrap().contains(missing));
    assert_eq!(fixture.read(OURS), valid, "no pod may start without us");
    fixture.root.remove(OURS).unwrap();
    assert!(fixture.update().unwrap().contains(missing));
    assert_eq!(fixture.read(OURS), valid, "it is restored even then");
}

#[test]
fn another_default_network_is_taken_when_it_is_first_or_the_present_one_is_deleted() {
    let mut fixture = Fixture::new();
    let uses = |fixture: &Fixture| fixture.config()["clusterNetwork"].clone();
    fixture.write("/net.d/10-flannel.conflist", DEFAULT_NETWORK);
    fixture.write("/net.d/20-other.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    assert_eq!(uses(&fixture), "/net.d/10-flannel.conflist");
    fixture.write("/net.d/05-cilium.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    assert_eq!(uses(&fixture), "/net.d/05-cilium.conflist");
    fixture.write("/net.d/05-cilium.conflist", "{\"half");
    assert!(fixture.update().unwrap().contains("05-cilium"));
    assert_eq!(uses(&fixture), "/net.d/05-cilium.conflist");
    // The next daemon has never seen the file complete.
    fixture.restart(&json!({}));
    assert!(fixture.update().unwrap().contains("05-cilium"));
    assert_eq!(uses(&fixture), "/net.d/05-cilium.conflist");
    fixture.root.remove("/net.d/05-cilium.conflist").unwrap();
    assert_eq!(fixture.update(), None);
    assert_eq!(uses(&fixture), "/net.d/10-flannel.conflist");
}

#[test]
fn capabilities_and_name_follow_the_default_network() {
    let mut fixture = Fixture::with(&json!({"overrideNetworkName": true}));
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    assert_eq!(
        fixture.config()["capabilities"],
        json!({"portMappings": true})
    );
    assert_eq!(fixture.config()["name"], "cbr0");
    let next = r#"{"name":"next","plugins":[{"type":"bridge"}]}"#;
    fixture.write("/net.d/10-a.conflist", next);
    assert_eq!(fixture.update(), None);
    assert_eq!(fixture.config().get("capabilities"), None);
    assert_eq!(fixture.config()["name"], "next");
    fixture.write("/net.d/10-a.conflist", r#"{"plugins":[{"type":"bridge"}]}"#);
    assert!(
        fixture
            .update()
            .unwrap()
            .contains("10-a.conflist has no name")
    );
    assert_eq!(fixture.config()["name"], "next");
}

#[test]
fn a_new_directory_gets_the_file_before_the_old_one_loses_it() {
    let mut fixture = Fixture::new();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    fixture.root.make_dirs("/new.d", 0o755).unwrap();
    assert!(fixture.update_in("/new.d").is_some());
    assert!(fixture.root.exists(OURS));
    fixture.restart(&json!({}));
    fixture.write("/new.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update_in("/new.d"), None);
    assert!(fixture.root.exists("/new.d/00-multus.conf") && !fixture.root.exists(OURS));
}

#[test]
fn a_static_configuration_replaces_the_generated_one_and_the_reverse() {
    let mut fixture = Fixture::new();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    let text =
        r#"{ "name": "mine", "type": "multus-shim", "clusterNetwork": "/net.d/10-a.conflist" }"#;
    let path = fixture.mount("10-my.conf", text);
    fixture.restart(&json!({"multusConfigFile": path}));
    assert_eq!(fixture.update(), None);
    assert_eq!(fixture.read("/net.d/10-my.conf"), text);
    assert_eq!(fixture.names("/net.d"), ["10-a.conflist", "10-my.conf"]);
    let other = fixture.mount("20-my.conf", text);
    fixture.restart(&json!({"multusConfigFile": other}));
    assert_eq!(fixture.update(), None);
    assert_eq!(fixture.names("/net.d"), ["10-a.conflist", "20-my.conf"]);
    fixture.root.make_dirs("/made", 0o755).unwrap();
    fixture.write("/made/30-my.conf", text);
    fixture.restart(&json!({"multusConfigFile": "/host/made/30-my.conf"}));
    assert_eq!(fixture.update(), None);
    assert_eq!(fixture.names("/net.d"), ["10-a.conflist", "30-my.conf"]);
    fixture.restart(&json!({"multusConfigFile": "auto"}));
    assert_eq!(fixture.update(), None);
    assert_eq!(fixture.names("/net.d"), ["00-multus.conf", "10-a.conflist"]);
}

#[test]
fn a_static_configuration_that_runtimes_cannot_use_is_not_installed() {
    let mut fixture = Fixture::new();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    let path = fixture.mount("10-my.conf", "{}");
    fixture.restart(&json!({"multusConfigFile": path}));
    let problem = fixture.update().unwrap();
    assert!(
        problem.contains("multusConfigFile") && problem.contains(&path),
        "{problem}"
    );
    assert_eq!(fixture.names("/net.d"), ["00-multus.conf", "10-a.conflist"]);
    let valid = r#"{"name":"mine","type":"multus-shim"}"#;
    fixture.mount("10-my.conf", valid);
    assert_eq!(fixture.update(), None);
    fixture.mount("10-my.conf", "");
    assert!(fixture.update().is_some());
    assert_eq!(fixture.read("/net.d/10-my.conf"), valid);
}

#[test]
fn a_file_that_runtimes_take_instead_is_named() {
    let mut fixture = Fixture::new();
    fixture.write("/net.d/10-flannel.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    assert_eq!(fixture.manager.first, None);
    let text = r#"{"name": "mine", "type": "multus-shim", "clusterNetwork": "/net.d/10-flannel.conflist"}"#;
    let path = fixture.mount("70-multus.conf", text);
    fixture.restart(&json!({"multusConfigFile": path}));
    assert_eq!(fixture.update(), None);
    let first = "10-flannel.conflist".to_owned();
    assert_eq!(fixture.manager.first, Some(first));
    fixture.root.remove("/net.d/10-flannel.conflist").unwrap();
    fixture.write("/net.d/10-readme.txt", "");
    assert_eq!(fixture.update(), None);
    assert_eq!(fixture.manager.first, None);
}

#[test]
fn the_readiness_indicator_delays_only_the_first_write() {
    let config = json!({"readinessindicatorfile": "/host/run/ready"});
    let mut fixture = Fixture::with(&config);
    fixture.root.make_dirs("/run", 0o755).unwrap();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    let waits = |fixture: &mut Fixture| {
        let problem = fixture.update().unwrap();
        assert!(
            problem.contains("still waiting for readinessindicatorfile @ /run/ready"),
            "{problem}"
        );
    };
    waits(&mut fixture);
    assert!(!fixture.root.exists(OURS));
    fixture.write("/run/ready", "");
    assert_eq!(fixture.update(), None);
    fixture.root.remove("/run/ready").unwrap();
    waits(&mut fixture);
    assert!(fixture.root.exists(OURS));
    fixture.root.remove(OURS).unwrap();
    waits(&mut fixture);
    assert!(
        fixture.root.exists(OURS),
        "without it pods would have the default network only"
    );
    fixture.restart(&config);
    waits(&mut fixture);
    assert!(fixture.root.exists(OURS));
}

#[test]
fn changes_by_other_programs_are_undone_and_reported_when_they_repeat() {
    let mut fixture = Fixture::new();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    let valid = fixture.read(OURS);
    let at = |name: &str| fixture.dir.path().join("net.d").join(name);
    let (ours, theirs) = (at("00-multus.conf"), at("00-multus.conf.cilium_bak"));
    let mut problems = Vec::new();
    for _ in 0..6 {
        std::fs::rename(&ours, &theirs).unwrap();
        problems.push(fixture.update());
        assert_eq!(fixture.read(OURS), valid);
    }
    assert_eq!(problems[..4], [const { None }; 4]);
    for problem in &problems[4..] {
        let problem = problem.as_deref().unwrap();
        assert!(
            problem.contains("/net.d/00-multus.conf (it is renamed to 00-multus.conf.cilium_bak)"),
            "{problem}"
        );
    }
    fixture.write(OURS, "{}");
    assert!(
        fixture
            .update()
            .unwrap()
            .contains("its content is replaced")
    );
    fixture.root.remove(OURS).unwrap();
    std::fs::remove_file(&theirs).unwrap();
    assert!(fixture.update().unwrap().contains("it is removed"));
    assert!(fixture.manager.update(&target("/net.d")) > SETTLE);
}

#[test]
fn a_failed_write_leaves_the_previous_file() {
    let mut fixture = Fixture::new();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    let valid = fixture.read(OURS);
    // The temporary file of a write cannot be created.
    fixture
        .root
        .make_dirs("/net.d/.multus-rs-00-multus.conf.tmp", 0o755)
        .unwrap();
    fixture.write("/net.d/05-b.conflist", DEFAULT_NETWORK);
    assert!(
        fixture
            .update()
            .unwrap()
            .contains("cannot write /net.d/00-multus.conf")
    );
    assert_eq!(fixture.read(OURS), valid);
}

#[test]
fn removed_file_is_restored_before_the_directory_is_read_again() {
    let mut fixture = Fixture::new();
    fixture.manager.restore();
    assert!(fixture.names("/net.d").is_empty(), "nothing was valid yet");
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    assert_eq!(fixture.update(), None);
    let valid = fixture.read(OURS);
    fixture.write("/net.d/10-a.conflist", "{");
    fixture.root.remove(OURS).unwrap();
    fixture.manager.restore();
    assert_eq!(fixture.read(OURS), valid);
    fixture.write(OURS, "of another program");
    fixture.manager.restore();
    assert_eq!(fixture.read(OURS), "of another program");
}

#[test]
fn daemon_without_the_socket_restores_nothing() {
    let mut fixture = Fixture::new();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    fixture.update();
    fixture.manager.readiness = Arc::new(Readiness::new(&[Gate::Socket, Gate::Configuration]));
    fixture.root.remove(OURS).unwrap();
    fixture.manager.restore();
    assert!(!fixture.root.exists(OURS));
}

#[tokio::test]
async fn a_removed_or_renamed_file_is_restored() {
    let fixture = Fixture::new();
    fixture.write("/net.d/10-a.conflist", DEFAULT_NETWORK);
    let (sender, receiver) = tokio::sync::watch::channel(Some(target("/net.d")));
    let running = tokio::spawn(fixture.manager.run(receiver));
    let ours = fixture.dir.path().join("net.d/00-multus.conf");
    let removals: [fn(&Path); 3] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::rename(path, path.with_extension("bak")).unwrap(),
        |_| {},
    ];
    for remove in removals {
        let written = async {
            while !ours.exists() {
                tokio::task::yield_now().await;
            }
        };
        let written = tokio::time::timeout(Duration::from_secs(20), written).await;
        written.expect("written within 20 s");
        remove(&ours);
    }
    drop(sender);
    running.abort();
}
