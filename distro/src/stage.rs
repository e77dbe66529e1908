//! Staging: files beside the distro's own, each as one step, with a record of what is ours.
//!
//! The charts of earlier releases stay as long as Multus is on: while one server after the other is upgraded, each serves both.

mod batch;
mod beside;
mod decide;
mod record;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

use self::{batch::Batch, decide::Step, record::Staged};
pub(crate) use self::{
    batch::write_atomic,
    beside::beside,
    decide::{Found, judge},
    record::{known, read as read_record},
};
use crate::{
    manifest,
    plan::{File, MANIFESTS},
};

/// What staging did.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Files that were written.
    pub(crate) written: Vec<PathBuf>,
    /// What the operator should know.
    pub(crate) notes: Vec<String>,
}

/// Puts the files in their places. Those that are as they should be are not touched.
pub(crate) fn stage(data_dir: &Path, files: &[File]) -> anyhow::Result<Done> {
    ensure!(
        data_dir.is_absolute(),
        "--data-dir {} is relative: name it by its whole path",
        data_dir.display()
    );
    let former = record::read(data_dir)?;
    let mut done = Done::default();
    let mut batch = Batch::default();
    for (file, step) in steps_on(data_dir, files, &former)? {
        let path = data_dir.join(&file.path);
        match step {
            Step::Leave => continue,
            Step::Overwrite => done.notes.push(format!(
                "{} was edited, and is replaced: change values with a HelmChartConfig",
                path.display()
            )),
            _ => {}
        }
        batch
            .write(&path, &file.bytes)
            .with_context(|| format!("cannot stage {}", path.display()))?;
        done.written.push(path);
    }
    let is_wanted = |old: &Staged| files.iter().any(|file| file.path == old.path);
    // Of another distro or release: the distro takes away what it made of it.
    let gone = former.iter().filter(|old| !is_wanted(old));
    for old in gone.filter(|old| is_manifest(&old.path)) {
        let path = data_dir.join(&old.path);
        if path.exists() {
            batch
                .write(&path, &manifest::removal(&old.path))
                .with_context(|| format!("cannot empty {}", path.display()))?;
        }
    }
    // The record names every file before it is there: a crash leaves nothing that unstage would not find.
    let mut both: Vec<Staged> = files
        .iter()
        .map(|file| Staged::of(&file.path, &file.bytes))
        .collect();
    let of_now = both.clone();
    both.extend(former.iter().filter(|old| !of_now.contains(old)).cloned());
    record::write(data_dir, &both)?;
    batch
        .put()
        .with_context(|| format!("cannot stage below {}", data_dir.display()))?;
    both.retain(|file| of_now.contains(file) || !is_wanted(file));
    record::write(data_dir, &both)?;
    done.notes.extend(warnings(data_dir, files));
    Ok(done)
}

fn steps_on<'a>(
    data_dir: &Path,
    files: &'a [File],
    former: &[Staged],
) -> anyhow::Result<Vec<(&'a File, Step)>> {
    let mut steps = Vec::new();
    for file in files {
        let path = data_dir.join(&file.path);
        let present = present(&path)?;
        let found = judge(
            &file.path,
            present.as_deref(),
            Some(&file.bytes),
            &known(former, &file.path),
        );
        let step = decide::on(found);
        ensure!(
            step != Step::Refuse,
            "{} is not ours: move it to another name, then run again",
            path.display()
        );
        steps.push((file, step));
    }
    Ok(steps)
}

/// What others have put beside the files that keeps ours from working.
fn warnings(data_dir: &Path, files: &[File]) -> Vec<String> {
    let manifests = files.iter().filter(|file| is_manifest(&file.path));
    let ours: Vec<PathBuf> = manifests.map(|file| data_dir.join(&file.path)).collect();
    let found = beside(&data_dir.join(MANIFESTS), &ours);
    let skips = found.skips.iter().map(|path| {
        format!(
            "{} keeps the distro from reading ours: remove it",
            path.display()
        )
    });
    let rivals = found.rivals.iter().map(|path| {
        format!(
            "{} becomes the same Addon as ours, and the two take turns: rename it",
            path.display()
        )
    });
    skips.chain(rivals).collect()
}

/// What `unstage` does about a file that was staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undo {
    path: String,
    step: Step,
}

impl Undo {
    /// The path below the data directory and what happens to it, for people.
    pub(crate) fn describe(&self, data_dir: &Path) -> String {
        let path = data_dir.join(&self.path);
        match self.step {
            Step::Empty => format!(
                "empty {}: the distro removes what it made of it, within 15 seconds or at its next start",
                path.display()
            ),
            _ => format!("delete {}", path.display()),
        }
    }
}

/// What taking everything away means; nothing is touched. With `purge`, manifests go at once, and what the distro made of them stays.
pub(crate) fn plan_off(data_dir: &Path, force: bool, purge: bool) -> anyhow::Result<Vec<Undo>> {
    let former = record::read(data_dir)?;
    let mut plan: Vec<Undo> = Vec::new();
    // The manifests first: without charts behind them the distro would try in vain.
    for file in former.iter().rev() {
        let path = data_dir.join(&file.path);
        let present = present(&path)?;
        let known = known(&former, &file.path);
        let found = judge(&file.path, present.as_deref(), None, &known);
        let mut step = decide::off(found, is_manifest(&file.path), force);
        if step == Step::Refuse {
            bail!(
                "{} was edited since it was staged: keep a copy, then run again with --force",
                path.display()
            );
        }
        if purge && found != Found::Absent {
            step = Step::Delete;
        }
        let undo = Undo {
            path: file.path.clone(),
            step,
        };
        if step != Step::Leave && !plan.contains(&undo) {
            plan.push(undo);
        }
    }
    Ok(plan)
}

/// Does it. Gives the paths that were changed, and what the operator should know.
pub(crate) fn take_away(data_dir: &Path, plan: &[Undo]) -> anyhow::Result<Done> {
    let former = record::read(data_dir)?;
    let mut done = Done::default();
    let mut batch = Batch::default();
    let mut left: Vec<Staged> = Vec::new();
    for undo in plan.iter().filter(|undo| undo.step == Step::Empty) {
        let path = data_dir.join(&undo.path);
        let words = manifest::removal(&undo.path);
        batch
            .write(&path, &words)
            .with_context(|| format!("cannot empty {}", path.display()))?;
        left.push(Staged::of(&undo.path, &words));
        done.written.push(path);
    }
    let mut both = former.clone();
    both.extend(left.iter().cloned());
    if !left.is_empty() {
        record::write(data_dir, &both)?;
    }
    batch
        .put()
        .with_context(|| format!("cannot unstage below {}", data_dir.display()))?;
    for undo in plan.iter().filter(|undo| undo.step == Step::Delete) {
        let path = data_dir.join(&undo.path);
        if remove(&path)? {
            done.written.push(path);
        }
    }
    both.retain(|file| data_dir.join(&file.path).exists());
    both.retain(|file| left.iter().all(|new| new.path != file.path) || left.contains(file));
    record::write(data_dir, &both)?;
    let emptied: Vec<PathBuf> = left.iter().map(|file| data_dir.join(&file.path)).collect();
    let skips = beside(&data_dir.join(MANIFESTS), &emptied).skips;
    done.notes.extend(skips.iter().map(|path| {
        format!(
            "{} keeps the distro from reading that: remove it, or everything stays",
            path.display()
        )
    }));
    Ok(done)
}

/// Before a start without Multus: charts go, and the manifests that are still there are for the distro to remove. Gives their names.
pub(crate) fn retire(data_dir: &Path) -> anyhow::Result<Vec<String>> {
    let former = record::read(data_dir)?;
    let is_there = |file: &&Staged| data_dir.join(&file.path).exists();
    let (manifests, charts): (Vec<_>, Vec<_>) =
        former.iter().partition(|file| is_manifest(&file.path));
    for chart in charts {
        remove(&data_dir.join(&chart.path))?;
    }
    let left: Vec<Staged> = manifests.into_iter().filter(is_there).cloned().collect();
    record::write(data_dir, &left)?;
    let mut names: Vec<String> = left
        .iter()
        .filter_map(|file| file.path.rsplit('/').next())
        .map(|name| manifest::addon(name).to_owned())
        .collect();
    names.dedup();
    Ok(names)
}

fn is_manifest(path: &str) -> bool {
    path.starts_with(MANIFESTS)
}

/// The content of a file, `None` where there is none.
fn present(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn remove(path: &Path) -> anyhow::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
}

#[cfg(test)]
mod tests;
