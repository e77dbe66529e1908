//! Paths that stay inside, and writes that are whole or not at all.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn root() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

#[test]
fn absolute_links_stay_inside() {
    let (dir, root) = root();
    root.make_dirs("/opt/cni/bin", 0o755).unwrap();
    root.write_atomic("/opt/cni/bin/cni", b"x", 0o755).unwrap();
    symlink("/opt/cni/bin/cni", dir.path().join("link")).unwrap();
    symlink("../../../../etc/passwd", dir.path().join("out")).unwrap();
    assert_eq!(root.read("/link", 10).unwrap(), b"x");
    assert!(root.read("/out", 1 << 20).unwrap_err().is_not_found());
    assert_eq!(root.kind("/link").unwrap(), Some(Kind::Symlink));
    assert_eq!(root.kind("/none").unwrap(), None);
}

#[test]
fn writing_replaces_a_link_and_not_its_target() {
    let (dir, root) = root();
    root.write_atomic("/target", b"theirs", 0o644).unwrap();
    symlink("/target", dir.path().join("name")).unwrap();
    root.write_atomic("/name", b"ours", 0o600).unwrap();
    assert_eq!(root.read("/target", 10).unwrap(), b"theirs");
    let mode = std::fs::metadata(dir.path().join("name"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(root.list("/").unwrap(), ["name", "target"]);
}

#[test]
fn a_leftover_of_a_crash_does_not_stop_writing() {
    let (dir, root) = root();
    std::fs::write(dir.path().join(".multus-rs-a.tmp"), "half").unwrap();
    root.write_atomic("/a", b"whole", 0o600).unwrap();
    assert_eq!(root.list("/").unwrap(), ["a"]);
    assert!(root.remove("/a").unwrap());
    assert!(!root.remove("/a").unwrap());
    assert!(!root.remove("/no/such").unwrap());
}

#[test]
fn sizes_are_bounded() {
    let (_dir, root) = root();
    root.write_atomic("/a", &[0; 11], 0o600).unwrap();
    assert!(
        root.read("/a", 10)
            .unwrap_err()
            .to_string()
            .contains("more than 10 bytes")
    );
    assert_eq!(root.read("/a", 11).unwrap().len(), 11);
}
