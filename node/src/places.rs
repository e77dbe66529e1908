//! Where configuration files of runtimes usually are: by the hint, by the data directories of K3s and RKE2, at containerd's own place.

use std::path::{Path, PathBuf};

use crate::{containerd, root::Root, runtime::Hint};

/// Where K3s' and RKE2's containerd listens, wherever their data is; older releases say so on its command line alone.
const RANCHER_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
const MAX_FILE: u64 = 1 << 20;
const MAX_FILES: usize = 64;

/// A containerd configuration file that may be in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Where its reader listens when the file does not say it.
    pub address: PathBuf,
}

/// The places at which there is a file, the likeliest first.
pub fn present(root: &Root, hint: Option<&Hint>) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut add = |path: PathBuf, address: &Path| {
        if root.exists(&path) && places.iter().all(|place| place.path != path) {
            let address = address.to_owned();
            places.push(Place { path, address });
        }
    };
    if let Some(hint) = hint {
        add(hint.containerd_config.clone(), &hint.cri_socket);
    }
    for distro in ["k3s", "rke2"] {
        let configured = data_dir(root, distro);
        let default = Path::new("/var/lib/rancher").join(distro);
        for dir in configured.into_iter().chain([default]) {
            for name in ["config.toml", "config-v3.toml"] {
                let path = dir.join("agent/etc/containerd").join(name);
                add(path, Path::new(RANCHER_SOCKET));
            }
        }
    }
    add(
        containerd::DEFAULT_CONFIG.into(),
        Path::new(containerd::DEFAULT_ADDRESS),
    );
    places
}

/// The data directory that the distro's own files name; the last one counts.
fn data_dir(root: &Root, distro: &str) -> Option<PathBuf> {
    let home = Path::new("/etc/rancher").join(distro);
    let drop_ins = home.join("config.yaml.d");
    let names = root.list(&drop_ins).unwrap_or_default();
    let drop_ins = names
        .iter()
        .filter(|name| is_yaml(name))
        .map(|name| drop_ins.join(name));
    let files = [home.join("config.yaml")].into_iter().chain(drop_ins);
    let read = |path: PathBuf| {
        let bytes = root.read(path, MAX_FILE).ok()?;
        written_data_dir(&String::from_utf8_lossy(&bytes))
    };
    files.take(MAX_FILES).filter_map(read).last()
}

fn is_yaml(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The value of `data-dir` of a file of plain keys. Nothing but a guess is made of it, so a line is all that is understood.
fn written_data_dir(text: &str) -> Option<PathBuf> {
    let value = |line: &str| {
        let rest = line.strip_prefix("data-dir")?.trim_start();
        let value = rest.strip_prefix(':')?.split(" #").next()?.trim();
        let value = value.trim_matches(['"', '\'']);
        value.starts_with('/').then(|| PathBuf::from(value))
    };
    text.lines().filter_map(value).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_directories_of_files() {
        for (text, expected) in [
            ("token: x\ndata-dir: /data\n", Some("/data")),
            ("data-dir: \"/a b\" # here\n", Some("/a b")),
            ("data-dir : '/q'", Some("/q")),
            ("data-dirs: /x\n  data-dir: /nested\n", None),
            ("data-dir: relative\n", None),
        ] {
            assert_eq!(
                written_data_dir(text).as_deref(),
                expected.map(Path::new),
                "{text}"
            );
        }
    }

    #[test]
    fn files_that_are_there_the_likeliest_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut expected = Vec::new();
        let write = |path: &str, text: &str| {
            root.make_dirs(Path::new(path).parent().unwrap(), 0o755)
                .unwrap();
            root.write_atomic(path, text.as_bytes(), 0o644).unwrap();
        };
        write("/etc/rancher/k3s/config.yaml", "data-dir: /old\n");
        write("/etc/rancher/k3s/config.yaml.d/9.yaml", "data-dir: /data\n");
        write(
            "/etc/rancher/k3s/config.yaml.d/9.yaml.bak",
            "data-dir: /bak\n",
        );
        for path in [
            "/data/agent/etc/containerd/config-v3.toml",
            "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            "/etc/containerd/config.toml",
        ] {
            write(path, "");
            expected.push(PathBuf::from(path));
        }
        let found = present(&root, None).into_iter().map(|place| place.path);
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
