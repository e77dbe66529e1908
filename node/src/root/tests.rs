//! Paths that stay below the root, and atomic writes.

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
fn real_path_has_no_links_and_stays_inside() {
    let (dir, root) = root();
    let at = |path: &str| dir.path().join(path);
    root.make_dirs("/usr/bin", 0o755).unwrap();
    root.write_atomic("/usr/bin/k3s", b"x", 0o755).unwrap();
    symlink("/usr", at("link")).unwrap();
    symlink("../../../../link/bin", at("bin")).unwrap();
    symlink("/loop", at("loop")).unwrap();
    for (path, expected) in [
        ("/usr/bin/k3s", "/usr/bin/k3s"),
        ("/bin/k3s", "/usr/bin/k3s"),
        ("link/../usr/bin", "/usr/bin"),
        ("/link", "/usr"),
        ("/../..", "/"),
    ] {
        let real = root.real_path(path).unwrap();
        assert_eq!(real, Path::new(expected), "{path}");
    }
    assert!(root.real_path("/none").unwrap_err().is_not_found());
    assert!(root.real_path("/loop").is_err());
}

#[test]
fn write_replaces_a_link_and_not_its_target() {
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
fn temporary_file_of_a_crash_does_not_stop_a_write() {
    let (dir, root) = root();
    std::fs::write(dir.path().join(".multus-rs-a.tmp"), "half").unwrap();
    root.write_atomic("/a", b"whole", 0o600).unwrap();
    assert_eq!(root.list("/").unwrap(), ["a"]);
    assert!(root.remove("/a").unwrap());
    assert!(!root.remove("/a").unwrap());
    assert!(!root.remove("/no/such").unwrap());
}

#[test]
fn read_is_bounded() {
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

/// Records the waits for the disk, in order.
#[derive(Debug, Default)]
struct RecordedWaits(std::sync::Mutex<Vec<&'static str>>);

impl RecordedWaits {
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Disk for RecordedWaits {
    fn sync_data(&self, _: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
        self.0.lock().unwrap().push("data");
        Ok(())
    }

    fn sync_dir(&self, _: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
        self.0.lock().unwrap().push("dir");
        Ok(())
    }

    fn syncs_name_of_new_file(&self, _: std::os::fd::BorrowedFd<'_>) -> bool {
        false
    }
}

#[test]
fn writes_wait_for_the_disk_as_often_as_their_durability_says() {
    let (_dir, root) = root();
    let waits = Arc::new(RecordedWaits::default());
    let root = root.with_disk(Arc::clone(&waits) as _);
    root.make_dirs("/a/b", 0o700).unwrap();
    assert_eq!(waits.take(), ["dir", "dir"]);
    let dir = root.make_directory("/a/b", 0o700).unwrap();
    for (durability, expected) in [
        (Durability::Synced, &["data", "dir"][..]),
        (Durability::Complete, &["data"]),
        (Durability::Volatile, &[]),
    ] {
        dir.replace("c", b"x", 0o600, durability).unwrap();
        assert_eq!(waits.take(), expected, "{durability:?}");
    }
    root.write_atomic("/a/b/c", b"x", 0o600).unwrap();
    assert_eq!(waits.take(), ["data", "dir"]);
    assert!(root.remove("/a/b/c").unwrap());
    assert_eq!(waits.take(), ["dir"]);
    dir.create("c", b"half", 0o600).unwrap();
    dir.create("c", b"whole", 0o640).unwrap();
    assert_eq!(dir.read("c", 10).unwrap(), b"whole");
    assert!(root.remove_volatile("/a/b/c").unwrap());
    assert!(!root.remove("/a/b/c").unwrap());
    assert!(waits.take().is_empty());
    assert!(dir.list().unwrap().is_empty());
}

#[test]
fn name_of_a_new_file_needs_a_sync_of_its_own_on_other_file_systems() {
    let (_dir, root) = root();
    let other = File::open("/proc/self/stat").unwrap();
    assert!(!root.directory("/").unwrap().syncs_name_of(&other));
}

#[test]
fn files_are_renamed_and_empty_directories_removed() {
    let (_dir, root) = root();
    let dir = root.make_directory("/a/b", 0o700).unwrap();
    dir.create("c", b"1", 0o600).unwrap();
    dir.create("d", b"2", 0o600).unwrap();
    dir.rename("c", "d").unwrap();
    assert_eq!(dir.list().unwrap(), ["d"]);
    assert_eq!(dir.read("d", 10).unwrap(), b"1");
    assert!(dir.rename("c", "d").unwrap_err().is_not_found());
    root.remove_dir("/a/b").unwrap_err();
    dir.remove("d").unwrap();
    root.remove_dir("/a/b").unwrap();
    assert!(!root.exists("/a/b"));
}
