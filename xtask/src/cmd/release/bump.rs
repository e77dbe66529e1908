//! `release bump VERSION`: gives the checkout its next version. The changes are left for one commit of a person, who reads them.

use std::{fs, time::SystemTime};

use anyhow::{Context as _, ensure};
use semver::Version;

use crate::{changelog, project::Project, release_line, release_line::History, tree::Tree, ui};

/// The files that name the version; everything else takes it from them when it is made.
const MANIFEST: &str = "Cargo.toml";
const LOCK: &str = "Cargo.lock";
/// The lock file of the workspace of fuzz targets.
const FUZZ_LOCK: &str = "fuzz/Cargo.lock";

/// Set the version and cut its section of the changelog, as changes for one commit
///
/// It is refused with uncommitted changes, for a version that is released or does not grow, for one of another line than the branch
/// release-X.Y has, and while nothing is unreleased.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask release bump X.Y.Z\n  git switch release-X.Y && cargo xtask release bump X.Y.Z        a backport"
)]
pub(super) struct Args {
    /// Next version
    version: Version,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let next = &args.version;
    ensure!(
        !project.is_dirty(),
        "{} has uncommitted changes, which would be in the commit of the version: commit or stash them first",
        project.root.display()
    );
    let files = Files::read(&project)?;
    release_line::ensure_follows(next, &history(&project, &files.changelog)?)?;
    let bumped = files.bump(&project.version, next, &today())?;
    let mut tree = Tree::default();
    tree.add(MANIFEST, bumped.manifest);
    tree.add(LOCK, bumped.lock);
    tree.add(FUZZ_LOCK, bumped.fuzz_lock);
    tree.add(changelog::FILE, bumped.changelog);
    tree.update(&project.root, &[])?;
    ui::data(&format!("{} becomes {next}\n", project.version))?;
    ui::note(&format!(
        "changed: {MANIFEST}, {LOCK}, {FUZZ_LOCK}, {}; next: read `git diff`, then git commit --all --message 'release: {next}', cargo xtask release check",
        changelog::FILE
    ));
    Ok(())
}

/// Returns what decides about the next version.
pub(super) fn history(project: &Project, changelog: &str) -> anyhow::Result<History> {
    let current = project.version.parse();
    let mut released = project.released()?;
    released.extend(changelog::versions(changelog));
    Ok(History {
        current: current.with_context(|| format!("the version {} is damaged", project.version))?,
        released,
        branch: project.branch()?,
        branches: project.branches()?,
    })
}

/// Returns the date in UTC.
fn today() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut time = api::time::rfc3339(since.unwrap_or_default().as_secs());
    time.truncate("YYYY-MM-DD".len());
    time
}

/// The texts of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    manifest: String,
    lock: String,
    fuzz_lock: String,
    changelog: String,
}

impl Files {
    fn read(project: &Project) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = project.root.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Self {
            manifest: read(MANIFEST)?,
            lock: read(LOCK)?,
            fuzz_lock: read(FUZZ_LOCK)?,
            changelog: read(changelog::FILE)?,
        })
    }

    /// Returns the files of the next version.
    fn bump(&self, former: &str, next: &Version, date: &str) -> anyhow::Result<Self> {
        Ok(Self {
            manifest: manifest(&self.manifest, former, next)?,
            lock: lock(&self.lock, former, next),
            fuzz_lock: lock(&self.fuzz_lock, former, next),
            changelog: changelog::cut(&self.changelog, next, date)?,
        })
    }
}

/// Replaces the version below `[workspace.package]`.
fn manifest(text: &str, former: &str, next: &Version) -> anyhow::Result<String> {
    let mut section = "";
    let mut count = 0;
    let line = |line: &str| {
        if line.starts_with('[') {
            section = if line.trim_end() == "[workspace.package]" {
                "package"
            } else {
                ""
            };
        }
        if section == "package" && line.trim_end() == format!("version = \"{former}\"") {
            count += 1;
            return line.replace(former, &next.to_string());
        }
        line.to_owned()
    };
    let text: String = split(text, line);
    ensure!(
        count == 1,
        "{MANIFEST} has no line `version = \"{former}\"` below [workspace.package]: write it there once"
    );
    Ok(text)
}

/// Replaces the version of the packages of this workspace, which are those without a source.
fn lock(text: &str, former: &str, next: &Version) -> String {
    let block = |block: &str| {
        let is_own = !block.contains("\nsource = ");
        let old = format!("\nversion = \"{former}\"\n");
        if is_own {
            block.replacen(&old, &format!("\nversion = \"{next}\"\n"), 1)
        } else {
            block.to_owned()
        }
    };
    let blocks = text.split_inclusive("\n\n").map(block);
    blocks.collect()
}

fn split(text: &str, line: impl FnMut(&str) -> String) -> String {
    text.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST_TEXT: &str = "[workspace]\nversion = \"1.0.0\"\n\n[workspace.package]\nversion = \"1.0.0\"\nedition = \"2024\"\n\n[workspace.dependencies]\nx = \"1.0.0\"\n";
    const LOCK_TEXT: &str = "# generated\nversion = 4\n\n[[package]]\nname = \"own\"\nversion = \"1.0.0\"\ndependencies = [\n \"x\",\n]\n\n[[package]]\nname = \"x\"\nversion = \"1.0.0\"\nsource = \"registry+https://example\"\nchecksum = \"00\"\n\n[[package]]\nname = \"z\"\nversion = \"1.0.0\"\n";

    fn next() -> Version {
        "1.1.0-rc.1".parse().unwrap()
    }

    #[test]
    fn version_changes_in_its_place_alone() {
        let text = manifest(MANIFEST_TEXT, "1.0.0", &next()).unwrap();
        let expected = "[workspace]\nversion = \"1.0.0\"\n\n[workspace.package]\nversion = \"1.1.0-rc.1\"\nedition = \"2024\"\n\n[workspace.dependencies]\nx = \"1.0.0\"\n";
        assert_eq!(text, expected);
        for other in [
            MANIFEST_TEXT.replace("[workspace.package]", "[package]"),
            MANIFEST_TEXT.replace("edition = \"2024\"", "version = \"1.0.0\""),
        ] {
            let error = manifest(&other, "1.0.0", &next()).unwrap_err();
            assert!(error.to_string().contains("write it there once"), "{error}");
        }
    }

    #[test]
    fn packages_of_the_workspace_alone_are_changed_in_the_lock() {
        let text = lock(LOCK_TEXT, "1.0.0", &next());
        let own = "name = \"own\"\nversion = \"1.1.0-rc.1\"\n";
        let last = "name = \"z\"\nversion = \"1.1.0-rc.1\"\n";
        assert!(text.contains(own) && text.contains(last), "{text}");
        assert!(
            text.contains("name = \"x\"\nversion = \"1.0.0\"\nsource"),
            "{text}"
        );
        assert_eq!(text.lines().count(), LOCK_TEXT.lines().count());
    }

    /// The files of this checkout have the form that the command changes.
    #[test]
    fn files_of_this_checkout_can_be_bumped() {
        let project = Project::open().unwrap();
        let files = Files::read(&project).unwrap();
        let next: Version = "99.0.0".parse().unwrap();
        let manifest = manifest(&files.manifest, &project.version, &next).unwrap();
        assert!(manifest.contains("\nversion = \"99.0.0\"\n"));
        let lock = lock(&files.lock, &project.version, &next);
        let changed = |text: &str| text.matches("\nversion = \"99.0.0\"\n").count();
        let members = manifest.lines().find(|line| line.starts_with("members = "));
        let members = members.unwrap().matches('"').count() / 2;
        assert_eq!(changed(&lock), members);
        let bumped = files
            .fuzz_lock
            .replace("name = \"fuzz\"\nversion = \"0.0.0\"", "");
        let own = bumped.split("\n\n").filter(|block| {
            block.starts_with("[[package]]\nname") && !block.contains("\nsource = ")
        });
        let fuzz_lock = super::lock(&files.fuzz_lock, &project.version, &next);
        let own = own.filter(|block| block.contains("\nversion = ")).count();
        assert!(own > 0 && changed(&fuzz_lock) == own, "{own}");
    }
}
