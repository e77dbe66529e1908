//! A folder that stands for a node's root, and what a look at it finds.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use node::{
    discover::{Question, Report, discover},
    root::{Kind, Root},
};
use sha2::{Digest as _, Sha256};

use testkit::cri::{CriServer, RuntimeInfo};

pub(crate) const POD: &str = "0b5d6e4e-our-own-pod";
pub(crate) const HASH_A: &str = "3fa2b8c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f";
pub(crate) const HASH_B: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The node; it goes with the test.
pub(crate) struct Node {
    dir: tempfile::TempDir,
    pub(crate) root: Root,
    servers: RefCell<Vec<CriServer>>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        Self {
            dir,
            root,
            servers: RefCell::default(),
        }
    }

    /// A path of the node as the test reaches it; its folder is made.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        let path = self.dir.path().join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        fs::write(self.path(path), content).unwrap();
    }

    pub(crate) fn dir(&self, path: impl AsRef<Path>) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    pub(crate) fn link(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) {
        symlink(target, self.path(path)).unwrap();
    }

    pub(crate) fn program(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        self.write(path, format!("program {}", path.display()));
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.path(path), mode).unwrap();
    }

    /// What K3s has in its data directory for one release.
    pub(crate) fn k3s_release(&self, data: &str, hash: &str) {
        let bin = format!("{data}/data/{hash}/bin");
        self.program(format!("{bin}/cni"));
        for name in ["bridge", "flannel", "host-local", "loopback", "portmap"] {
            self.link("cni", format!("{bin}/{name}"));
        }
    }

    /// The links of newer releases, into that release.
    pub(crate) fn k3s_links(&self, data: &str, hash: &str) {
        for name in [
            "bridge",
            "cni",
            "flannel",
            "host-local",
            "loopback",
            "portmap",
        ] {
            let place = self.path(format!("{data}/data/cni/{name}"));
            let _ = fs::remove_file(&place);
            symlink(format!("{data}/data/{hash}/bin/cni"), place).unwrap();
        }
    }

    /// The usual plugins at the usual place.
    pub(crate) fn plugins(&self, dir: &str) {
        for name in ["bridge", "host-local", "loopback", "portmap"] {
            self.program(format!("{dir}/{name}"));
        }
    }

    /// A configuration of the primary network.
    pub(crate) fn primary(&self, dir: &str) {
        self.write(format!("{dir}/10-primary.conflist"), "{}");
    }

    /// A runtime that runs our pod. The server is this process, so this process has its command line.
    pub(crate) fn runtime(&self, socket: &str, info: Option<&[(&str, String)]>, words: &str) {
        let info = info.map(|pairs| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.clone()))
                .collect()
        });
        self.serve(
            socket,
            words,
            RuntimeInfo {
                name: "containerd",
                version: "v2.4.2",
                pods: vec!["another", POD],
                status: info,
            },
        );
    }

    pub(crate) fn serve(&self, socket: &str, words: &str, runtime: RuntimeInfo) {
        if !words.is_empty() {
            let line = words.replace(' ', "\0");
            self.write(format!("/proc/{}/cmdline", std::process::id()), line);
        }
        let server = CriServer::start(&self.path(socket), runtime);
        self.servers.borrow_mut().push(server);
    }

    pub(crate) async fn discover(&self) -> Report {
        let question = Question {
            pod_uid: Some(POD.to_owned()),
            ..Question::default()
        };
        discover(&self.root, &question).await
    }

    /// Every file and link of the node but sockets: its content's hash, or its target.
    pub(crate) fn hashes(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut dirs = vec![PathBuf::from("/")];
        while let Some(dir) = dirs.pop() {
            for name in self.root.list(&dir).unwrap() {
                let path = dir.join(name);
                let text = match self.root.kind(&path).unwrap().unwrap() {
                    Kind::Dir => {
                        dirs.push(path);
                        continue;
                    }
                    Kind::Symlink => fs::read_link(self.path(&path))
                        .unwrap()
                        .display()
                        .to_string(),
                    Kind::File => {
                        format!("{:x?}", Sha256::digest(fs::read(self.path(&path)).unwrap()))
                    }
                    Kind::Socket | Kind::Other => continue,
                };
                found.insert(path, text);
            }
        }
        found
    }
}

/// `cniconfig` of a status, as containerd tells it.
pub(crate) fn cniconfig(bins: &[&str], conf: &str) -> (&'static str, String) {
    let state = serde_json::json!({"PluginDirs": bins, "PluginConfDir": conf, "PluginMaxConfNum": 1, "Prefix": "eth", "Networks": []});
    ("cniconfig", state.to_string())
}

/// `config` of a status of containerd 1.x or 2.x.
pub(crate) fn config(bins: &[&str], conf: &str, is_new: bool) -> (&'static str, String) {
    let cni = if is_new {
        serde_json::json!({"binDir": "", "binDirs": bins, "confDir": conf, "maxConfNum": 1})
    } else {
        serde_json::json!({"binDir": bins[0], "confDir": conf, "maxConfNum": 1})
    };
    ("config", serde_json::json!({ "cni": cni }).to_string())
}
