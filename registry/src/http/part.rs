//! A file that arrives in parts, and outlives the transfer, so that the next one resumes where it ended.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use super::Failure;

pub(super) struct Part {
    file: File,
    /// Bytes that have arrived.
    pub(super) len: u64,
    /// The most bytes that the complete file may have.
    limit: u64,
}

impl Part {
    pub(super) fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let len = file.metadata()?.len();
        let mut part = Self { file, len, limit };
        if len > limit {
            part.restart()?;
        }
        Ok(part)
    }

    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.len = 0;
        self.file.set_len(0)
    }

    /// Fails when `more` bytes are more than the file may have.
    pub(super) fn ensure_room(&self, more: u64) -> Result<(), Failure> {
        if self.len.saturating_add(more) > self.limit {
            return Err(Failure::TooLarge(self.limit));
        }
        Ok(())
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.ensure_room(bytes.len() as u64)?;
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }
}
