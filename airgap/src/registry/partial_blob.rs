//! A blob that is being fetched, in a file that outlives the transfer.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use archive::digest::{Digest, Hasher};

pub(super) struct PartialBlob {
    file: File,
    /// Bytes that have arrived.
    pub(super) len: u64,
    /// Bytes of the complete blob.
    size: u64,
}

impl PartialBlob {
    pub(super) fn open(path: &Path, size: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)?;
        let len = file.metadata()?.len();
        let mut part = Self { file, len, size };
        if len > size {
            part.restart()?;
        }
        Ok(part)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.len == self.size
    }

    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.len = 0;
        self.file.set_len(0)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.len + bytes.len() as u64 > self.size {
            return Err(io::Error::other("more bytes arrive than were announced"));
        }
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn digest(&mut self) -> io::Result<Digest> {
        use io::{Read as _, Seek as _};
        self.file.rewind()?;
        let (mut hasher, mut buffer) = (Hasher::default(), vec![0; 64 << 10]);
        loop {
            match self.file.read(&mut buffer)? {
                0 => return Ok(hasher.finish()),
                len => hasher.update(&buffer[..len]),
            }
        }
    }
}
