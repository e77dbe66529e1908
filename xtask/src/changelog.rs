//! `CHANGELOG.md`: a section for each release below the section of what is not released yet.

use anyhow::{Context as _, ensure};
use semver::Version;

/// The name of the file in a checkout.
pub(crate) const FILE: &str = "CHANGELOG.md";
/// The title of the first section.
const UNRELEASED: &str = "Unreleased";
/// Text between the version and the date in a title.
const DATED: &str = " - ";

/// A section, whose title is a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Section<'a> {
    title: &'a str,
    body: &'a str,
}

impl Section<'_> {
    /// Returns whether the section has no entry.
    fn is_empty(&self) -> bool {
        !self.body.lines().any(|line| line.starts_with("- "))
    }

    /// Returns the version in a title such as `X.Y.Z - 2026-01-31`.
    fn version(&self) -> Option<Version> {
        let (version, date) = self.title.split_once(DATED)?;
        is_date(date).then(|| version.parse().ok()).flatten()
    }
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut starts: Vec<_> = text.match_indices("\n## ").map(|(at, _)| at + 1).collect();
    starts.push(text.len());
    let pairs = starts.windows(2).map(|pair| &text[pair[0]..pair[1]]);
    pairs
        .map(|part| {
            let (title, body) = part.split_once('\n').unwrap_or((part, ""));
            let title = title.trim_start_matches("## ").trim();
            Section { title, body }
        })
        .collect()
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has_form = bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-';
    has_form && bytes.iter().filter(|byte| byte.is_ascii_digit()).count() == 8
}

fn unreleased(text: &str) -> anyhow::Result<Section<'_>> {
    let found = sections(text).into_iter().next();
    let found = found.filter(|section| section.title == UNRELEASED);
    found.with_context(|| format!("{FILE}: its first section is not `## {UNRELEASED}`"))
}

/// Returns the versions that have a section, as they stand in the file.
pub(crate) fn versions(text: &str) -> Vec<Version> {
    let all = sections(text).into_iter();
    all.filter_map(|section| section.version()).collect()
}

/// Returns the file with what is not released yet in a section of this version and date, below an empty first section.
pub(crate) fn cut(text: &str, version: &Version, date: &str) -> anyhow::Result<String> {
    let first = unreleased(text)?;
    ensure!(
        !first.is_empty(),
        "{FILE}: `## {UNRELEASED}` has no entry, so there is nothing to release: write what users meet, one line with `- ` each"
    );
    ensure!(
        !versions(text).contains(version),
        "{FILE} has a section of {version} already"
    );
    let title = format!("## {UNRELEASED}\n");
    let dated = format!("{title}\n## {version}{DATED}{date}\n");
    Ok(text.replacen(&title, &dated, 1))
}

/// Returns the text of a version's section, as notes of its release.
pub(crate) fn notes(text: &str, version: &Version) -> anyhow::Result<String> {
    let all = sections(text).into_iter();
    let mut matching = all.filter(|section| section.version().as_ref() == Some(version));
    let section = matching.next().filter(|section| !section.is_empty());
    let section = section.with_context(|| {
        format!("{FILE} has no section `## {version}{DATED}YYYY-MM-DD` with an entry: `cargo xtask release bump {version}` cuts it")
    })?;
    Ok(format!("{}\n", section.body.trim()))
}

/// Fails when something is not released yet, since the tag of a release would have it without a version.
pub(crate) fn ensure_nothing_unreleased(text: &str) -> anyhow::Result<()> {
    ensure!(
        unreleased(text)?.is_empty(),
        "{FILE}: `## {UNRELEASED}` has entries, which no version has: move them into the section of the release, or release a later commit"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Changelog\n\nWords.\n\n## Unreleased\n\nIntro.\n\n### Pods\n\n- New.\n\n## 1.1.0 - 2026-01-31\n\n- Old.\n\n## 1.0.0 - 2025-12-01\n\n- First.\n";

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn unreleased_entries_become_a_section_with_a_date() {
        let cut = cut(TEXT, &version("1.2.0"), "2026-02-03").unwrap();
        let expected = TEXT.replace(
            "## Unreleased\n",
            "## Unreleased\n\n## 1.2.0 - 2026-02-03\n",
        );
        assert_eq!(cut, expected);
        let found: Vec<_> = versions(&cut).iter().map(Version::to_string).collect();
        assert_eq!(found, ["1.2.0", "1.1.0", "1.0.0"]);
        ensure_nothing_unreleased(&cut).unwrap();
        let notes = notes(&cut, &version("1.2.0")).unwrap();
        assert_eq!(notes, "Intro.\n\n### Pods\n\n- New.\n");
    }

    #[test]
    fn nothing_is_cut_twice_or_from_nothing() {
        let refused = |text: &str, next: &str, expected: &str| {
            let error = cut(text, &version(next), "2026-02-03").unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        refused(TEXT, "1.1.0", "has a section of 1.1.0 already");
        let empty = TEXT.replace("- New.", "");
        refused(&empty, "1.2.0", "has no entry");
        let without = TEXT.replace("## Unreleased", "## Soon");
        refused(&without, "1.2.0", "its first section is not");
    }

    #[test]
    fn notes_are_those_of_a_dated_section() {
        assert_eq!(notes(TEXT, &version("1.0.0")).unwrap(), "- First.\n");
        for (text, wanted) in [
            (TEXT.to_owned(), "1.2.0"),
            (TEXT.replace("1.1.0 - 2026-01-31", "1.1.0"), "1.1.0"),
            (TEXT.replace("- Old.", ""), "1.1.0"),
        ] {
            let error = notes(&text, &version(wanted)).unwrap_err().to_string();
            assert!(error.contains("has no section"), "{error}");
        }
        let error = ensure_nothing_unreleased(TEXT).unwrap_err().to_string();
        assert!(error.contains("has entries"), "{error}");
    }
}
