//! Files as on real nodes. Expected is the output of `containerd config dump` of 1.6.20 and 2.4.2 for the same files.

use std::path::{Path, PathBuf};

use super::*;
use crate::root::Root;

const OLD: Release = Release { major: 1, minor: 6 };
const NEW: Release = Release { major: 2, minor: 4 };

struct Node {
    _dir: tempfile::TempDir,
    root: Root,
}

fn node(files: &[(&str, &str)]) -> Node {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    for (path, text) in files {
        let path = Path::new("/c").join(path);
        root.make_dirs(path.parent().unwrap(), 0o755).unwrap();
        root.write_atomic(&path, text.as_bytes(), 0o644).unwrap();
    }
    Node { _dir: dir, root }
}

impl Node {
    fn read(&self, release: Option<Release>) -> Effective {
        let (files, release) = gather(&self.root, Path::new("/c/config.toml"), release).unwrap();
        effective(&files, release)
    }

    fn error(&self) -> String {
        let error = gather(&self.root, Path::new("/c/config.toml"), None).unwrap_err();
        error.to_string()
    }
}

/// The plugin directories, separated by commas, and the configuration directory.
fn dirs(effective: &Effective) -> (String, &str) {
    let bins: Vec<_> = effective
        .dirs
        .bin_dirs
        .iter()
        .map(|dir| dir.to_str().unwrap())
        .collect();
    let conf = effective
        .dirs
        .conf_dir
        .as_ref()
        .map_or("", |dir| dir.to_str().unwrap());
    (bins.join(","), conf)
}

fn check(files: &[(&str, &str)], old: (&str, &str), new: (&str, &str)) {
    let node = node(files);
    for (release, (bins, conf)) in [(OLD, old), (NEW, new)] {
        let found = node.read(Some(release));
        assert_eq!(
            dirs(&found),
            (bins.to_owned(), conf),
            "{release:?} {files:?}"
        );
    }
}

const DEFAULT: (&str, &str) = ("/opt/cni/bin", "/etc/cni/net.d");
const MAIN_2: &str = r#"
version = 2
imports = ["/c/d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/main/bin"
  conf_dir = "/main/conf"
"#;

#[test]
fn each_config_version_has_its_table() {
    let one = "[plugins.cri.cni]\nbin_dir = '/a'\nconf_dir = '/b'\n";
    check(&[("config.toml", one)], ("/a", "/b"), ("/a", "/b"));
    let one_with_the_name_of_two =
        "version = 1\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/a'\n";
    check(
        &[("config.toml", one_with_the_name_of_two)],
        DEFAULT,
        ("/a", "/etc/cni/net.d"),
    );
    check(
        &[("config.toml", MAIN_2)],
        ("/main/bin", "/main/conf"),
        ("/main/bin", "/main/conf"),
    );
    let three = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/a', '/b']\nconf_dir = '/c'\n";
    check(&[("config.toml", three)], DEFAULT, ("/a,/b", "/c"));
    let three_with_the_table_of_two =
        "version = 3\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/a'\nconf_dir = '/b'\n";
    check(
        &[("config.toml", three_with_the_table_of_two)],
        ("/a", "/b"),
        ("/a", "/b"),
    );
    let none = "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/a']\n";
    check(&[("config.toml", none)], DEFAULT, ("/a", "/etc/cni/net.d"));
    let four = "version = 4\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/a']\n[plugins.'io.containerd.server.v1.grpc']\naddress = '/s'\n";
    check(&[("config.toml", four)], DEFAULT, ("/a", "/etc/cni/net.d"));
    assert_eq!(
        node(&[("config.toml", four)]).read(None).address(),
        Path::new("/s")
    );
}

#[test]
fn missing_keys_mean_built_in_directories_and_empty_ones_do_not() {
    check(&[("config.toml", "")], DEFAULT, DEFAULT);
    assert_eq!(
        dirs(&effective(&[], NEW)),
        ("/opt/cni/bin".to_owned(), "/etc/cni/net.d")
    );
    let empty =
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = ''\nconf_dir = ''\n";
    check(&[("config.toml", empty)], ("", ""), ("", ""));
    let empty =
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = []\nconf_dir = ''\n";
    check(&[("config.toml", empty)], DEFAULT, ("", ""));
}

#[test]
fn bin_dir_and_bin_dirs_count_by_release() {
    let text =
        |keys: &str| format!("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n{keys}\n");
    let one = text("bin_dir = '/one'");
    let list = text("bin_dirs = ['/list']");
    for (minor, bin_dir, bin_dirs) in [
        (0, "/one", "/opt/cni/bin"),
        (1, "/one", "/list"),
        (3, "/one", "/list"),
        (4, "/opt/cni/bin", "/list"),
    ] {
        let release = Some(Release { major: 2, minor });
        for (text, expected) in [(&one, bin_dir), (&list, bin_dirs)] {
            let found = node(&[("config.toml", text)]).read(release);
            assert_eq!(dirs(&found).0, expected, "2.{minor} {text}");
            let is_odd = expected == "/opt/cni/bin";
            assert_eq!(found.notes.is_empty(), !is_odd, "{:?}", found.notes);
        }
    }
}

#[test]
fn drop_in_replaces_the_table_in_1_x_and_merges_in_2_x() {
    let drop_in = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/drop/bin'\n";
    let files = [("config.toml", MAIN_2), ("d/10.toml", drop_in)];
    check(
        &files,
        ("/drop/bin", "/etc/cni/net.d"),
        ("/drop/bin", "/main/conf"),
    );
    let notes = node(&files).read(Some(OLD)).notes;
    assert!(
        notes[0].contains("only from /c/d/10.toml") && notes.len() == 1,
        "{notes:?}"
    );
    let other = "version = 2\n[plugins.other]\nx = 1\n";
    let main = ("/main/bin", "/main/conf");
    check(&[("config.toml", MAIN_2), ("d/10.toml", other)], main, main);
}

#[test]
fn array_is_replaced_and_files_may_differ_in_version() {
    let main = "version = 3\nimports = ['d/*.toml']\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/a', '/b']\nconf_dir = '/main'\n";
    let three =
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/drop', '/b']\n";
    let two = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/old'\n";
    let dirs_of = |name: &str, text: &str| {
        let found = node(&[("config.toml", main), (name, text)]).read(Some(NEW));
        (dirs(&found).0, dirs(&found).1.to_owned())
    };
    assert_eq!(
        dirs_of("d/1.toml", three),
        ("/drop,/b".into(), "/main".into())
    );
    assert_eq!(dirs_of("d/1.toml", two), ("/old".into(), "/main".into()));
    assert_eq!(
        dirs_of("d/1.toml.bak", two),
        ("/a,/b".into(), "/main".into())
    );
}

#[test]
fn imports_are_read_breadth_first_and_once() {
    let conf = |dir: &str, imports: &str| {
        format!(
            "version = 3\nimports = [{imports}]\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '{dir}'\n"
        )
    };
    let files = [
        (
            "config.toml",
            conf("/main", "'x/a.toml', 'x/b.toml', 'config.toml'"),
        ),
        (
            "x/a.toml",
            conf("/a", "'c.toml', '../config.toml', './b.toml'"),
        ),
        ("x/b.toml", conf("/b", "")),
        ("x/c.toml", conf("/deep", "")),
    ];
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    let node = node(&files);
    let (read, _) = gather(&node.root, Path::new("/c/config.toml"), Some(NEW)).unwrap();
    let paths: Vec<_> = read.iter().map(|file| file.path.as_path()).collect();
    let expected = [
        "/c/config.toml",
        "/c/x/a.toml",
        "/c/x/b.toml",
        "/c/x/c.toml",
    ];
    assert_eq!(paths, expected.map(Path::new));
    assert_eq!(dirs(&effective(&read, NEW)).1, "/deep");
}

#[test]
fn relative_pattern_is_resolved_in_2_x_only() {
    let main = MAIN_2.replace("/c/d/", "d/");
    let drop_in = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/drop/bin'\n";
    check(
        &[("config.toml", &main), ("d/10.toml", drop_in)],
        ("/main/bin", "/main/conf"),
        ("/drop/bin", "/main/conf"),
    );
}

#[test]
fn handlers_may_have_directories_of_their_own() {
    let text = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\ncni_conf_dir = '/kata'\n\
                [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\ncni_conf_dir = ''\n\
                [plugins.'io.containerd.cri.v1.runtime'.cni]\nmax_conf_num = 2\n";
    let dirs = node(&[("config.toml", text)]).read(None).dirs;
    let expected = [("kata".to_owned(), PathBuf::from("/kata"))];
    assert_eq!(dirs.handlers, expected.into());
    assert_eq!(dirs.max_conf_num, Some(2));
}

#[test]
fn errors_name_the_file_and_the_limit() {
    let deep: Vec<(String, String)> = (0..10)
        .map(|level| {
            (
                format!("{level}.toml"),
                format!("imports = ['{}.toml']", level + 1),
            )
        })
        .collect();
    let mut deep: Vec<_> = deep.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    deep.push(("config.toml", "version = 3\nimports = ['0.toml']"));
    let many: Vec<String> = (0..70).map(|index| format!("d/{index}.toml")).collect();
    let mut many: Vec<_> = many.iter().map(|path| (path.as_str(), "")).collect();
    many.push(("config.toml", "version = 3\nimports = ['d/*.toml']"));
    let large = "#".repeat((1 << 20) + 1);
    for (files, part) in [
        (&[][..], "cannot read /c/config.toml"),
        (
            &[("config.toml", "version = 3\nx = [")],
            "/c/config.toml is not TOML: line 2",
        ),
        (
            &[("config.toml", "imports = ['none.toml']")],
            "cannot read /c/none.toml",
        ),
        (&[("config.toml", &large)], "more than 1048576 bytes"),
        (
            &deep,
            "/c/7.toml imports more than multus-rs follows (8 levels)",
        ),
        (&many, "64 files"),
    ] {
        let error = node(files).error();
        assert!(error.contains(part), "{error}");
    }
    let node = node(&[]);
    let error = gather(&node.root, Path::new("config.toml"), None).unwrap_err();
    assert!(error.to_string().contains("relative"));
}

#[test]
fn link_out_of_the_node_stays_inside() {
    let node = node(&[("config.toml", "version = 3\nimports = ['link/*.toml']")]);
    let link = node.root.name().join("c/link");
    std::os::unix::fs::symlink("/../../../../../../etc", link).unwrap();
    let (files, _) = gather(&node.root, Path::new("/c/config.toml"), None).unwrap();
    assert_eq!(files.len(), 1);
}

#[test]
fn releases_are_parsed() {
    for (text, expected) in [
        ("v2.4.2", Some(NEW)),
        ("1.6.20~ds1", Some(OLD)),
        ("v1.7.27-k3s1", Some(Release { major: 1, minor: 7 })),
        ("2.1-beta", Some(Release { major: 2, minor: 1 })),
        ("unknown", None),
        ("0.0.0", None),
        ("", None),
    ] {
        assert_eq!(Release::parse(text), expected, "{text}");
    }
}

#[test]
fn older_table_of_streaming_keys_alone_is_no_note() {
    let notes = |key: &str| {
        let text =
            format!("version = 3\n[plugins.'io.containerd.grpc.v1.cri']\n{key} = \"127.0.0.1\"\n");
        node(&[("config.toml", &text)]).read(Some(NEW)).notes
    };
    // As K3s writes it.
    assert_eq!(notes("stream_server_address"), [""; 0]);
    let other = notes("sandbox_image");
    assert!(other[0].contains("the table of version 2"), "{other:?}");
}
