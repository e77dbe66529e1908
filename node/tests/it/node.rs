//! A directory that stands for a node's root, and the discovery on it.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use node::{
    discover::{DiscoverOptions, Report, discover},
    root::{Kind, Root},
};
use sha2::{Digest as _, Sha256};

use testkit::cri::{CriServer, RuntimeInfo};

pub(crate) const POD: &str = "0b5d6e4e-our-own-pod";
pub(crate) const HASH_A: &str = "3fa2b8c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f";
pub(crate) const HASH_B: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A node that is removed when it is dropped.
pub(crate) struct NodeFixture {
    dir: tempfile::TempDir,
    pub(crate) root: Root,
    servers: RefCell<Vec<CriServer>>,
}

impl NodeFixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        Self {
            dir,
            root,
            servers: RefCell::default(),
        }
    }

    /// Returns a path of the node as the test reaches it, and creates its directory.
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

    /// Creates the files of one release in the data directory of K3s.
    pub(crate) fn k3s_release(&self, data: &str, hash: &str) {
        let bin = format!("{data}/data/{hash}/bin");
        self.program(format!("{bin}/cni"));
        for name in ["bridge", "flannel", "host-local", "loopback", "portmap"] {
            self.link("cni", format!("{bin}/{name}"));
        }
    }

    /// Creates the links of newer K3s releases into this release.
    pub(crate) fn k3s_links(&self, data: &str, hash: &str) {
        for name in [
            "bridge",
            "cni",
            "flannel",
            "host-local",
            "loopback",
            "portmap",
        ] {
            let link = self.path(format!("{data}/data/cni/{name}"));
            let _ = fs::remove_file(&link);
            symlink(format!("{data}/data/{hash}/bin/cni"), link).unwrap();
        }
    }

    /// Creates the usual plugins in a directory.
    pub(crate) fn plugins(&self, dir: &str) {
        for name in ["bridge", "host-local", "loopback", "portmap"] {
            self.program(format!("{dir}/{name}"));
        }
    }

    /// Creates the default network's configuration.
    pub(crate) fn default_network(&self, dir: &str) {
        self.write(format!("{dir}/10-primary.conflist"), "{}");
    }

    /// Starts a runtime that runs the pod [`POD`], with this command line: that of this process, which is the server.
    pub(crate) fn runtime(&self, socket: &str, info: Option<&[(&str, String)]>, args: &str) {
        let info = info.map(|pairs| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.clone()))
                .collect()
        });
        self.serve(
            socket,
            args,
            RuntimeInfo {
                name: "containerd",
                version: "v2.4.2",
                pods: vec!["another", POD],
                status: info,
            },
        );
    }

    pub(crate) fn serve(&self, socket: &str, args: &str, runtime: RuntimeInfo) {
        if !args.is_empty() {
            let line = args.replace(' ', "\0");
            self.write(format!("/proc/{}/cmdline", std::process::id()), line);
        }
        let server = CriServer::start(&self.path(socket), runtime);
        self.servers.borrow_mut().push(server);
    }

    pub(crate) async fn discover(&self) -> Report {
        let options = DiscoverOptions {
            pod_uid: Some(POD.to_owned()),
            ..DiscoverOptions::default()
        };
        discover(&self.root, &options).await
    }

    /// Returns every file and link of the node but sockets, with the hash of its content, or its target.
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

/// `cniconfig` of a status, in containerd's form.
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
