//! Bounded fuzzing of runtimes' TOML: any content of a node's files results in an error or in absolute paths.

use std::{fs, path::Path};

use testkit::fuzz::{changed, run};

use crate::{
    command_line::CommandLine,
    containerd::{ConfigFile, Release, effective, gather, parse},
    crio,
    dirs::ReportedDirs,
    root::Root,
};

const OLD: &[u8] = br#"version = 2
imports = ["/etc/containerd/conf.d/*.toml", "other.toml"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/etc/cni/net.d"
  max_conf_num = 1
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.own]
  cni_conf_dir = "/own"
"#;
const NEW: &[u8] = br#"version = 3
imports = ["drop/*.toml"]
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/var/lib/rancher/k3s/data/cni", "/opt/cni/bin"]
  conf_dir = "/var/lib/rancher/k3s/agent/etc/cni/net.d"
[plugins.'io.containerd.server.v1.grpc']
  address = "/run/k3s/containerd/containerd.sock"
"#;
const CRIO: &[u8] = br#"[crio.network]
network_dir = "/etc/cni/net.d/"
plugin_dirs = ["/opt/cni/bin/", "/usr/libexec/cni"]
plugin_dir = "/old"
"#;
const WORDS: &[&str] = &[
    "\n",
    "\"",
    "'",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    ".",
    ",",
    "#",
    "/",
    "..",
    "*",
    "**",
    "\\",
    "\0",
    "é",
    "version",
    "version = 4\n",
    "imports",
    "plugins",
    "cri",
    "cni",
    "bin_dir",
    "bin_dirs",
    "conf_dir",
    "io.containerd.grpc.v1.cri",
    "containerd.runtimes",
    "1979-05-27",
    "-1",
    "9223372036854775808",
    "true",
    "crio",
    "network",
    "plugin_dirs",
];

fn assert_absolute(reported: &ReportedDirs) {
    let dirs = reported.bin_dirs.iter().chain(&reported.conf_dir);
    let dirs = dirs.chain(reported.handlers.values());
    for dir in dirs {
        assert!(dir.is_absolute(), "{}", dir.display());
    }
}

#[test]
fn fuzz_tables() {
    let samples = [OLD, NEW, CRIO];
    run(
        |random| changed(&samples, WORDS, random),
        |input| {
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
                table: parse(path, NEW).unwrap(),
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
        },
    );
}

#[test]
fn fuzz_imports() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    for dir in ["/etc/containerd/conf.d", "/etc/containerd/drop"] {
        root.make_dirs(dir, 0o755).unwrap();
        let path = Path::new(dir).join("10.toml");
        root.write_atomic(&path, NEW, 0o644).unwrap();
    }
    root.write_atomic(
        "/etc/containerd/other.toml",
        b"imports = [\"*.toml\"]\n",
        0o644,
    )
    .unwrap();
    let path = Path::new("/etc/containerd/config.toml");
    run(
        |random| changed(&[OLD, NEW], WORDS, random),
        |input| {
            fs::write(dir.path().join("etc/containerd/config.toml"), input).unwrap();
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
        },
    );
}
