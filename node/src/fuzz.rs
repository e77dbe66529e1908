//! Fuzz targets of what runtimes say: any content of a node's files and of a status results in an error or in absolute paths.
//! `docs/contributing/testing.md` says how they run.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::LazyLock,
};

use toml::Table;

use crate::{
    command_line::CommandLine,
    containerd::{ConfigFile, Release, effective, follow, parse},
    crio,
    dirs::ReportedDirs,
    root::RootError,
    status,
};

/// A configuration that a file imports, or that imports it.
const OTHER: &[u8] = br#"version = 3
imports = ["drop/*.toml"]
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/var/lib/rancher/k3s/data/cni", "/opt/cni/bin"]
  conf_dir = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
[plugins.'io.containerd.server.v1.grpc']
  address = "/run/k3s/containerd/containerd.sock"
"#;

fn assert_absolute(reported: &ReportedDirs) {
    let dirs = reported.bin_dirs.iter().chain(&reported.conf_dir);
    let dirs = dirs.chain(reported.handlers.values());
    for dir in dirs {
        assert!(dir.is_absolute(), "{}", dir.display());
    }
}

/// The configuration of a runtime, merged over another one.
pub fn tables(input: &[u8]) -> bool {
    static BELOW: LazyLock<Table> = LazyLock::new(|| {
        parse(Path::new("/below.toml"), OTHER).expect("the other configuration is right")
    });
    let path = Path::new("/etc/containerd/config.toml");
    let Ok(table) = parse(path, input) else {
        return false;
    };
    let file = ConfigFile {
        path: path.to_owned(),
        table,
    };
    let below = ConfigFile {
        path: "/below.toml".into(),
        table: BELOW.clone(),
    };
    let files = [below, file];
    for (major, minor) in [(1, 6), (2, 0), (2, 1), (2, 3), (2, 4)] {
        assert_absolute(&effective(&files, Release { major, minor }).dirs);
    }
    let line = CommandLine::parse(b"crio");
    assert_absolute(&crio::effective(&files, &line));
    true
}

/// The configuration of a runtime with the files that it imports.
pub fn imports(input: &[u8]) -> bool {
    let path = Path::new("/etc/containerd/config.toml");
    let files: BTreeMap<&Path, &[u8]> = [
        (path, input),
        (Path::new("/etc/containerd/conf.d/10.toml"), OTHER),
        (Path::new("/etc/containerd/drop/10.toml"), OTHER),
        (
            Path::new("/etc/containerd/other.toml"),
            b"imports = [\"*.toml\"]\n",
        ),
    ]
    .into();
    let read = |path: &Path| {
        let content = files.get(path).map(|content| content.to_vec());
        content.ok_or_else(|| RootError {
            action: "read",
            path: path.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })
    };
    let list = |dir: &Path| {
        let below = files.keys().filter_map(|path| path.strip_prefix(dir).ok());
        let names = below.filter_map(|path| path.components().next()?.as_os_str().to_str());
        let names: BTreeSet<_> = names.map(str::to_owned).collect();
        names.into_iter().collect()
    };
    let Ok((files, release)) = follow(path, None, read, list) else {
        return false;
    };
    // The main file comes first, and each file once.
    assert_eq!(files[0].path, path);
    for (nth, file) in files.iter().enumerate() {
        assert!(files[..nth].iter().all(|other| other.path != file.path));
    }
    assert_absolute(&effective(&files, release).dirs);
    true
}

/// The verbose status of a runtime: the texts of `cniconfig` and `config`, in two lines.
pub fn statuses(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let (loaded, configured) = text.split_once('\n').unwrap_or((&text, ""));
    let info = [("cniconfig", loaded), ("config", configured)];
    let info = info.map(|(key, text)| (key.to_owned(), text.to_owned()));
    let found = status::reported(&info.into());
    for (_, dirs) in &found {
        assert_absolute(dirs);
        assert_ne!(*dirs, ReportedDirs::default());
    }
    !found.is_empty()
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn tables() {
        run("node_tables", super::tables);
    }

    #[test]
    fn imports() {
        run("node_imports", super::imports);
    }

    #[test]
    fn statuses() {
        run("node_statuses", super::statuses);
    }
}
