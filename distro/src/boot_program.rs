//! Checks that a program which systemd starts as root at each boot is there, and that no other user can change it.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use node::root::Root;

/// Directories that are emptied at boot or that hold media, by the Filesystem Hierarchy Standard 3.0.
const PASSING: [&str; 7] = [
    "/tmp", "/var/tmp", "/run", "/dev", "/proc", "/mnt", "/media",
];
/// Write permission of the group and of all others.
const WRITABLE: u32 = 0o022;

/// Fails unless the program and all directories on the way to it belong to the owner of the tree, and no other user may write them.
/// `is_explicit` allows directories that may be empty at the next boot.
pub(crate) fn check(root: &Root, program: &Path, is_explicit: bool) -> anyhow::Result<()> {
    let cure = format!(
        "copy it first: install -m 755 {} /usr/local/bin/multus-distro, and run that",
        program.display()
    );
    ensure!(
        root.is_executable(program),
        "{} is not a program: put it there first, since each start of the distro needs it",
        program.display()
    );
    let real = root.real_path(program)?;
    let passing = PASSING.iter().find(|dir| real.starts_with(dir));
    if let Some(dir) = passing.filter(|_| !is_explicit) {
        bail!(
            "{} is below {dir}, which may be empty at the next boot, and then the distro does not start: {cure}",
            real.display()
        );
    }
    let owner = root.owner()?;
    for path in real.ancestors() {
        let (user, group, mode) = root
            .access(path)
            .with_context(|| format!("{} is gone", path.display()))?;
        let writable = if group == 0 {
            WRITABLE & 0o002
        } else {
            WRITABLE
        };
        ensure!(
            user == owner && mode & writable == 0,
            "users other than root can change {0} (owner {user}, group {group}, mode {mode:04o}), and systemd would run the program as root at each boot: end that (chmod go-w {0}), or {cure}",
            path.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    #[test]
    fn a_program_that_others_may_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
        let mode = |path: &str, mode| {
            fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        let check = |path: &str, is_explicit| {
            check(&root, Path::new(path), is_explicit).map_err(|error| error.to_string())
        };
        for path in ["/usr/local/bin", "/home/me", "/media/stick", "/var/opt"] {
            fs::create_dir_all(at(path)).unwrap();
            fs::write(at(path).join("multus-distro"), "").unwrap();
            mode(&format!("{path}/multus-distro"), 0o755);
        }
        let refused = |path: &str, words: &str| {
            let error = check(path, false).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        check("/usr/local/bin/multus-distro", false).unwrap();
        refused("/usr/local/bin/other", "is not a program");
        refused("/media/stick/multus-distro", "below /media");
        check("/media/stick/multus-distro", true).unwrap();
        mode("/home/me/multus-distro", 0o777);
        refused("/home/me/multus-distro", "mode 0777");
        mode("/home/me/multus-distro", 0o755);
        mode("/home/me", 0o757);
        refused("/home/me/multus-distro", "change /home/me ");
        // The file behind a link counts, and every directory on the way to it.
        symlink("/var/opt", at("/opt")).unwrap();
        check("/opt/multus-distro", false).unwrap();
        symlink("../../../home/me/multus-distro", at("/usr/local/bin/link")).unwrap();
        refused("/usr/local/bin/link", "change /home/me ");
        symlink("/loop", at("/loop")).unwrap();
        refused("/loop", "is not a program");
    }
}
