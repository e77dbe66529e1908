//! The record of what was staged, beside it. It is written before what it describes.

use std::{fs, io, path::Path};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::{batch::write_atomic, decide::check};

/// Below the data directory.
pub(crate) const RECORD: &str = "server/.multus-distro.json";
const SCHEMA: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    schema: u32,
    files: Vec<Staged>,
}

/// A file that was staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Staged {
    /// Below the data directory.
    pub(crate) path: String,
    /// What tells whether somebody edited it.
    pub(crate) check: String,
}

impl Staged {
    pub(crate) fn of(path: &str, bytes: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            check: check(path, bytes),
        }
    }
}

/// What was staged; nothing where there is no record.
pub(crate) fn read(data_dir: &Path) -> anyhow::Result<Vec<Staged>> {
    let path = data_dir.join(RECORD);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let record: Record = serde_json::from_slice(&bytes).with_context(|| {
        format!(
            "{} is damaged: remove it together with the files that were staged",
            path.display()
        )
    })?;
    ensure!(
        record.schema == SCHEMA,
        "{} is of another release (schema {}): run that one's unstage first",
        path.display(),
        record.schema
    );
    ensure!(
        record.files.iter().all(|file| is_plain(&file.path)),
        "{} names a file outside of the data directory",
        path.display()
    );
    Ok(record.files)
}

/// Writes it; without files there is none.
pub(crate) fn write(data_dir: &Path, files: &[Staged]) -> anyhow::Result<()> {
    let path = data_dir.join(RECORD);
    if files.is_empty() {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        };
    }
    let record = Record {
        schema: SCHEMA,
        files: files.to_vec(),
    };
    let bytes = serde_json::to_vec(&record).context("cannot write the record")?;
    write_atomic(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// The checks of what was staged in one place.
pub(crate) fn known<'a>(files: &'a [Staged], path: &str) -> Vec<&'a str> {
    let of_path = files.iter().filter(|file| file.path == path);
    of_path.map(|file| file.check.as_str()).collect()
}

fn is_plain(path: &str) -> bool {
    path.starts_with("server/") && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
