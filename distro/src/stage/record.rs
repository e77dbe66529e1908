//! The record of what was staged. It is written before the files that it names.

use std::path::Path;

use anyhow::{Context as _, ensure};
use node::root::Root;
use serde::{Deserialize, Serialize};

use super::{batch::write_atomic, decide::check, read_if_present, remove};

/// The record's path below the data directory.
pub(crate) const RECORD: &str = "server/.multus-distro.json";
const SCHEMA: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    schema: u32,
    files: Vec<StagedFile>,
}

/// A file that was staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StagedFile {
    /// Below the data directory.
    pub(crate) path: String,
    /// A hash by which an edit is seen.
    pub(crate) check: String,
}

impl StagedFile {
    pub(crate) fn of(path: &str, bytes: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            check: check(path, bytes),
        }
    }
}

/// Returns the files that were staged: none without a record.
pub(crate) fn read(root: &Root, data_dir: &Path) -> anyhow::Result<Vec<StagedFile>> {
    let path = data_dir.join(RECORD);
    let Some(bytes) = read_if_present(root, &path)? else {
        return Ok(Vec::new());
    };
    let record: Record = serde_json::from_slice(&bytes).with_context(|| {
        format!(
            "{} is damaged: remove it together with the staged files",
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

/// Writes the record, or removes it when there are no files.
pub(crate) fn write(root: &Root, data_dir: &Path, files: &[StagedFile]) -> anyhow::Result<()> {
    let path = data_dir.join(RECORD);
    if files.is_empty() {
        return remove(root, &path).map(drop);
    }
    let record = Record {
        schema: SCHEMA,
        files: files.to_vec(),
    };
    let bytes = serde_json::to_vec(&record).context("cannot write the record")?;
    write_atomic(root, &path, &bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the checks that are recorded for a path.
pub(crate) fn recorded_checks<'a>(files: &'a [StagedFile], path: &str) -> Vec<&'a str> {
    let same_path = files.iter().filter(|file| file.path == path);
    same_path.map(|file| file.check.as_str()).collect()
}

fn is_plain(path: &str) -> bool {
    path.starts_with("server/") && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
