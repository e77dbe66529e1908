//! Staging: puts files next to the distro's own, all of them or none, and records which files are ours.
//!
//! The charts of earlier releases stay as long as Multus is on: while one server after the other is upgraded, each serves both.

mod batch;
mod conflicts;
mod decide;
mod record;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use node::root::Root;

use self::{batch::Batch, decide::Action, record::StagedFile};
pub(crate) use self::{
    batch::write_atomic,
    conflicts::{Conflicts, conflicts},
    decide::{FileState, classify},
    record::{read as read_record, recorded_checks},
};
use crate::{
    manifest,
    plan::{File, MANIFESTS},
};

/// More than any chart or manifest.
pub(crate) const MAX: u64 = 64 << 20;

/// The outcome of staging or unstaging.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Files that were written.
    pub(crate) written: Vec<PathBuf>,
    /// Lines for the operator.
    pub(crate) notes: Vec<String>,
}

/// Stages the files. Those that are already right are not touched.
pub(crate) fn stage(root: &Root, data_dir: &Path, files: &[File]) -> anyhow::Result<Outcome> {
    ensure!(
        data_dir.is_absolute(),
        "--data-dir {} is relative: give an absolute path",
        data_dir.display()
    );
    let former = record::read(root, data_dir)?;
    let mut outcome = Outcome::default();
    let mut batch = Batch::new(root, data_dir);
    for (file, action) in actions(root, data_dir, files, &former)? {
        let path = data_dir.join(&file.path);
        match action {
            Action::Leave => continue,
            Action::Overwrite => outcome.notes.push(format!(
                "{} was edited, and is replaced: change values with a HelmChartConfig",
                path.display()
            )),
            _ => {}
        }
        batch
            .write(&path, &file.bytes)
            .with_context(|| format!("cannot stage {}", path.display()))?;
        outcome.written.push(path);
    }
    let is_planned = |old: &StagedFile| files.iter().any(|file| file.path == old.path);
    // A manifest of another distro or release is emptied, so that the distro removes what it installed from it.
    let obsolete = former.iter().filter(|old| !is_planned(old));
    for old in obsolete.filter(|old| is_manifest(&old.path)) {
        let path = data_dir.join(&old.path);
        if root.exists(&path) {
            batch
                .write(&path, &manifest::removal(&old.path))
                .with_context(|| format!("cannot empty {}", path.display()))?;
        }
    }
    // The record names every file before the file is there, so that unstage finds everything after a crash.
    let mut recorded: Vec<StagedFile> = files
        .iter()
        .map(|file| StagedFile::of(&file.path, &file.bytes))
        .collect();
    let current = recorded.clone();
    recorded.extend(former.iter().filter(|old| !current.contains(old)).cloned());
    record::write(root, data_dir, &recorded)?;
    batch
        .put()
        .with_context(|| format!("cannot stage below {}", data_dir.display()))?;
    recorded.retain(|file| current.contains(file) || !is_planned(file));
    record::write(root, data_dir, &recorded)?;
    let conflicts = conflicts_with(root, data_dir, files);
    outcome.notes.extend(conflicts.warnings());
    Ok(outcome)
}

/// Searches for files of others that conflict with the manifests among these.
pub(crate) fn conflicts_with(root: &Root, data_dir: &Path, files: &[File]) -> Conflicts {
    let manifests = files.iter().filter(|file| is_manifest(&file.path));
    let manifests: Vec<PathBuf> = manifests.map(|file| data_dir.join(&file.path)).collect();
    conflicts(root, &data_dir.join(MANIFESTS), &manifests)
}

/// Fails where [`stage`] would, and touches nothing.
pub(crate) fn check(root: &Root, data_dir: &Path, files: &[File]) -> anyhow::Result<()> {
    let former = record::read(root, data_dir)?;
    actions(root, data_dir, files, &former).map(drop)
}

/// Returns what to do about a file of somebody else where one of ours belongs. K3s and RKE2 delete what only the former content of a
/// manifest's name had, but for objects with this label (`apply` of Rancher's wrangler); seen on K3s 1.36.
pub(crate) fn foreign(path: &Path) -> String {
    let path = path.display();
    if !path.to_string().contains(MANIFESTS) {
        return format!(
            "{path} is not of multus-distro, so nothing is staged: move it to another name, then run again"
        );
    }
    format!(
        "{path} is not of multus-distro, so nothing is staged. Keep it until its objects have a label, since the distro deletes them with the file, and with the resource definition every network of the cluster: run `kubectl label --overwrite --filename {path} objectset.rio.cattle.io/prune=false`, then move the file out of the directory, then run again; `kubectl multus preflight` names what of it can go afterwards"
    )
}

/// Decides about every file before any is touched; fails when one of them must not be replaced.
fn actions<'a>(
    root: &Root,
    data_dir: &Path,
    files: &'a [File],
    former: &[StagedFile],
) -> anyhow::Result<Vec<(&'a File, Action)>> {
    let mut actions = Vec::new();
    for file in files {
        let path = data_dir.join(&file.path);
        let present = read_if_present(root, &path)?;
        let state = classify(
            &file.path,
            present.as_deref(),
            Some(&file.bytes),
            &recorded_checks(former, &file.path),
        );
        let action = decide::to_stage(state);
        ensure!(action != Action::Refuse, foreign(&path));
        actions.push((file, action));
    }
    Ok(actions)
}

/// One step of `unstage`: an action on a file that was staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnstageStep {
    path: String,
    action: Action,
}

impl UnstageStep {
    /// Returns a line for the user.
    pub(crate) fn describe(&self, data_dir: &Path) -> String {
        let path = data_dir.join(&self.path);
        match self.action {
            Action::Empty => format!(
                "empty {}: the distro removes what it installed from it, within 15 seconds or at its next start",
                path.display()
            ),
            _ => format!("delete {}", path.display()),
        }
    }
}

/// Returns the steps of [`unstage`]; nothing is touched. With `purge`, manifests are deleted at once, and what the distro installed from
/// them stays.
pub(crate) fn plan_unstage(
    root: &Root,
    data_dir: &Path,
    force: bool,
    purge: bool,
) -> anyhow::Result<Vec<UnstageStep>> {
    let former = record::read(root, data_dir)?;
    let mut plan: Vec<UnstageStep> = Vec::new();
    // The manifests come first, since the distro cannot install a manifest whose charts are deleted.
    for file in former.iter().rev() {
        let path = data_dir.join(&file.path);
        let present = read_if_present(root, &path)?;
        let recorded = recorded_checks(&former, &file.path);
        let state = classify(&file.path, present.as_deref(), None, &recorded);
        let mut action = decide::to_unstage(state, is_manifest(&file.path), force);
        if action == Action::Refuse {
            bail!(
                "{} was edited since it was staged: keep a copy, then run again with --force",
                path.display()
            );
        }
        if purge && state != FileState::Absent {
            action = Action::Delete;
        }
        let step = UnstageStep {
            path: file.path.clone(),
            action,
        };
        if action != Action::Leave && !plan.contains(&step) {
            plan.push(step);
        }
    }
    Ok(plan)
}

/// Carries the plan out.
pub(crate) fn unstage(
    root: &Root,
    data_dir: &Path,
    plan: &[UnstageStep],
) -> anyhow::Result<Outcome> {
    let former = record::read(root, data_dir)?;
    let mut outcome = Outcome::default();
    let mut batch = Batch::new(root, data_dir);
    let mut emptied: Vec<StagedFile> = Vec::new();
    for step in plan.iter().filter(|step| step.action == Action::Empty) {
        let path = data_dir.join(&step.path);
        let removal = manifest::removal(&step.path);
        batch
            .write(&path, &removal)
            .with_context(|| format!("cannot empty {}", path.display()))?;
        emptied.push(StagedFile::of(&step.path, &removal));
        outcome.written.push(path);
    }
    let mut recorded = former.clone();
    recorded.extend(emptied.iter().cloned());
    if !emptied.is_empty() {
        record::write(root, data_dir, &recorded)?;
    }
    batch
        .put()
        .with_context(|| format!("cannot unstage below {}", data_dir.display()))?;
    for step in plan.iter().filter(|step| step.action == Action::Delete) {
        let path = data_dir.join(&step.path);
        if remove(root, &path)? {
            outcome.written.push(path);
        }
    }
    recorded.retain(|file| root.exists(data_dir.join(&file.path)));
    recorded
        .retain(|file| emptied.iter().all(|new| new.path != file.path) || emptied.contains(file));
    record::write(root, data_dir, &recorded)?;
    let emptied = emptied.iter().map(|file| data_dir.join(&file.path));
    let emptied: Vec<PathBuf> = emptied.collect();
    let skips = conflicts(root, &data_dir.join(MANIFESTS), &emptied).skips;
    outcome.notes.extend(skips.iter().map(|path| {
        format!(
            "{} keeps the distro from reading the emptied manifest: remove it, or what the distro installed stays",
            path.display()
        )
    }));
    Ok(outcome)
}

/// Prepares a start without Multus: deletes the charts, and returns the names of the manifests that are left for the distro to remove.
pub(crate) fn disable(root: &Root, data_dir: &Path) -> anyhow::Result<Vec<String>> {
    let former = record::read(root, data_dir)?;
    let is_present = |file: &&StagedFile| root.exists(data_dir.join(&file.path));
    let (manifests, charts): (Vec<_>, Vec<_>) =
        former.iter().partition(|file| is_manifest(&file.path));
    for chart in charts {
        remove(root, &data_dir.join(&chart.path))?;
    }
    let left: Vec<StagedFile> = manifests.into_iter().filter(is_present).cloned().collect();
    record::write(root, data_dir, &left)?;
    let mut names: Vec<String> = left
        .iter()
        .filter_map(|file| file.path.rsplit('/').next())
        .map(|name| manifest::addon_name(name).to_owned())
        .collect();
    names.dedup();
    Ok(names)
}

fn is_manifest(path: &str) -> bool {
    path.starts_with(MANIFESTS)
}

fn read_if_present(root: &Root, path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match root.read(path, MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.source).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Returns whether there was a file to remove.
fn remove(root: &Root, path: &Path) -> anyhow::Result<bool> {
    let removed = root.remove(path).map_err(|error| error.source);
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

#[cfg(test)]
mod tests;
