//! `release check`: whether this checkout, and a release made of it, can be published.

use std::path::{Path, PathBuf};

use airgap::commands::trust;
use anyhow::{Context as _, bail, ensure};
use cmdline::counted;
use release::signatures::Trust;

use super::bump;
use crate::{
    changelog,
    cmd::verify,
    description::{self, Release},
    project::Project,
    release_line, ui,
};

/// Check that a version can be published: clean checkout, tag, changelog, files of the release and who signed them
///
/// Everything that is wrong is named, not the first thing alone.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask release check                       before the tag\n  cargo xtask release check --tag vX.Y.Z --dist dist --key release.pub"
)]
pub(super) struct Args {
    /// Fail unless this is the tag of the version, at the checked out commit
    #[arg(long)]
    tag: Option<String>,
    /// Check this release too: every digest in it, and that it is of the checked out commit
    #[arg(long, value_name = "DIR")]
    dist: Option<PathBuf>,
    #[command(flatten)]
    trust: trust::Options,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let mut checks: Vec<(&str, anyhow::Result<()>)> = vec![
        ("checkout", clean(&project)),
        ("changelog", changes(&project)),
        ("version", version(&project, args.tag.is_some())),
    ];
    if let Some(tag) = &args.tag {
        checks.push(("tag", self::tag(&project, tag)));
    }
    if let Some(dist) = &args.dist {
        checks.push(("release", files(&project, dist, &args.trust.trust()?)));
    }
    let mut failed = 0;
    for (name, outcome) in &checks {
        match outcome {
            Ok(()) => ui::data(&format!("{name}: sound\n"))?,
            Err(error) => {
                failed += 1;
                ui::data(&format!("{name}: {error:#}\n"))?;
            }
        }
    }
    if failed > 0 {
        bail!(
            "{} cannot be published: {}",
            project.version,
            counted(failed, "finding")
        );
    }
    let tag = format!("v{}", project.version);
    match (&args.tag, &args.dist) {
        (None, _) => ui::note(&format!(
            "next: git tag --sign --message {tag} {tag}, cargo xtask release check --tag {tag}"
        )),
        (Some(_), None) => ui::note(&format!(
            "next: cargo xtask dist, cargo xtask release check --tag {tag} --dist dist"
        )),
        (Some(_), Some(dist)) => ui::note(&format!(
            "next: cargo xtask release publish --dist {}",
            dist.display()
        )),
    }
    Ok(())
}

fn clean(project: &Project) -> anyhow::Result<()> {
    ensure!(
        !project.is_dirty(),
        "files differ from the commit: commit or stash them"
    );
    Ok(())
}

fn changes(project: &Project) -> anyhow::Result<()> {
    let text = project.changelog()?;
    changelog::notes(&text, &version_of(project)?)?;
    changelog::ensure_nothing_unreleased(&text)
}

/// Checks that the version is the newest one of the changelog, and no tag has a newer one of its line.
fn version(project: &Project, is_tagged: bool) -> anyhow::Result<()> {
    let own = version_of(project)?;
    let text = project.changelog()?;
    let mut history = bump::history(project, "")?;
    let listed = changelog::versions(&text);
    let others = listed.into_iter().filter(|one| *one != own);
    history.released.extend(others);
    if is_tagged {
        history.released.retain(|one| *one != own);
    }
    // The branch decided when the version was cut: a tag is checked out without one, and a change request has one of its own.
    let line = release_line::branch_of(&own);
    if is_tagged || history.branches.contains(&line) {
        history.branch = Some(line);
    }
    release_line::ensure_follows(&own, &history)
}

fn tag(project: &Project, tag: &str) -> anyhow::Result<()> {
    let own = format!("v{}", project.version);
    ensure!(
        tag == own,
        "the tag is {tag}, the version is {}, whose tag is {own}: cut the version with `cargo xtask release bump` before the tag",
        project.version
    );
    let commit = project.commit_of_tag(tag)?;
    let head = project.commit.trim_end_matches(description::DIRTY);
    ensure!(
        commit == head,
        "the tag {tag} is at commit {commit}, this checkout at {head}: check out the tag"
    );
    Ok(())
}

/// Checks all that a publication relies on in the files of a release; a trial may be of uncommitted changes.
pub(super) fn publishable(dist: &Path, trust: &Trust, is_trial: bool) -> anyhow::Result<Release> {
    let release = verify::verified(dist, trust)?.release;
    if !is_trial {
        release.check_clean()?;
    }
    Ok(release)
}

/// Checks the files of a release of this commit.
fn files(project: &Project, dist: &Path, trust: &Trust) -> anyhow::Result<()> {
    let release = publishable(dist, trust, false)?;
    ensure!(
        release.version == project.version && release.commit == project.commit,
        "{} is release {} of commit {}, this checkout is {} of {}: make it again with `cargo xtask dist`",
        dist.display(),
        release.version,
        release.commit,
        project.version,
        project.commit
    );
    Ok(())
}

fn version_of(project: &Project) -> anyhow::Result<semver::Version> {
    let version = project.version.parse();
    version.with_context(|| format!("the version {} is damaged", project.version))
}
