//! ustar writing from values: owner 0, time 0, modes as given, nothing read from a disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use tar::{EntryType, Header};

/// One entry of an archive. `path` is relative, with `/` between its parts and none at either end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where the entry lies.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// What it is.
    pub kind: Kind,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file with these bytes.
    File(Vec<u8>),
    /// A directory.
    Dir,
    /// A symbolic link to this target.
    Link(String),
}

/// Why entries make no archive.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The path is empty, absolute, or has an empty, `.` or `..` part.
    #[error("`{0}` is not a plain relative path")]
    Path(String),
    /// ustar has no room for the path or the link's target.
    #[error("`{0}` is too long for a ustar header")]
    Long(String),
    /// A path occurs twice.
    #[error("`{0}` occurs twice")]
    Twice(String),
    /// A path lies below something that is no directory.
    #[error("`{0}` lies below something that is no directory")]
    BelowFile(String),
}

impl Entry {
    /// A regular file.
    pub fn file(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode,
            kind: Kind::File(bytes.into()),
        }
    }

    /// A directory.
    pub fn dir(path: impl Into<String>, mode: u32) -> Self {
        Self {
            path: path.into(),
            mode,
            kind: Kind::Dir,
        }
    }

    /// A symbolic link.
    pub fn link(path: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            mode: 0o777,
            kind: Kind::Link(target.into()),
        }
    }
}

/// Writes the entries sorted by path, each missing parent once (0755) before its children.
pub fn write(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let mut sorted = BTreeMap::new();
    for entry in entries {
        if !is_plain(&entry.path) {
            return Err(Error::Path(entry.path.clone()));
        }
        if sorted.insert(entry.path.clone(), entry.clone()).is_some() {
            return Err(Error::Twice(entry.path.clone()));
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

/// Writes the entries as they stand: this order, no parents added.
pub fn write_in_order(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let mut writer = Writer::new(Vec::new());
    for entry in entries {
        writer.add(entry)?.expect("a Vec takes every write");
    }
    Ok(writer.finish().expect("a Vec takes every write"))
}

/// Writes entries as they come, without holding more than one of them.
pub struct Writer<W> {
    out: W,
    seen: BTreeSet<String>,
}

impl<W: io::Write> Writer<W> {
    /// Begins an archive.
    pub fn new(out: W) -> Self {
        Self {
            out,
            seen: BTreeSet::new(),
        }
    }

    /// Writes one entry. The outer error is the entry's, the inner one that of what is written to.
    pub fn add(&mut self, entry: &Entry) -> Result<io::Result<()>, Error> {
        if !is_plain(&entry.path) {
            return Err(Error::Path(entry.path.clone()));
        }
        if !self.seen.insert(entry.path.clone()) {
            return Err(Error::Twice(entry.path.clone()));
        }
        let header = header(entry)?;
        Ok(self.write(header.as_bytes(), entry))
    }

    fn write(&mut self, header: &[u8], entry: &Entry) -> io::Result<()> {
        self.out.write_all(header)?;
        if let Kind::File(bytes) = &entry.kind {
            self.out.write_all(bytes)?;
            self.out.write_all(&BLOCK[..padding(bytes.len())])?;
        }
        Ok(())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&BLOCK)?;
        self.out.write_all(&BLOCK)?;
        Ok(self.out)
    }
}

/// What archives are made of.
const BLOCK: [u8; 512] = [0; 512];

fn padding(len: usize) -> usize {
    len.next_multiple_of(BLOCK.len()) - len
}

/// Bytes of the archive of these entries.
pub fn size(entries: &[Entry]) -> u64 {
    let blocks = entries.iter().map(|entry| match &entry.kind {
        Kind::File(bytes) => 1 + bytes.len().div_ceil(BLOCK.len()),
        Kind::Dir | Kind::Link(_) => 1,
    });
    (blocks.sum::<usize>() as u64 + 2) * BLOCK.len() as u64
}

/// Whether a path is relative and has no empty, `.` or `..` part, so that it stays below the folder it is joined to.
pub fn is_plain(path: &str) -> bool {
    !path.contains(['\\', '\0']) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn header(entry: &Entry) -> Result<Header, Error> {
    let long = |text: &str| Error::Long(text.to_owned());
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
    fn order_of_input_does_not_matter() {
        let one = Entry::file("b/c/x", 0o644, "1");
        let two = Entry::file("b-", 0o755, "2");
        let three = Entry::link("a", "b/c/x");
        let forward = write(&[one.clone(), two.clone(), three.clone()]).unwrap();
        assert_eq!(forward, write(&[three, two, one]).unwrap());
        assert_eq!(names(&forward), ["a", "b/", "b-", "b/c/", "b/c/x"]);
    }

    #[test]
    fn header_is_ustar_and_tells_nothing() {
        let bytes = write(&[Entry::file("x", 0o644, "abc")]).unwrap();
        assert_eq!(bytes.len(), 512 + 512 + 1024);
        assert_eq!(size(&[Entry::file("x", 0o644, "abc")]), 2048);
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
    fn given_order_is_kept() {
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
        check_refused(&[x.clone(), x.clone()], &Error::Twice("x".into()));
        let below = Entry::file("x/y", 0o644, "");
        check_refused(&[x, below], &Error::BelowFile("x/y".into()));
        let long = "n".repeat(101);
        let entry = Entry::file(long.clone(), 0o644, "");
        check_refused(&[entry], &Error::Long(long));
    }
}
