//! Answers to STATUS: how long they count, and which of them wake whoever publishes verdicts.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
};

use api::network_report::Verdict;
use cni::types::CniError;
use serde_json::json;

use super::*;
use crate::devices::NoDevices;

/// A plugin that is there, and ready or not.
#[derive(Default)]
struct Plugin {
    is_ready: AtomicBool,
}

impl Exec for Plugin {
    fn find(&self, plugin: &str, _: &[PathBuf]) -> Result<PathBuf, ExecError> {
        Ok(plugin.into())
    }

    fn run(&self, _: &Path, _: &[(String, String)], _: &[u8]) -> Result<Vec<u8>, ExecError> {
        if self.is_ready.load(Ordering::Relaxed) {
            Ok(Vec::new())
        } else {
            Err(CniError::new(CniError::PLUGIN_NOT_AVAILABLE, "no pool is left").into())
        }
    }
}

fn planned() -> Planned {
    let config = json!({
        "cniVersion": "1.1.0", "name": "lan", "type": "modern", "ipam": {"type": "addresses"},
    });
    let network = Attachment {
        name: "shop/lan".to_owned(),
        is_default: false,
        config: Arc::new(NetworkConfig::parse(config.to_string().as_bytes()).unwrap()),
        selection: None,
        device: None,
    };
    Planned {
        faults: Vec::new(),
        networks: vec![("shop/lan".to_owned(), Ok(network))],
        path: Vec::new(),
        conf_dir: None,
    }
}

fn networks(plugin: &Arc<Plugin>) -> Networks {
    Networks::new(
        Arc::new(Definitions::new(String::new())),
        Arc::new(NoDevices),
        Arc::clone(plugin) as _,
        Box::new(Vec::new),
    )
}

#[test]
fn other_answer_to_status_wakes_the_publisher_until_it_has_looked() {
    let plugin = Arc::new(Plugin::default());
    let networks = networks(&plugin);
    let dir = tempfile::tempdir().unwrap();
    let (root, planned) = (Root::open(dir.path()).unwrap(), planned());
    let examine = |ready| networks.examine(&root, &planned, ready).networks;
    // The answer that the network is ready never expires for the publisher, and has expired for the report.
    let (publisher, report) = (Duration::MAX, Duration::ZERO);

    plugin.is_ready.store(true, Ordering::Relaxed);
    assert_eq!(examine(publisher)[0].verdict, Verdict::Serves);
    let changes = networks.status_changes();
    examine(report);
    assert!(!changes.has_changed().unwrap(), "the answer is the same");

    plugin.is_ready.store(false, Ordering::Relaxed);
    examine(publisher);
    assert!(!changes.has_changed().unwrap(), "the answer is known");
    let reported = examine(report);
    assert!(changes.has_changed().unwrap());
    let changes = networks.status_changes();
    assert_eq!(examine(publisher), reported);
    assert_eq!(reported[0].verdict.word(), "cannot");
    assert!(!changes.has_changed().unwrap(), "it wakes itself");
    // A first answer, as of a network for which the publisher had no time left.
    networks.statuses().clear();
    examine(report);
    assert!(changes.has_changed().unwrap());
}

#[test]
fn plugin_runs_status_again_when_its_program_is_another_one() {
    let plugin = Arc::new(Plugin::default());
    let networks = networks(&plugin);
    let dir = tempfile::tempdir().unwrap();
    let (root, planned) = (Root::open(dir.path()).unwrap(), planned());
    let write = |name: &str, text| fs::write(dir.path().join(name), text).unwrap();
    symlink("/program", dir.path().join("modern")).unwrap();
    let verdict = || {
        let examined = networks.examine(&root, &planned, Duration::MAX);
        examined.networks[0].verdict.word()
    };
    for name in ["program", "addresses"] {
        plugin.is_ready.store(true, Ordering::Relaxed);
        write(name, "ready");
        assert_eq!(verdict(), "serves");
        plugin.is_ready.store(false, Ordering::Relaxed);
        assert_eq!(verdict(), "serves", "the same program runs STATUS again");
        write(name, "not ready");
        assert_eq!(verdict(), "cannot", "{name}");
    }
}
