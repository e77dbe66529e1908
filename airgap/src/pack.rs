//! Packs archives in one pass: entries become tar, tar becomes zstd, and the output is hashed while it is written.
//!
//! A thread of its own, besides zstd's workers, reads a few entries ahead. The entries are blobs, whose digests have been known since
//! their image was made, so they are not hashed again.

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

/// Why an archive cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Tar(#[from] tar::Error),
    /// The output cannot be written, or an entry cannot be read.
    #[error("cannot write the archive")]
    Io(#[from] io::Error),
}

/// Entries that are read ahead.
const AHEAD: usize = 4;
/// Few enough bytes to be still in a CPU's cache when they are hashed.
const PIECE: usize = 128 << 10;

/// Hashes everything that is written through it.
pub struct HashingWriter<W> {
    out: W,
    hasher: Hasher,
    len: u64,
}

impl<W> HashingWriter<W> {
    /// Starts with no bytes.
    pub fn new(out: W) -> Self {
        Self {
            out,
            hasher: Hasher::default(),
            len: 0,
        }
    }

    /// Returns the output, and the hash and number of the bytes.
    pub fn finish(self) -> (W, Digest, u64) {
        (self.out, self.hasher.finish(), self.len)
    }
}

impl<W: Write> Write for HashingWriter<W> {
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

/// A compressed archive that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    pub digest: Digest,
    pub len: u64,
}

/// Writes an archive of `size` bytes ([`tar::size`]) whose entries come one by one.
pub fn write<W: Write>(
    entries: impl IntoIterator<Item = io::Result<Entry>, IntoIter: Send>,
    size: u64,
    settings: Settings,
    out: W,
) -> Result<(W, Packed), Error> {
    let encoder = zstd::encoder(HashingWriter::new(out), size, settings)?;
    let (sender, receiver) = sync_channel(AHEAD);
    let mut entries = entries.into_iter();
    thread::scope(|scope| {
        // Ends with the entries, or when the receiver is dropped.
        scope.spawn(move || entries.try_for_each(|entry| sender.send(entry)));
        let mut writer = Writer::new(encoder);
        for entry in receiver {
            writer.add(&entry?)??;
        }
        let (out, digest, len) = writer.finish()?.finish()?.finish();
        Ok((out, Packed { digest, len }))
    })
}

/// Packs an archive in memory.
pub fn bytes(entries: &[Entry], settings: Settings) -> Result<(Vec<u8>, Packed), Error> {
    let size = tar::size(entries);
    write(entries.iter().cloned().map(Ok), size, settings, Vec::new())
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;

    #[test]
    fn one_pass_has_the_same_result_as_two() {
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
    fn entry_with_an_invalid_path_is_named() {
        let entries = [Entry::file("a", 0o644, "1"), Entry::file("../b", 0o644, "")];
        let error = bytes(&entries, zstd::ARCHIVE).unwrap_err();
        assert!(matches!(error, Error::Tar(tar::Error::Path(path)) if path == "../b"));
    }

    #[test]
    fn wrong_size_is_refused() {
        let entries = [Entry::file("a", 0o644, "1")];
        let size = tar::size(&entries) + 512;
        let outcome = write(entries.map(Ok), size, zstd::ARCHIVE, Vec::new());
        assert!(matches!(outcome, Err(Error::Io(_))));
    }

    #[test]
    fn unreadable_entry_ends_packing() {
        // More entries than are read ahead, so that the reading thread has to end too.
        let first = Err(io::Error::from(io::ErrorKind::NotFound));
        let others = (0..100).map(|nth| Ok(Entry::file(nth.to_string(), 0o644, "")));
        let entries = std::iter::once(first).chain(others);
        let outcome = write(entries, 1024, zstd::ARCHIVE, Vec::new());
        assert!(matches!(outcome, Err(Error::Io(_))));
    }
}
