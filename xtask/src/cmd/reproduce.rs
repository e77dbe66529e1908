//! `reproduce`: makes the release again from another checkout at another path, on request in the root of another system, and fails unless
//! it has the same bytes.

pub(crate) mod root;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use xshell::cmd;

use self::root::Suite;
use crate::{
    arch::{Arch, Arches},
    c_compiler,
    cmd::{build::workstations::Workstations, dist},
    description, difference,
    project::{ImageNames, Project},
    tree::Tree,
    ui,
};

/// Make the release again in a clone elsewhere, and compare
///
/// With --root it is made in a fresh root directory of that release of Debian, by another user, with another umask, locale, time zone, name
/// of the machine and path, and a toolchain of its own that has Rust's sources. docs/contributing/reproduce.md says how two builders compare.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask reproduce --arch amd64\n  cargo xtask reproduce --install\n  cargo xtask reproduce --first dist\n  cargo xtask reproduce --arch amd64 --root debian:trixie --install"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) arches: Arches,
    /// Release of this commit, for the same architectures; made unless set
    #[arg(long, value_name = "DIR")]
    pub(crate) first: Option<PathBuf>,
    /// Make it in a root directory of this system, as root: debian:trixie
    #[arg(long, value_name = "SYSTEM")]
    pub(crate) root: Option<Suite>,
    /// Install what is missing: Rust targets, the sources of Rust's standard library, the C compiler, and what makes a root
    #[arg(long)]
    pub(crate) install: bool,
    #[command(flatten)]
    pub(crate) names: ImageNames,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?.with_images(&args.names);
    if args.root.is_some() {
        root::ensure_tools(args.install)?;
    }
    ensure!(
        !project.is_dirty(),
        "files of the checkout differ from its commit, and only the commit is made again: commit or stash them first"
    );
    let first = if let Some(first) = &args.first {
        std::env::current_dir()?.join(first)
    } else {
        let first = project.cache_dir().join("reproduce-dist");
        dist::make(
            &project,
            &args.arches,
            Workstations::default(),
            &first,
            args.install,
        )?;
        first
    };
    let elsewhere = tempfile::Builder::new()
        .prefix("multus-rs-again-")
        .tempdir()
        .context("cannot make a directory for the second checkout")?;
    let arches = args.arches.list();
    let (second, place) = if let Some(suite) = &args.root {
        let second = root::make(&project, suite, &arches, elsewhere.path())?;
        (second, format!("this system and {suite}"))
    } else {
        let second = make_at_another_path(&project, &args.arches, elsewhere.path())?;
        (second, "two paths".to_owned())
    };
    compare(&first, &second)?;
    let names: Vec<_> = arches.into_iter().map(Arch::name).collect();
    ui::note(&format!(
        "the same bytes from {place}: {}",
        names.join(", ")
    ));
    Ok(())
}

/// Makes the release from a clone below `elsewhere`.
fn make_at_another_path(
    project: &Project,
    arches: &Arches,
    elsewhere: &Path,
) -> anyhow::Result<PathBuf> {
    let root = elsewhere.join("checkout");
    let (shell, origin) = (project.shell()?, &project.root);
    cmd!(
        shell,
        "git -c safe.directory=* clone --quiet --no-hardlinks {origin} {root}"
    )
    .quiet()
    .run()
    .context("cannot clone the checkout")?;
    let again = project.elsewhere(root, elsewhere.join("target"))?;
    ensure!(
        again.commit == project.commit,
        "the clone is at {}, the checkout at {}",
        again.commit,
        project.commit
    );
    copy_compiler(project, &again)?;
    let second = elsewhere.join("dist");
    dist::make(&again, arches, Workstations::default(), &second, false)?;
    Ok(second)
}

/// Copies the C compiler's wheel, which is checked again where it is unpacked.
fn copy_compiler(from: &Project, to: &Project) -> anyhow::Result<()> {
    let item = c_compiler::pinned(from)?;
    let path = from.download_dir().join(&item.name);
    if !path.is_file() {
        return Ok(());
    }
    fs::create_dir_all(to.download_dir())?;
    fs::copy(&path, to.download_dir().join(&item.name))
        .with_context(|| format!("cannot copy {}", path.display()))?;
    Ok(())
}

/// Fails with the first difference of two releases.
fn compare(first: &Path, second: &Path) -> anyhow::Result<()> {
    let sums = |dist: &Path| {
        let path = dist.join(description::SUMS);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    if let Some(line) = first_difference(&sums(first)?, &sums(second)?) {
        let position = difference::first(&Tree::read(first)?, &Tree::read(second)?);
        bail!(
            "the same commit has other bytes elsewhere: {line}; first in {}",
            position.unwrap_or_default()
        );
    }
    Ok(())
}

/// Returns the first line that two checksum files do not share.
fn first_difference(first: &str, second: &str) -> Option<String> {
    let missing = |from: &str, other: &str| {
        let line = other
            .lines()
            .find(|line| !from.lines().any(|one| one == *line));
        line.map(str::to_owned)
    };
    missing(second, first).or_else(|| missing(first, second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_that_differs_is_named() {
        let sums = "1  a\n2  b\n";
        assert_eq!(first_difference(sums, sums), None);
        let changed = first_difference(sums, "1  a\n3  b\n");
        assert_eq!(changed.as_deref(), Some("2  b"));
        assert_eq!(first_difference("1  a\n", sums).as_deref(), Some("2  b"));
    }
}
