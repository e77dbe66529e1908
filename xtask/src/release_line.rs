//! Which version may follow, and which tags of an image move with it: a release line is the versions of one X.Y, whose backports are made
//! on the branch `release-X.Y`.

use anyhow::ensure;
use semver::Version;

/// The tag of the newest release.
const LATEST: &str = "latest";
/// The beginning of the name of a line's branch.
const BRANCH: &str = "release-";

/// The facts about a checkout that decide about its next version.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// The version in the checkout.
    pub(crate) current: Version,
    /// The versions that are released: those of tags and of the changelog.
    pub(crate) released: Vec<Version>,
    /// The branch, unless none is checked out.
    pub(crate) branch: Option<String>,
    /// All branches, of other repositories too.
    pub(crate) branches: Vec<String>,
}

/// Fails unless this version may follow.
pub(crate) fn ensure_follows(next: &Version, history: &History) -> anyhow::Result<()> {
    let History {
        current,
        released,
        branch,
        branches,
    } = history;
    ensure!(
        next.build.is_empty(),
        "{next} has build metadata after `+`, which a tag of an image cannot have: leave it out"
    );
    ensure!(
        !released.contains(next),
        "{next} is released already: choose a greater version"
    );
    let own_branch = branch.as_deref().and_then(line_of);
    let line = line(next);
    if let Some((major, minor)) = own_branch {
        ensure!(
            line == (major, minor),
            "the branch {BRANCH}{major}.{minor} is for the versions {major}.{minor}.*, not for {next}: switch to the branch of {next}"
        );
    } else {
        let name = branch_of(next);
        ensure!(
            !branches.contains(&name),
            "{next} is a version of the line {}.{}: switch to its branch {name}",
            line.0,
            line.1
        );
    }
    ensure!(
        next >= current,
        "{next} is not greater than {current}, which Cargo.toml has: choose a greater version"
    );
    let is_before = |one: &&Version| own_branch.is_none() || self::line(one) == line;
    if let Some(greatest) = released.iter().filter(is_before).max() {
        ensure!(
            next > greatest,
            "{next} is not greater than {greatest}, which is released: choose a greater version, or make the branch {} for a backport",
            branch_of(next)
        );
    }
    Ok(())
}

/// Returns the tags besides the version's own that name this release from now on: that of its line, and `latest`. A prerelease gets neither,
/// and a backport only that of its line.
pub(crate) fn moving_tags(version: &Version, published: &[Version]) -> Vec<String> {
    let mut tags = Vec::new();
    if !version.pre.is_empty() {
        return tags;
    }
    let stable = || published.iter().filter(|one| one.pre.is_empty());
    let line = line(version);
    if stable().all(|one| self::line(one) != line || one <= version) {
        tags.push(format!("v{}.{}", line.0, line.1));
    }
    if stable().all(|one| one <= version) {
        tags.push(LATEST.to_owned());
    }
    tags
}

/// Returns whether a release is the newest one that is not a prerelease.
pub(crate) fn is_latest(version: &Version, published: &[Version]) -> bool {
    moving_tags(version, published)
        .iter()
        .any(|tag| tag == LATEST)
}

/// Returns the versions among tags, which have a `v` before.
pub(crate) fn versions<'a>(tags: impl IntoIterator<Item = &'a str>) -> Vec<Version> {
    let tags = tags.into_iter();
    tags.filter_map(|tag| tag.strip_prefix('v')?.parse().ok())
        .collect()
}

/// Returns the branch of a version's line.
pub(crate) fn branch_of(version: &Version) -> String {
    format!("{BRANCH}{}.{}", version.major, version.minor)
}

fn line(version: &Version) -> (u64, u64) {
    (version.major, version.minor)
}

/// Returns the line of a branch such as `release-5.1`.
fn line_of(branch: &str) -> Option<(u64, u64)> {
    let (major, minor) = branch.strip_prefix(BRANCH)?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str]) -> Vec<Version> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Checks the outcome for a checkout of 5.1.0 after the releases 5.0.0, 5.0.1 and 5.1.0.
    #[track_caller]
    fn check(branch: &str, current: &str, next: &str, expected: &str) {
        let history = History {
            current: current.parse().unwrap(),
            released: all(&["5.0.0", "5.0.1", "5.1.0"]),
            branch: (!branch.is_empty()).then(|| branch.to_owned()),
            branches: ["main", "release-5.0", "other"].map(str::to_owned).to_vec(),
        };
        let outcome = ensure_follows(&next.parse().unwrap(), &history);
        let error = outcome
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(error.contains(expected), "{next} on {branch}: {error}");
        assert_eq!(
            error.is_empty(),
            expected.is_empty(),
            "{next} on {branch}: {error}"
        );
    }

    #[test]
    fn versions_grow_within_their_line() {
        for next in ["5.1.1", "5.2.0-rc.1", "6.0.0"] {
            check("main", "5.1.0", next, "");
            check("", "5.1.0", next, "");
        }
        check("release-5.0", "5.0.1", "5.0.2", "");
        check("release-5.0", "5.0.1", "5.0.2-rc.1", "");
        check("main", "5.1.0", "5.1.0", "5.1.0 is released already");
        check("main", "5.1.0", "5.1.0-rc.1", "not greater than 5.1.0");
        check("main", "5.1.0", "5.1.1+x", "build metadata");
        check("main", "5.1.0", "5.0.2", "switch to its branch release-5.0");
        check(
            "main",
            "4.9.0",
            "4.9.1",
            "make the branch release-4.9 for a backport",
        );
        check(
            "main",
            "5.2.0",
            "5.1.1",
            "not greater than 5.2.0, which Cargo.toml has",
        );
        check(
            "release-5.0",
            "5.0.1",
            "5.1.1",
            "is for the versions 5.0.*, not for 5.1.1",
        );
        check("release-5.0", "5.0.1", "5.0.1", "is released already");
        check(
            "release-5.0",
            "5.0.0",
            "5.0.1-rc.1",
            "not greater than 5.0.1",
        );
    }

    #[test]
    fn version_of_the_checkout_can_be_the_first_release() {
        let history = History {
            current: "5.0.0".parse().unwrap(),
            released: Vec::new(),
            branch: Some("main".to_owned()),
            branches: vec!["main".to_owned()],
        };
        ensure_follows(&"5.0.0".parse().unwrap(), &history).unwrap();
        ensure_follows(&"4.9.9".parse().unwrap(), &history).unwrap_err();
    }

    #[test]
    fn backports_and_prereleases_do_not_move_latest() {
        let check = |version: &str, published: &[&str], expected: &[&str]| {
            let (version, published) = (version.parse().unwrap(), all(published));
            assert_eq!(moving_tags(&version, &published), expected, "{version}");
            let is_expected = expected.contains(&"latest");
            assert_eq!(is_latest(&version, &published), is_expected);
        };
        check("5.0.0", &[], &["v5.0", "latest"]);
        check("5.1.0", &["5.0.0", "5.1.0"], &["v5.1", "latest"]);
        check("5.0.1", &["5.0.0", "5.1.0"], &["v5.0"]);
        check("5.0.1", &["5.0.2", "5.1.0"], &[]);
        check("5.2.0-rc.1", &["5.1.0"], &[]);
        check("5.1.1", &["5.1.0", "5.2.0-rc.1"], &["v5.1", "latest"]);
        let tags = [
            "v5.1.0",
            "v5.1",
            "latest",
            "5.0.0",
            "v5.0.0-rc.1",
            "sha256-00",
        ];
        assert_eq!(versions(tags), all(&["5.1.0", "5.0.0-rc.1"]));
    }
}
