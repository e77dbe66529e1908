//! `release publish`: images and charts to a registry, charts to a repository, files to a directory that a forge takes.
//!
//! All places are read before any is written to. What one has with other bytes under a name of this release is refused, and a tag that moves
//! with releases never moves back.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use airgap::{
    commands::{
        push::{Destination, Push},
        trust,
    },
    registries,
    source::Source,
};
use anyhow::{Context as _, ensure};
use cmdline::{BadUsage, counted};
use semver::Version;
use serde_json::json;

use super::check;
use crate::{
    assets, changelog, cmd::chart, project::Project, release::Release, release_line, tree::Tree, ui,
};

/// Publish a release: to a registry, to a charts repository, as files for a forge, or to all of them
///
/// A second run changes nothing. Names that are published with other bytes are refused before anything is written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask release publish --registry registry.example/team --user me\n  cargo xtask release publish --charts ../charts --files assets --key release.pub\n  cargo xtask release publish --registry 127.0.0.1:5000 --plain-http --charts /tmp/charts --files /tmp/assets --json"
)]
pub(super) struct Args {
    /// Release to publish
    #[arg(long, value_name = "DIR", default_value = "dist")]
    dist: PathBuf,
    /// Registry for images, the lists of what is inside of them, and charts, with an optional path in it
    #[arg(long)]
    registry: Option<String>,
    /// Send charts below this repository of the registry; below charts/ of its path unless set
    #[arg(long, value_name = "REPOSITORY", requires = "registry")]
    charts_to: Option<String>,
    /// Send no charts to the registry
    #[arg(long, conflicts_with = "charts_to", requires = "registry")]
    images_only: bool,
    #[command(flatten)]
    login: registries::Options,
    /// Directory of a charts repository, or an empty one, to add the charts to
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Directory for the files that a forge takes, under flat names with checksums and notes
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    #[command(flatten)]
    trust: trust::Options,
    /// Accept a release of uncommitted changes or a rehearsal, for trials
    #[arg(long)]
    allow_dirty: bool,
    /// Print what was published as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.registry.is_none() && args.charts.is_none() && args.files.is_none() {
        let usage = "name a place: --registry, --charts or --files";
        return Err(BadUsage(usage.to_owned()).into());
    }
    let release = check::publishable(&args.dist, &args.trust.trust()?, args.allow_dirty)?;
    let version: Version = release.version.parse().context("the release's version")?;
    let places = Places::read(args, &release, &version)?;
    places.write(args, &version)
}

/// Everything that is going to be written, after all places were read.
struct Places<'a> {
    push: Option<Push>,
    charts: Option<chart::Merge<'a>>,
    files: Option<(&'a Path, Tree)>,
    /// Whether the release is the newest one among the tags of the checkout.
    is_latest: bool,
}

impl<'a> Places<'a> {
    fn read(args: &'a Args, release: &Release, version: &Version) -> anyhow::Result<Self> {
        let push = args.registry.as_ref().map(|registry| {
            let to = Destination {
                registry: registry.clone(),
                charts_to: args.charts_to.clone(),
                images_only: args.images_only,
            };
            let push = Push::prepare(&to, &args.login, &Source::Release(args.dist.clone()))?;
            push.ensure_unpublished()?;
            anyhow::Ok(push)
        });
        let charts = args.charts.as_ref().map(|dir| {
            let sources = chart::charts_of(&args.dist, release)?;
            chart::Merge::read(dir, &sources, release.epoch)
        });
        let project = Project::open()?;
        let files = args.files.as_ref().map(|dir| {
            let notes = notes(&project, version, args.allow_dirty)?;
            let files = assets::assets(&Tree::read(&args.dist)?, &release.version, &notes)?;
            ensure_unchanged(dir, &files)?;
            anyhow::Ok((dir.as_path(), files))
        });
        Ok(Self {
            push: push.transpose()?,
            charts: charts.transpose()?,
            files: files.transpose()?,
            is_latest: release_line::is_latest(version, &project.released()?),
        })
    }

    fn write(self, args: &Args, version: &Version) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        let mut moved = Vec::new();
        let mut sent = 0;
        if let Some(push) = &self.push {
            for (name, stats) in push.send()? {
                lines.push(format!("{name}: {} bytes sent", stats.sent));
                sent += stats.sent;
            }
            moved = push.retag(&format!("v{version}"), |tags| moving_tags(version, tags))?;
            lines.extend(
                moved
                    .iter()
                    .map(|name| format!("{name}: is v{version} now")),
            );
        }
        let mut added = Vec::new();
        if let Some(charts) = self.charts {
            added = charts.write()?;
            let dir = args.charts.as_deref().unwrap_or(Path::new(""));
            let line = |(name, version): &(String, String)| {
                format!("{}: {name} {version} added", dir.display())
            };
            lines.extend(added.iter().map(line));
        }
        let mut files = 0;
        if let Some((dir, tree)) = &self.files {
            files = tree.0.len();
            tree.update(dir, &[])?;
            lines.push(format!("{}: {}", dir.display(), counted(files, "file")));
        }
        if args.json {
            let added: Vec<_> = added
                .iter()
                .map(|(name, version)| json!({"name": name, "version": version}))
                .collect();
            return ui::json(&json!({
                "version": version.to_string(), "tag": format!("v{version}"), "latest": self.is_latest, "prerelease": !version.pre.is_empty(),
                "sent": sent, "moved": moved, "charts": added, "files": files,
            }));
        }
        lines
            .iter()
            .try_for_each(|line| ui::data(&format!("{line}\n")))
    }
}

/// Returns the tags that move to this version in a repository with these tags.
fn moving_tags(version: &Version, tags: &BTreeSet<String>) -> Vec<String> {
    let published = release_line::versions(tags.iter().map(String::as_str));
    release_line::moving_tags(version, &published)
}

/// Returns the notes of the release; a trial may have none.
fn notes(project: &Project, version: &Version, is_trial: bool) -> anyhow::Result<String> {
    let notes = changelog::notes(&project.changelog()?, version);
    if is_trial {
        return Ok(notes.unwrap_or_else(|_| format!("A trial of {version}.\n")));
    }
    notes
}

/// Fails when the directory has other files than these, or one of them with other bytes: a forge takes all files that are in it.
fn ensure_unchanged(dir: &Path, files: &Tree) -> anyhow::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let found = Tree::read(dir)?;
    for (path, file) in &found.0 {
        let name = dir.join(path);
        let own = files.0.get(path);
        let own = own.with_context(|| {
            format!(
                "{} is no file of this release: name another directory with --files, or remove it",
                name.display()
            )
        })?;
        ensure!(
            own == file,
            "{} is there with other bytes or another mode: give the release a new version, or name another directory with --files",
            name.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_release_are_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("files");
        let mut files = Tree::default();
        files.add("a", "1");
        files.add_program("b", b"2".to_vec());
        ensure_unchanged(&out, &files).unwrap();
        files.update(&out, &[]).unwrap();
        ensure_unchanged(&out, &files).unwrap();
        let refused = |files: &Tree, expected: &str| {
            let error = ensure_unchanged(&out, files).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let mut other = files.clone();
        other.add("a", "other");
        refused(&other, "a is there with other bytes");
        let mut other = files.clone();
        other.add("b", "2");
        refused(&other, "b is there with other bytes or another mode");
        let mut other = files.clone();
        other.0.remove("a");
        refused(&other, "a is no file of this release");
    }

    #[test]
    fn tags_move_by_what_the_repository_has() {
        let tags = ["v5.0.0", "v5.1.0", "v5.1", "latest", "other"].map(str::to_owned);
        let moving = |version: &str| moving_tags(&version.parse().unwrap(), &tags.clone().into());
        assert_eq!(moving("5.0.1"), ["v5.0"]);
        assert_eq!(moving("5.1.1"), ["v5.1", "latest"]);
    }
}
