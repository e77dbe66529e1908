//! Staging: files beside the distro's own, each as one step, with a record of what is ours.

mod batch;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use self::batch::Batch;
pub(crate) use self::batch::write_atomic;
use crate::plan::File;

/// Below the data directory: what was staged, with the bytes' lengths and checks.
const RECORD: &str = "server/.multus-distro.json";

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    schema: u32,
    files: Vec<Staged>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Staged {
    path: String,
    /// FNV-1a of the content: tells a file that someone edited from ours, nothing more.
    check: String,
}

/// Writes the files, and removes what an earlier version staged and this one does not. Gives the paths that were written.
pub(crate) fn stage(data_dir: &Path, files: &[File]) -> anyhow::Result<Vec<PathBuf>> {
    ensure!(
        data_dir.is_absolute(),
        "--data-dir {} is relative: name it by its whole path",
        data_dir.display()
    );
    let former = read_record(data_dir)?.files;
    let staged: Vec<Staged> = files
        .iter()
        .map(|file| Staged {
            path: file.path.clone(),
            check: check(&file.bytes),
        })
        .collect();
    let mut batch = Batch::default();
    let mut written = Vec::new();
    for file in files {
        let path = data_dir.join(&file.path);
        batch
            .write(&path, &file.bytes)
            .with_context(|| format!("cannot stage {}", path.display()))?;
        written.push(path);
    }
    // The record names every file before it is there: a crash leaves nothing that unstage would not find.
    let mut both = staged.clone();
    both.extend(former.iter().filter(|old| !staged.contains(old)).cloned());
    write_record(data_dir, &both)?;
    batch
        .put()
        .with_context(|| format!("cannot stage below {}", data_dir.display()))?;
    for old in former
        .iter()
        .filter(|old| files.iter().all(|file| file.path != old.path))
    {
        remove(data_dir, old)?;
    }
    if both != staged {
        write_record(data_dir, &staged)?;
    }
    Ok(written)
}

/// Removes what was staged. A file that someone edited since stays, unless `force`. Gives the paths that were removed.
pub(crate) fn unstage(data_dir: &Path, force: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut record = read_record(data_dir)?;
    if record.files.is_empty() {
        return Ok(Vec::new());
    }
    let mut edited: Vec<&Staged> = Vec::new();
    if !force {
        for file in &record.files {
            let same = record.files.iter().filter(|other| other.path == file.path);
            let path = data_dir.join(&file.path);
            if path.exists()
                && !same
                    .clone()
                    .any(|known| fs::read(&path).is_ok_and(|bytes| check(&bytes) == known.check))
            {
                edited.push(file);
            }
        }
    }
    if let Some(file) = edited.first() {
        bail!(
            "{} was edited since it was staged: keep a copy, then run again with --force",
            data_dir.join(&file.path).display()
        );
    }
    let mut removed = Vec::new();
    // The manifest first: without charts behind it the distro would try in vain.
    record.files.reverse();
    for file in &record.files {
        if remove(data_dir, file)? {
            removed.push(data_dir.join(&file.path));
        }
    }
    fs::remove_file(data_dir.join(RECORD))
        .context("cannot remove the record of what was staged")?;
    Ok(removed)
}

fn remove(data_dir: &Path, file: &Staged) -> anyhow::Result<bool> {
    let path = data_dir.join(&file.path);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
}

fn read_record(data_dir: &Path) -> anyhow::Result<Record> {
    let path = data_dir.join(RECORD);
    match fs::read(&path) {
        Ok(bytes) => {
            let record: Record = serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{} is damaged: remove it together with the files that were staged",
                    path.display()
                )
            })?;
            let outside = record.files.iter().any(|file| !is_plain(&file.path));
            ensure!(
                !outside,
                "{} names a file outside of the data directory",
                path.display()
            );
            Ok(record)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn is_plain(path: &str) -> bool {
    path.starts_with("server/") && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn write_record(data_dir: &Path, files: &[Staged]) -> anyhow::Result<()> {
    let record = Record {
        schema: 1,
        files: files.to_vec(),
    };
    let bytes = serde_json::to_vec(&record).context("cannot write the record")?;
    let path = data_dir.join(RECORD);
    write_atomic(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn check(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(path: &str, bytes: &[u8]) -> File {
        File {
            path: path.into(),
            bytes: bytes.into(),
        }
    }

    fn files_below(dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![dir.to_owned()];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.push(path.strip_prefix(dir).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn what_is_staged_goes_again_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("server/manifests")).unwrap();
        fs::write(dir.path().join("server/manifests/theirs.yaml"), "x").unwrap();
        stage(
            dir.path(),
            &[
                file("server/static/charts/a.tgz", b"1"),
                file("server/manifests/multus.yaml", b"2"),
            ],
        )
        .unwrap();
        let path = dir.path().join("server/static/charts/a.tgz");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            fs::metadata(path.parent().unwrap())
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o700
        );
        assert_eq!(unstage(dir.path(), false).unwrap().len(), 2);
        assert_eq!(files_below(dir.path()), ["server/manifests/theirs.yaml"]);
        assert!(unstage(dir.path(), false).unwrap().is_empty());
    }

    #[test]
    fn a_new_version_takes_the_old_one_away() {
        let dir = tempfile::tempdir().unwrap();
        stage(dir.path(), &[file("server/static/charts/a-1.tgz", b"1")]).unwrap();
        stage(dir.path(), &[file("server/static/charts/a-2.tgz", b"2")]).unwrap();
        assert_eq!(
            files_below(dir.path()),
            ["server/.multus-distro.json", "server/static/charts/a-2.tgz"]
        );
    }

    #[test]
    fn an_edited_file_is_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        stage(
            dir.path(),
            &[
                file("server/static/charts/a.tgz", b"1"),
                file("server/manifests/multus.yaml", b"2"),
            ],
        )
        .unwrap();
        fs::write(dir.path().join("server/manifests/multus.yaml"), "edited").unwrap();
        assert!(
            unstage(dir.path(), false)
                .unwrap_err()
                .to_string()
                .contains("--force")
        );
        assert_eq!(files_below(dir.path()).len(), 3);
        assert_eq!(unstage(dir.path(), true).unwrap().len(), 2);
    }

    #[test]
    fn a_failure_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("server/manifests/multus.yaml");
        fs::create_dir_all(&blocked).unwrap();
        let (chart, manifest) = (
            file("server/static/charts/a-2.tgz", b"2"),
            file("server/manifests/multus.yaml", b"2"),
        );
        stage(dir.path(), &[chart.clone(), manifest.clone()]).unwrap_err();
        assert_eq!(files_below(dir.path()), [""; 0]);
        assert!(!dir.path().join("server/static").exists());
        fs::remove_dir(&blocked).unwrap();
        let first = file("server/static/charts/a-1.tgz", b"1");
        stage(dir.path(), std::slice::from_ref(&first)).unwrap();
        fs::create_dir(&blocked).unwrap();
        stage(dir.path(), &[chart, manifest]).unwrap_err();
        assert_eq!(
            files_below(dir.path()),
            ["server/.multus-distro.json", "server/static/charts/a-1.tgz"]
        );
    }

    #[test]
    fn a_record_that_leads_outside_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("server")).unwrap();
        fs::write(
            dir.path().join(RECORD),
            r#"{"schema":1,"files":[{"path":"server/../../etc/passwd","check":"0"}]}"#,
        )
        .unwrap();
        assert!(
            unstage(dir.path(), true)
                .unwrap_err()
                .to_string()
                .contains("outside")
        );
    }
}
