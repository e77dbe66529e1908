//! The default paths of containerd's configuration: by the hint, in the data directories of K3s and RKE2, and containerd's own.

use std::path::{Path, PathBuf};

use crate::{containerd, root::Root, runtime::Hint};

/// The address of K3s' and RKE2's containerd with any data directory. Older releases pass it on the command line only.
const RANCHER_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
const MAX_FILE: u64 = 1 << 20;
const MAX_FILES: usize = 64;

/// A configuration file of containerd that may be in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigPath {
    /// The path of the file.
    pub path: PathBuf,
    /// The address of the containerd that reads it, unless the file names another.
    pub address: PathBuf,
}

/// Returns the default paths at which there is a file, the likeliest first.
pub fn existing(root: &Root, hint: Option<&Hint>) -> Vec<ConfigPath> {
    let mut found: Vec<ConfigPath> = Vec::new();
    let mut add = |path: PathBuf, address: &Path| {
        if root.exists(&path) && found.iter().all(|known| known.path != path) {
            let address = address.to_owned();
            found.push(ConfigPath { path, address });
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
    found
}

/// Returns the data directory that the distro's own files name; the last file wins.
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
        parse_data_dir(&String::from_utf8_lossy(&bytes))
    };
    files.take(MAX_FILES).filter_map(read).last()
}

fn is_yaml(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Returns the value of `data-dir` on a line of its own. The result only serves as a guess, so no other YAML is understood.
fn parse_data_dir(text: &str) -> Option<PathBuf> {
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
    fn data_dir_is_read_from_plain_lines() {
        for (text, expected) in [
            ("token: x\ndata-dir: /data\n", Some("/data")),
            ("data-dir: \"/a b\" # here\n", Some("/a b")),
            ("data-dir : '/q'", Some("/q")),
            ("data-dirs: /x\n  data-dir: /nested\n", None),
            ("data-dir: relative\n", None),
        ] {
            assert_eq!(
                parse_data_dir(text).as_deref(),
                expected.map(Path::new),
                "{text}"
            );
        }
    }

    #[test]
    fn existing_files_are_listed_with_the_likeliest_first() {
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
        let found = existing(&root, None).into_iter().map(|found| found.path);
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
