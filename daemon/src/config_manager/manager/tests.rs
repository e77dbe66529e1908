//! A manager and a node's directories.

use serde_json::json;

use super::*;

const PRIMARY: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"bridge","capabilities":{"portMappings":true}}]}"#;
const OURS: &str = "/net.d/00-multus.conf";

struct World {
    dir: tempfile::TempDir,
    root: Arc<Root>,
    manager: Manager,
}

impl World {
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

    /// What is missing after a look.
    fn look(&mut self) -> Option<String> {
        self.look_at("/net.d")
    }

    fn look_at(&mut self, dir: &str) -> Option<String> {
        self.manager.look(&target(dir));
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

    /// A file outside the node's tree, as a mounted ConfigMap is.
    fn mount(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn manager(root: &Arc<Root>, config: &Value) -> Manager {
    let config = Config::parse(config.as_object().unwrap().clone()).unwrap();
    let readiness = Readiness::new(&[Part::Configuration]);
    Manager::new(Arc::clone(root), Arc::new(config), Arc::new(readiness))
}

fn target(dir: &str) -> Target {
    Target {
        dir: dir.into(),
        accepted: None,
    }
}

#[test]
fn nothing_is_written_without_a_primary_and_the_last_good_file_stays() {
    let mut world = World::new();
    let problem = world.look().unwrap();
    assert!(
        problem.contains("no primary CNI configuration in /net.d"),
        "{problem}"
    );
    assert!(world.names("/net.d").is_empty());
    world.write("/net.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    let good = world.read(OURS);
    for broken in ["", "{\"half", "{}", r#"{"type":"multus-shim","name":"x"}"#] {
        world.write("/net.d/10-a.conflist", broken);
        let problem = world.look().unwrap();
        assert!(
            problem.contains("10-a.conflist cannot be used"),
            "{problem}"
        );
        assert_eq!(world.read(OURS), good);
    }
    world.root.remove("/net.d/10-a.conflist").unwrap();
    assert!(world.look().unwrap().contains("no primary"));
    assert_eq!(world.read(OURS), good, "pods are not to go without us");
    world.root.remove(OURS).unwrap();
    assert!(world.look().unwrap().contains("no primary"));
    assert_eq!(world.read(OURS), good, "it is put back even then");
}

#[test]
fn another_primary_is_taken_when_it_comes_first_or_the_present_one_is_gone() {
    let mut world = World::new();
    let uses = |world: &World| world.config()["clusterNetwork"].clone();
    world.write("/net.d/10-flannel.conflist", PRIMARY);
    world.write("/net.d/20-other.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    assert_eq!(uses(&world), "/net.d/10-flannel.conflist");
    world.write("/net.d/05-cilium.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    assert_eq!(uses(&world), "/net.d/05-cilium.conflist");
    world.write("/net.d/05-cilium.conflist", "{\"half");
    assert!(world.look().unwrap().contains("05-cilium"));
    assert_eq!(uses(&world), "/net.d/05-cilium.conflist");
    // The next daemon has not seen the file when it was whole.
    world.restart(&json!({}));
    assert!(world.look().unwrap().contains("05-cilium"));
    assert_eq!(uses(&world), "/net.d/05-cilium.conflist");
    world.root.remove("/net.d/05-cilium.conflist").unwrap();
    assert_eq!(world.look(), None);
    assert_eq!(uses(&world), "/net.d/10-flannel.conflist");
}

#[test]
fn capabilities_and_name_follow_the_primary() {
    let mut world = World::with(&json!({"overrideNetworkName": true}));
    world.write("/net.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    assert_eq!(
        world.config()["capabilities"],
        json!({"portMappings": true})
    );
    assert_eq!(world.config()["name"], "cbr0");
    let next = r#"{"name":"next","plugins":[{"type":"bridge"}]}"#;
    world.write("/net.d/10-a.conflist", next);
    assert_eq!(world.look(), None);
    assert_eq!(world.config().get("capabilities"), None);
    assert_eq!(world.config()["name"], "next");
    world.write("/net.d/10-a.conflist", r#"{"plugins":[{"type":"bridge"}]}"#);
    assert!(world.look().unwrap().contains("10-a.conflist has no name"));
    assert_eq!(world.config()["name"], "next");
}

#[test]
fn a_new_directory_is_served_before_the_old_one_is_given_up() {
    let mut world = World::new();
    world.write("/net.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    world.root.make_dirs("/new.d", 0o755).unwrap();
    assert!(world.look_at("/new.d").is_some());
    assert!(world.root.exists(OURS));
    world.restart(&json!({}));
    world.write("/new.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look_at("/new.d"), None);
    assert!(world.root.exists("/new.d/00-multus.conf") && !world.root.exists(OURS));
}

#[test]
fn a_ready_made_file_takes_the_place_of_ours_and_the_reverse() {
    let mut world = World::new();
    world.write("/net.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    let text =
        r#"{ "name": "mine", "type": "multus-shim", "clusterNetwork": "/net.d/10-a.conflist" }"#;
    let path = world.mount("10-my.conf", text);
    world.restart(&json!({"multusConfigFile": path}));
    assert_eq!(world.look(), None);
    assert_eq!(world.read("/net.d/10-my.conf"), text);
    assert_eq!(world.names("/net.d"), ["10-a.conflist", "10-my.conf"]);
    let other = world.mount("20-my.conf", text);
    world.restart(&json!({"multusConfigFile": other}));
    assert_eq!(world.look(), None);
    assert_eq!(world.names("/net.d"), ["10-a.conflist", "20-my.conf"]);
    world.root.make_dirs("/made", 0o755).unwrap();
    world.write("/made/30-my.conf", text);
    world.restart(&json!({"multusConfigFile": "/host/made/30-my.conf"}));
    assert_eq!(world.look(), None);
    assert_eq!(world.names("/net.d"), ["10-a.conflist", "30-my.conf"]);
    world.restart(&json!({"multusConfigFile": "auto"}));
    assert_eq!(world.look(), None);
    assert_eq!(world.names("/net.d"), ["00-multus.conf", "10-a.conflist"]);
}

#[test]
fn a_ready_made_file_that_runtimes_cannot_use_is_not_installed() {
    let mut world = World::new();
    world.write("/net.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    let path = world.mount("10-my.conf", "{}");
    world.restart(&json!({"multusConfigFile": path}));
    let problem = world.look().unwrap();
    assert!(
        problem.contains("multusConfigFile") && problem.contains(&path),
        "{problem}"
    );
    assert_eq!(world.names("/net.d"), ["00-multus.conf", "10-a.conflist"]);
    let good = r#"{"name":"mine","type":"multus-shim"}"#;
    world.mount("10-my.conf", good);
    assert_eq!(world.look(), None);
    world.mount("10-my.conf", "");
    assert!(world.look().is_some());
    assert_eq!(world.read("/net.d/10-my.conf"), good);
}

#[test]
fn the_indicator_holds_back_the_first_write_and_nothing_else() {
    let config = json!({"readinessindicatorfile": "/host/run/ready"});
    let mut world = World::with(&config);
    world.root.make_dirs("/run", 0o755).unwrap();
    world.write("/net.d/10-a.conflist", PRIMARY);
    let waits = |world: &mut World| {
        let problem = world.look().unwrap();
        assert!(
            problem.contains("still waiting for readinessindicatorfile @ /run/ready"),
            "{problem}"
        );
    };
    waits(&mut world);
    assert!(!world.root.exists(OURS));
    world.write("/run/ready", "");
    assert_eq!(world.look(), None);
    world.root.remove("/run/ready").unwrap();
    waits(&mut world);
    assert!(world.root.exists(OURS));
    world.root.remove(OURS).unwrap();
    waits(&mut world);
    assert!(
        world.root.exists(OURS),
        "without it pods would go to the primary"
    );
    world.restart(&config);
    waits(&mut world);
    assert!(world.root.exists(OURS));
}

#[test]
fn what_someone_does_to_the_file_is_undone_and_told_once_it_is_a_habit() {
    let mut world = World::new();
    world.write("/net.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    let good = world.read(OURS);
    let at = |name: &str| world.dir.path().join("net.d").join(name);
    let (ours, theirs) = (at("00-multus.conf"), at("00-multus.conf.cilium_bak"));
    let mut problems = Vec::new();
    for _ in 0..6 {
        std::fs::rename(&ours, &theirs).unwrap();
        problems.push(world.look());
        assert_eq!(world.read(OURS), good);
    }
    assert_eq!(problems[..4], [const { None }; 4]);
    for problem in &problems[4..] {
        let problem = problem.as_deref().unwrap();
        assert!(
            problem.contains(
                "/net.d/00-multus.conf away (it is renamed to 00-multus.conf.cilium_bak)"
            ),
            "{problem}"
        );
    }
    world.write(OURS, "{}");
    assert!(world.look().unwrap().contains("its content is replaced"));
    world.root.remove(OURS).unwrap();
    std::fs::remove_file(&theirs).unwrap();
    assert!(world.look().unwrap().contains("it is removed"));
    assert!(world.manager.look(&target("/net.d")) > SETTLE);
}

#[test]
fn a_disk_that_takes_nothing_more_leaves_what_was_there() {
    let mut world = World::new();
    world.write("/net.d/10-a.conflist", PRIMARY);
    assert_eq!(world.look(), None);
    let good = world.read(OURS);
    // The hidden file that a write begins with cannot be made.
    world
        .root
        .make_dirs("/net.d/.multus-rs-00-multus.conf.tmp", 0o755)
        .unwrap();
    world.write("/net.d/05-b.conflist", PRIMARY);
    assert!(
        world
            .look()
            .unwrap()
            .contains("cannot write /net.d/00-multus.conf")
    );
    assert_eq!(world.read(OURS), good);
}

#[tokio::test]
async fn a_file_that_someone_removes_or_renames_comes_back() {
    let world = World::new();
    world.write("/net.d/10-a.conflist", PRIMARY);
    let (sender, receiver) = tokio::sync::watch::channel(Some(target("/net.d")));
    let running = tokio::spawn(world.manager.run(receiver));
    let ours = world.dir.path().join("net.d/00-multus.conf");
    let takes: [fn(&Path); 3] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::rename(path, path.with_extension("bak")).unwrap(),
        |_| {},
    ];
    for take in takes {
        let written = async {
            while !ours.exists() {
                tokio::task::yield_now().await;
            }
        };
        let written = tokio::time::timeout(Duration::from_secs(20), written).await;
        written.expect("written within 20 s");
        take(&ours);
    }
    drop(sender);
    running.abort();
}
