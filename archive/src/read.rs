//! Reads tar archives that are untrusted input: nothing is unpacked to a disk, and everything is bounded.
//!
//! Only regular files, directories and, where the caller allows them, symbolic links are accepted.
//! Hard links, devices, sparse files, paths that leave the directory and entries below a file or a link are refused.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
};

use tar::EntryType;

use crate::tar::{Entry, Kind, is_plain};

/// The limits that an archive must keep.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest number of entries.
    pub entries: usize,
    /// The largest number of bytes in all files together.
    pub total: u64,
    /// True to accept symbolic links.
    pub links: bool,
}

/// The reasons why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not a tar archive, or it is cut off.
    #[error("damaged tar archive")]
    Damaged(#[source] io::Error),
    /// An entry's path is absolute, empty, not UTF-8, or has an empty, `.` or `..` part.
    #[error("entry `{0}` would leave the directory it is unpacked to")]
    Path(String),
    /// A path occurs twice.
    #[error("entry `{0}` occurs twice")]
    Duplicate(String),
    /// An entry lies below a file or a link.
    #[error("entry `{0}` lies below an entry that is not a directory")]
    BelowFile(String),
    /// A hard link, a device, a sparse file, or a symbolic link where none is allowed.
    #[error("entry `{0}` is neither a file nor a directory")]
    Kind(String),
    /// More entries than allowed.
    #[error("archive holds more than {0} entries")]
    Entries(usize),
    /// More bytes than allowed.
    #[error("archive holds more than {0} bytes")]
    Total(u64),
}

/// The bits of a mode that an entry keeps.
const PERMISSIONS: u32 = 0o7777;

/// Reads all entries of an archive, in its order.
pub fn entries(bytes: &[u8], limits: &Limits) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    let mut is_dir = BTreeMap::new();
    let mut left = limits.total;
    for entry in tar::Archive::new(bytes).entries().map_err(Error::Damaged)? {
        if found.len() == limits.entries {
            return Err(Error::Entries(limits.entries));
        }
        let mut entry = entry.map_err(Error::Damaged)?;
        let path = path_of(&entry)?;
        for (slash, _) in path.match_indices('/') {
            if is_dir.get(&path[..slash]) == Some(&false) {
                return Err(Error::BelowFile(path));
            }
        }
        let kind = match entry.header().entry_type() {
            EntryType::Regular => {
                let size = entry.size();
                if size > left {
                    return Err(Error::Total(limits.total));
                }
                left -= size;
                Kind::File(read_exactly(&mut entry, size)?)
            }
            EntryType::Directory => Kind::Dir,
            EntryType::Symlink if limits.links => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = String::from_utf8(target.into_owned())
                    .map_err(|_| Error::Kind(path.clone()))?;
                Kind::Link(target)
            }
            _ => return Err(Error::Kind(path)),
        };
        if is_dir.insert(path.clone(), kind == Kind::Dir).is_some() {
            return Err(Error::Duplicate(path));
        }
        // Some writers put the type of the file above the permissions, as in a file system.
        let mode = entry.header().mode().map_err(Error::Damaged)? & PERMISSIONS;
        found.push(Entry { path, mode, kind });
    }
    Ok(found)
}

fn path_of<R: io::Read>(entry: &tar::Entry<'_, R>) -> Result<String, Error> {
    let bytes = entry.path_bytes();
    let text = String::from_utf8_lossy(&bytes);
    let is_dir = entry.header().entry_type() == EntryType::Directory;
    let path = if is_dir {
        text.strip_suffix('/').unwrap_or(&text)
    } else {
        &text
    };
    if is_plain(path) && std::str::from_utf8(&bytes).is_ok() {
        Ok(path.to_owned())
    } else {
        Err(Error::Path(text.into_owned()))
    }
}

/// Allocates no more than the archive really holds, whatever size the header claims.
fn read_exactly(from: &mut impl io::Read, size: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    from.take(size)
        .read_to_end(&mut bytes)
        .map_err(Error::Damaged)?;
    if bytes.len() as u64 == size {
        Ok(bytes)
    } else {
        Err(Error::Damaged(io::ErrorKind::UnexpectedEof.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        entries: 4,
        total: 100,
        links: false,
    };

    /// Writes an archive of entries that [`crate::tar::write`] would refuse.
    fn raw(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, kind, bytes) in entries {
            let mut header = tar::Header::new_ustar();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            if *kind == EntryType::Symlink || *kind == EntryType::Link {
                header.set_link_name_literal("/etc/shadow").unwrap();
            }
            header.set_cksum();
            out.extend_from_slice(header.as_bytes());
            out.extend_from_slice(bytes);
            out.resize(out.len().next_multiple_of(512), 0);
        }
        out.resize(out.len() + 1024, 0);
        out
    }

    fn check_refused(entries: &[(&str, EntryType, &[u8])], expected: &str) {
        let error = super::entries(&raw(entries), &LIMITS).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn written_archives_read_back_equal() {
        let entries = [
            Entry::dir("a", 0o755),
            Entry::file("a/x", 0o600, "text"),
            Entry::link("l", "a/x"),
        ];
        let bytes = crate::tar::write(&entries).unwrap();
        let limits = Limits {
            links: true,
            ..LIMITS
        };
        assert_eq!(super::entries(&bytes, &limits).unwrap(), entries);
    }

    #[test]
    fn mode_is_permissions_alone() {
        for (written, expected) in [(0o644, 0o644), (0o100_755, 0o755), (0o62_464_755, 0o4755)] {
            let mut header = tar::Header::new_ustar();
            header.set_path("x").unwrap();
            header.set_entry_type(EntryType::Regular);
            header.set_size(0);
            let digits = format!("{written:08o}");
            header.as_old_mut().mode.copy_from_slice(digits.as_bytes());
            header.set_cksum();
            let bytes = [header.as_bytes().as_slice(), &[0; 1024]].concat();
            assert_eq!(entries(&bytes, &LIMITS).unwrap()[0].mode, expected);
        }
    }

    #[test]
    fn malicious_archives_are_refused() {
        use EntryType::{Block, Directory, GNUSparse, Link, Regular, Symlink};
        for path in ["/etc/passwd", "../x", "a/../../x", "a//b", "./x", "x/"] {
            let text = format!("entry `{path}` would leave the directory it is unpacked to");
            check_refused(&[(path, Regular, b"")], &text);
        }
        for kind in [Symlink, Link, Block] {
            check_refused(
                &[("x", kind, b"")],
                "entry `x` is neither a file nor a directory",
            );
        }
        check_refused(&[("x", GNUSparse, b"")], "damaged tar archive");
        check_refused(
            &[("x", Regular, b""), ("x", Directory, b"")],
            "entry `x` occurs twice",
        );
        check_refused(
            &[("x", Regular, b""), ("x/y", Regular, b"")],
            "entry `x/y` lies below an entry that is not a directory",
        );
        check_refused(
            &[("x", Regular, &[0; 60]), ("y", Regular, &[0; 60])],
            "archive holds more than 100 bytes",
        );
        let many = ["a", "b", "c", "d", "e"].map(|path| (path, Regular, &b""[..]));
        check_refused(&many, "archive holds more than 4 entries");
    }

    #[test]
    fn entries_below_a_link_are_refused() {
        let bytes = raw(&[
            ("l", EntryType::Symlink, b""),
            ("l/x", EntryType::Regular, b""),
        ]);
        let limits = Limits {
            links: true,
            ..LIMITS
        };
        assert!(matches!(
            super::entries(&bytes, &limits),
            Err(Error::BelowFile(_))
        ));
    }

    #[test]
    fn truncated_archives_and_wrong_sizes_are_refused() {
        let bytes = raw(&[("x", EntryType::Regular, &[1; 80])]);
        for cut in [100, 512, 560] {
            assert!(
                matches!(
                    super::entries(&bytes[..cut], &LIMITS),
                    Err(Error::Damaged(_))
                ),
                "{cut}"
            );
        }
        let mut header = tar::Header::new_ustar();
        header.set_path("x").unwrap();
        header.set_mode(0o644);
        header.set_entry_type(EntryType::Regular);
        header.set_size(u64::MAX / 2);
        header.set_cksum();
        assert!(super::entries(header.as_bytes(), &LIMITS).is_err());
    }
}
