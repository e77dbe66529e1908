//! Writes ustar archives from values: owner 0, time 0, the modes of the entries; nothing is read from a disk.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
};

use tar::{EntryType, Header};

/// One entry of an archive. `path` is relative, with `/` between its parts and none at either end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path in the archive.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// File, directory or link, with its content.
    pub kind: Kind,
}

/// The kind of an entry and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file with these bytes.
    File(Vec<u8>),
    /// A directory.
    Dir,
    /// A symbolic link to this target.
    Link(String),
}

/// The reasons why entries cannot be written.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The path is empty, absolute, or has an empty, `.` or `..` part.
    #[error("`{0}` is not a plain relative path")]
    Path(String),
    /// ustar has no room for the path or the link's target.
    #[error("`{0}` is too long for a ustar header")]
    TooLong(String),
    /// A path occurs twice.
    #[error("`{0}` occurs twice")]
    Duplicate(String),
    /// A path lies below a file or a link.
    #[error("`{0}` lies below an entry that is not a directory")]
    BelowFile(String),
}

impl Entry {
    /// Makes a regular file.
    pub fn file(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode,
            kind: Kind::File(bytes.into()),
        }
    }

    /// Makes a directory.
    pub fn dir(path: impl Into<String>, mode: u32) -> Self {
        Self {
            path: path.into(),
            mode,
            kind: Kind::Dir,
        }
    }

    /// Makes a symbolic link of mode 0777.
    pub fn link(path: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            mode: 0o777,
            kind: Kind::Link(target.into()),
        }
    }
}

/// Writes the entries sorted by path, and each missing parent directory once (0755) before its children.
pub fn write(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let mut sorted = BTreeMap::new();
    for entry in entries {
        if !is_plain(&entry.path) {
            return Err(Error::Path(entry.path.clone()));
        }
        if sorted.insert(entry.path.clone(), entry.clone()).is_some() {
            return Err(Error::Duplicate(entry.path.clone()));
        }
    }
    for entry in entries {
        for (slash, _) in entry.path.match_indices('/') {
            let parent = &entry.path[..slash];
            let found = sorted
                .entry(parent.to_owned())
                .or_insert_with(|| Entry::dir(parent, 0o755));
            if found.kind != Kind::Dir {
                return Err(Error::BelowFile(entry.path.clone()));
            }
        }
    }
    let sorted: Vec<Entry> = sorted.into_values().collect();
    write_in_order(&sorted)
}

/// Writes the entries in their own order and adds no parent directories. The caller may give one after the other away.
pub fn write_in_order<E: Borrow<Entry>>(
    entries: impl IntoIterator<Item = E>,
) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in entries {
        let entry = entry.borrow();
        if !is_plain(&entry.path) {
            return Err(Error::Path(entry.path.clone()));
        }
        if !seen.insert(entry.path.clone()) {
            return Err(Error::Duplicate(entry.path.clone()));
        }
        out.extend_from_slice(header(entry)?.as_bytes());
        if let Kind::File(bytes) = &entry.kind {
            out.extend_from_slice(bytes);
            out.resize(out.len().next_multiple_of(BLOCK), 0);
        }
    }
    // The end is two empty blocks.
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

/// Headers and contents fill multiples of this block.
const BLOCK: usize = 512;

/// Returns true for a relative path without an empty, `.` or `..` part: it stays below the directory that it is joined to.
pub fn is_plain(path: &str) -> bool {
    !path.contains(['\\', '\0']) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn header(entry: &Entry) -> Result<Header, Error> {
    let long = |text: &str| Error::TooLong(text.to_owned());
    let mut header = Header::new_ustar();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_mode(entry.mode);
    let (kind, size, suffix) = match &entry.kind {
        Kind::File(bytes) => (EntryType::Regular, bytes.len() as u64, ""),
        Kind::Dir => (EntryType::Directory, 0, "/"),
        Kind::Link(target) => {
            header
                .set_link_name_literal(target)
                .map_err(|_| long(target))?;
            (EntryType::Symlink, 0, "")
        }
    };
    header.set_entry_type(kind);
    header.set_size(size);
    header
        .set_path(format!("{}{suffix}", entry.path))
        .map_err(|_| long(&entry.path))?;
    header
        .set_device_major(0)
        .and_then(|()| header.set_device_minor(0))
        .expect("a ustar header has device fields");
    header.set_cksum();
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Vec<String> {
        ::tar::Archive::new(bytes)
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect()
    }

    #[test]
    fn order_of_input_does_not_change_the_archive() {
        let one = Entry::file("b/c/x", 0o644, "1");
        let two = Entry::file("b-", 0o755, "2");
        let three = Entry::link("a", "b/c/x");
        let forward = write(&[one.clone(), two.clone(), three.clone()]).unwrap();
        assert_eq!(forward, write(&[three, two, one]).unwrap());
        assert_eq!(names(&forward), ["a", "b/", "b-", "b/c/", "b/c/x"]);
    }

    #[test]
    fn header_is_ustar_without_owner_and_time() {
        let bytes = write(&[Entry::file("x", 0o644, "abc")]).unwrap();
        assert_eq!(bytes.len(), 512 + 512 + 1024);
        assert_eq!(&bytes[257..265], b"ustar\x0000");
        let header = Header::from_byte_slice(&bytes[..512]);
        assert_eq!(
            (header.uid().unwrap(), header.gid().unwrap()),
            (0, 0),
            "owner"
        );
        assert_eq!(header.mtime().unwrap(), 0);
        assert_eq!(header.username_bytes(), Some(&b""[..]));
        assert_eq!(header.groupname_bytes(), Some(&b""[..]));
    }

    #[test]
    fn write_in_order_keeps_the_order_of_entries() {
        let entries = [
            Entry::file("z", 0o644, ""),
            Entry::dir("a", 0o755),
            Entry::file("a/b", 0o644, ""),
        ];
        assert_eq!(
            names(&write_in_order(&entries).unwrap()),
            ["z", "a/", "a/b"]
        );
    }

    fn check_refused(entries: &[Entry], expected: &Error) {
        assert_eq!(&write(entries).unwrap_err(), expected);
    }

    #[test]
    fn bad_entries_are_refused() {
        for path in ["", "/etc/x", "a//b", "./a", "a/../b", "a/", "a\\b"] {
            let entry = Entry::file(path, 0o644, "");
            check_refused(&[entry], &Error::Path(path.to_owned()));
        }
        let x = Entry::file("x", 0o644, "");
        check_refused(&[x.clone(), x.clone()], &Error::Duplicate("x".into()));
        let below = Entry::file("x/y", 0o644, "");
        check_refused(&[x, below], &Error::BelowFile("x/y".into()));
        let long = "n".repeat(101);
        let entry = Entry::file(long.clone(), 0o644, "");
        check_refused(&[entry], &Error::TooLong(long));
    }
}
