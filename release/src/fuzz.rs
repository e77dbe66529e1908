//! Fuzz targets of the files of a release that somebody else made. `docs/contributing/testing.md` says how they run; archives and layouts have theirs in
//! `archive`.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use serde_json::Value;

use archive::lists;

use crate::{description::Release, names, sbom::cyclonedx};

/// Checksums, and the names of a list.
pub fn lists(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let without_digests = lists::without_digests(&text);
    assert!(!without_digests.contains('@'));
    assert_eq!(lists::without_digests(&without_digests), without_digests);
    for line in text.lines() {
        if let Some(reference) = names::reference(line) {
            let again = names::reference(&reference.whole());
            assert_eq!(again.as_ref(), Some(&reference));
        }
    }
    let Some(files) = lists::parse_sums(&text) else {
        return false;
    };
    let files = files.iter().map(|(name, digest)| (name.as_str(), *digest));
    assert_eq!(lists::sums(files), text);
    true
}

/// The description of a release.
pub fn releases(input: &[u8]) -> bool {
    let Ok(release) = Release::parse(input) else {
        return false;
    };
    let written = release.to_bytes().expect("texts and numbers are written");
    let again = Release::parse(&written).expect("a release is read as it is written");
    assert_eq!(again, release);
    let over = release.budgets.iter().any(|one| one.size > one.limit);
    assert_eq!(release.check_budgets().is_err(), over);
    true
}

/// A bill of materials.
pub fn sboms(input: &[u8]) -> bool {
    let Ok(document) = serde_json::from_slice::<Value>(input) else {
        return false;
    };
    cyclonedx::read(&document).is_ok()
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn lists() {
        run("release_lists", super::lists);
    }

    #[test]
    fn releases() {
        run("release_releases", super::releases);
    }

    #[test]
    fn sboms() {
        run("release_sboms", super::sboms);
    }
}
