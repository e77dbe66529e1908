//! Resolves paths as openat2 does with `RESOLVE_IN_ROOT`, one component at a time: for kernels before 5.6, and for filters of system calls
//! that do not know openat2. The kernel follows no link in a step, and `..` returns to the directory before, so no path leads outside.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, openat, readlinkat},
    io::{Errno, Result},
};

/// The most links in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Opens a path below `root`; `flags` are those of openat, without any that creates files.
pub(super) fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let mut remaining = reversed(path.as_os_str().as_bytes());
    // The directories from the root to here.
    let mut parents: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    while let Some(name) = remaining.pop() {
        if name == "." {
            continue;
        }
        if name == ".." {
            parents.pop();
            continue;
        }
        let dir = parents.last().map_or(root, AsFd::as_fd);
        let found = openat(
            dir,
            &name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let is_last = remaining.is_empty();
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::Directory => parents.push(found),
            FileType::Symlink if is_last && flags.contains(OFlags::NOFOLLOW) => {
                return if flags.contains(OFlags::DIRECTORY) {
                    Err(Errno::NOTDIR)
                } else if flags.contains(OFlags::PATH) {
                    Ok(found)
                } else {
                    Err(Errno::LOOP)
                };
            }
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                let target = readlinkat(&found, "", Vec::new())?;
                if target.as_bytes().starts_with(b"/") {
                    parents.clear();
                }
                remaining.extend(reversed(target.as_bytes()));
            }
            _ if !is_last || flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            _ if flags.contains(OFlags::PATH) => return Ok(found),
            // A link that replaced the file meanwhile is not followed.
            _ => return openat(dir, &name, with(flags), Mode::empty()),
        }
    }
    let dir = parents.last().map_or(root, AsFd::as_fd);
    openat(dir, ".", with(flags), Mode::empty())
}

fn with(flags: OFlags) -> OFlags {
    flags | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Returns the components of a path, the last one first. A trailing slash becomes `.`, since the component before it has to be a
/// directory; other empty components and `.` are dropped.
fn reversed(path: &[u8]) -> Vec<OsString> {
    let mut parts = path.rsplit(|byte| *byte == b'/');
    let last = match parts.next() {
        None | Some(b"") => OsStr::new("."),
        Some(name) => OsStr::from_bytes(name),
    };
    let others = parts.filter(|part| !matches!(*part, b"" | b"."));
    let all = std::iter::once(last).chain(others.map(OsStr::from_bytes));
    all.map(OsStr::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use testkit::fuzz::{Random, repeat};

    use super::{super::open_in_root, *};

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    /// A path of a few names, with `..` and `.` among them; some begin at the root.
    fn random_path(random: &mut Random) -> String {
        let mut path = random.pick(&["", "/"]).to_owned();
        for _ in 0..=random.below(4) {
            let up = ["..", "."][random.below(2)];
            let name = if random.below(4) == 0 {
                up
            } else {
                random.pick(&NAMES)
            };
            path.push_str(name);
            path.push('/');
        }
        // Some paths end in a slash, which demands a directory.
        if random.below(4) > 0 {
            path.pop();
        }
        path
    }

    /// Fills a directory with files, links and directories.
    fn fill(dir: &Path, depth: usize, random: &mut Random) {
        for name in NAMES {
            let path = dir.join(name);
            match random.below(5) {
                0 => std::fs::write(path, "").unwrap(),
                1 | 2 => symlink(random_path(random), path).unwrap(),
                3 if depth > 0 => {
                    std::fs::create_dir(&path).unwrap();
                    fill(&path, depth - 1, random);
                }
                _ => {}
            }
        }
    }

    /// The identity of the opened file, or the error.
    fn identity(opened: Result<OwnedFd>) -> Result<(u64, u64)> {
        let stat = fstat(opened?)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    #[test]
    fn paths_resolve_as_with_openat2() {
        let (mut opened, mut refused) = (0, 0);
        repeat(20, |random| {
            let outer = tempfile::tempdir().unwrap();
            let root = outer.path().join("root");
            std::fs::create_dir(&root).unwrap();
            // The directory outside the root has the same names.
            fill(outer.path(), 0, random);
            fill(&root, 3, random);
            let root = std::fs::File::open(&root).unwrap();
            for _ in 0..100 {
                let path = random_path(random);
                let path = match path.trim_start_matches('/') {
                    "" => ".",
                    path => path,
                };
                for flags in [
                    OFlags::PATH,
                    OFlags::PATH | OFlags::NOFOLLOW,
                    OFlags::PATH | OFlags::DIRECTORY,
                    OFlags::RDONLY,
                    OFlags::RDONLY | OFlags::NOFOLLOW,
                    OFlags::RDONLY | OFlags::DIRECTORY,
                ] {
                    let path = Path::new(path);
                    let kernels = identity(open_in_root(root.as_fd(), path, flags));
                    let ours = identity(open(root.as_fd(), path, flags));
                    assert_eq!(ours, kernels, "{} {flags:?}", path.display());
                    *if ours.is_ok() {
                        &mut opened
                    } else {
                        &mut refused
                    } += 1;
                }
            }
        });
        assert!(
            opened > 1000 && refused > 1000,
            "{opened} opened, {refused} refused"
        );
    }
}
