//! Fuzz targets of what runtimes say: any content of a node's files and of a status results in an error or in absolute paths.
//! `docs/fuzzing.md` says how they run.

use std::{fs, path::Path};

use crate::{
    command_line::CommandLine,
    containerd::{ConfigFile, Release, effective, gather, parse},
    crio,
    dirs::ReportedDirs,
    root::Root,
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
        table: parse(path, OTHER).expect("the other configuration is right"),
    };
    let files = [below, file];
    for (major, minor) in [(1, 6), (2, 0), (2, 1), (2, 3), (2, 4)] {
        let found = effective(&files, Release { major, minor });
        assert_absolute(&found.dirs);
        assert_eq!(found, effective(&files, Release { major, minor }));
    }
    let line = CommandLine::parse(b"crio");
    assert_absolute(&crio::effective(&files, &line));
    true
}

/// The configuration of a runtime with the files that it imports, below an empty directory of the caller.
pub fn imports(dir: &Path, input: &[u8]) -> bool {
    let path = Path::new("/etc/containerd/config.toml");
    let root = Root::open(dir).expect("the directory is there");
    if !dir.join("etc").exists() {
        for (path, content) in [
            ("/etc/containerd/conf.d/10.toml", OTHER),
            ("/etc/containerd/drop/10.toml", OTHER),
            ("/etc/containerd/other.toml", b"imports = [\"*.toml\"]\n"),
        ] {
            let path = Path::new(path);
            let parent = path.parent().expect("the file is in a directory");
            root.make_dirs(parent, 0o755)
                .expect("the directory is ours");
            root.write_atomic(path, content, 0o644)
                .expect("the directory is ours");
        }
    }
    let file = dir.join("etc/containerd/config.toml");
    fs::write(file, input).expect("the directory is ours");
    let Ok((files, release)) = gather(&root, path, None) else {
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
        let dir = tempfile::tempdir().unwrap();
        run("node_imports", |input| super::imports(dir.path(), input));
    }

    #[test]
    fn statuses() {
        run("node_statuses", super::statuses);
    }
}
