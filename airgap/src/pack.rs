//! Archives in one pass: entries become tar, tar becomes zstd, and what is written is hashed on its way.
//!
//! Entries are had a few ahead, on a thread of their own beside zstd's workers. They are blobs, which have their digests for names
//! since their image was made, and are not hashed again.

use std::{
    io::{self, Write},
    sync::mpsc::sync_channel,
    thread,
};

use archive::{
    digest::{Digest, Hasher},
    tar::{self, Entry, Writer},
};

use crate::zstd::{self, Settings};

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The entries make no archive.
    #[error(transparent)]
    Tar(#[from] tar::Error),
    /// The place cannot be written to, or an entry cannot be had.
    #[error("cannot write the archive")]
    Io(#[from] io::Error),
}

/// Entries that wait to be packed.
const AHEAD: usize = 4;
/// Bytes that are still in a processor's cache when they are hashed.
const PIECE: usize = 128 << 10;

/// Writes everything on, and hashes it.
pub struct Hashing<W> {
    out: W,
    hasher: Hasher,
    len: u64,
}

impl<W> Hashing<W> {
    /// Nothing so far.
    pub fn new(out: W) -> Self {
        Self {
            out,
            hasher: Hasher::default(),
            len: 0,
        }
    }

    /// What was written to, its hash and its length.
    pub fn finish(self) -> (W, Digest, u64) {
        (self.out, self.hasher.finish(), self.len)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(&bytes[..bytes.len().min(PIECE)])?;
        self.hasher.update(&bytes[..len]);
        self.len += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Hash of the compressed archive.
    pub digest: Digest,
    /// Its bytes.
    pub len: u64,
}

/// Writes an archive of `size` bytes ([`tar::size`]) whose entries come one by one.
pub fn write<W: Write>(
    entries: impl IntoIterator<Item = io::Result<Entry>, IntoIter: Send>,
    size: u64,
    settings: Settings,
    out: W,
) -> Result<(W, Packed), Error> {
    let encoder = zstd::encoder(Hashing::new(out), size, settings)?;
    let (give, take) = sync_channel(AHEAD);
    let mut entries = entries.into_iter();
    thread::scope(|scope| {
        // Ends with the entries, or when nobody takes them any more.
        scope.spawn(move || entries.try_for_each(|entry| give.send(entry)));
        let mut writer = Writer::new(encoder);
        for entry in take {
            writer.add(&entry?)??;
        }
        let (out, digest, len) = writer.finish()?.finish()?.finish();
        Ok((out, Packed { digest, len }))
    })
}

/// The same in memory.
pub fn bytes(entries: &[Entry], settings: Settings) -> Result<(Vec<u8>, Packed), Error> {
    let size = tar::size(entries);
    write(entries.iter().cloned().map(Ok), size, settings, Vec::new())
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;

    #[test]
    fn one_pass_makes_what_two_make() {
        let entries = [
            Entry::dir("a", 0o755),
            Entry::file("a/b", 0o644, vec![7; 70_000]),
            Entry::link("a/c", "b"),
        ];
        let (packed, facts) = bytes(&entries, zstd::ARCHIVE).unwrap();
        let tar = tar::write_in_order(&entries).unwrap();
        assert_eq!(packed, zstd::compress(&tar, zstd::ARCHIVE).unwrap());
        assert_eq!(facts.digest, sha256(&packed));
        assert_eq!(facts.len, packed.len() as u64);
    }

    #[test]
    fn an_entry_that_makes_no_archive_is_named() {
        let entries = [Entry::file("a", 0o644, "1"), Entry::file("../b", 0o644, "")];
        let error = bytes(&entries, zstd::ARCHIVE).unwrap_err();
        assert!(matches!(error, Error::Tar(tar::Error::Path(path)) if path == "../b"));
    }

    #[test]
    fn a_size_that_is_not_true_is_refused() {
        let entries = [Entry::file("a", 0o644, "1")];
        let size = tar::size(&entries) + 512;
        let outcome = write(entries.map(Ok), size, zstd::ARCHIVE, Vec::new());
        assert!(matches!(outcome, Err(Error::Io(_))));
    }

    #[test]
    fn an_entry_that_cannot_be_had_ends_it() {
        // Many more than wait: nobody is left behind who would give them.
        let first = Err(io::Error::from(io::ErrorKind::NotFound));
        let others = (0..100).map(|nth| Ok(Entry::file(nth.to_string(), 0o644, "")));
        let entries = std::iter::once(first).chain(others);
        let outcome = write(entries, 1024, zstd::ARCHIVE, Vec::new());
        assert!(matches!(outcome, Err(Error::Io(_))));
    }
}
