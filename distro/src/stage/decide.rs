//! What staging does about a file, by what is found in its place. Functions over values.

use crate::manifest::{is_removal, meaning};

/// What is found in a file's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Absent,
    /// What belongs there, whatever the distro itself has written into it.
    Wanted,
    /// What an earlier staging put there.
    Former,
    /// The words that have the distro take everything away.
    Removal,
    /// What we staged, and somebody changed.
    Edited,
    /// What we never staged.
    Foreign,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: its time of change stays, and the distro has no reason to look at it again.
    Leave,
    /// The wanted content is written.
    Write,
    /// The same, and the operator is told that what he changed is gone.
    Overwrite,
    /// Nothing of all files: somebody else's is in the way.
    Refuse,
    /// Words are written that have the distro take everything away.
    Empty,
    /// The file goes.
    Delete,
}

/// Judges a file by its bytes, those that belong there and the checks of what was staged there.
pub(crate) fn judge(
    path: &str,
    present: Option<&[u8]>,
    wanted: Option<&[u8]>,
    known: &[&str],
) -> Found {
    let Some(present) = present else {
        return Found::Absent;
    };
    let found = meaning(path, present);
    if wanted.is_some_and(|wanted| meaning(path, wanted) == found) {
        return Found::Wanted;
    }
    if is_removal(present) {
        return Found::Removal;
    }
    match known {
        [] => Found::Foreign,
        known if known.contains(&check(path, present).as_str()) => Found::Former,
        _ => Found::Edited,
    }
}

/// With Multus on. An edit is lost, as the distros lose those of their own manifests at each start.
pub(crate) fn on(found: Found) -> Step {
    match found {
        Found::Wanted => Step::Leave,
        Found::Absent | Found::Former | Found::Removal => Step::Write,
        Found::Edited => Step::Overwrite,
        Found::Foreign => Step::Refuse,
    }
}

/// With Multus off.
pub(crate) fn off(found: Found, is_manifest: bool, force: bool) -> Step {
    match found {
        Found::Absent | Found::Removal => Step::Leave,
        Found::Edited | Found::Foreign if !force => Step::Refuse,
        _ if is_manifest => Step::Empty,
        _ => Step::Delete,
    }
}

/// FNV-1a of what a file means: tells one that somebody edited from ours, nothing more.
pub(crate) fn check(path: &str, bytes: &[u8]) -> String {
    let hash = meaning(path, bytes)
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "server/manifests/multus.yaml";

    fn judged(present: Option<&[u8]>, known: &[&str]) -> Found {
        judge(PATH, present, Some(b"new"), known)
    }

    #[test]
    fn every_state_of_a_file_is_told_apart() {
        let old = check(PATH, b"old");
        let known = &[old.as_str()][..];
        assert_eq!(judged(None, known), Found::Absent);
        assert_eq!(judged(Some(b"new"), &[]), Found::Wanted);
        assert_eq!(judged(Some(b"old"), known), Found::Former);
        assert_eq!(judged(Some(b"mine"), known), Found::Edited);
        assert_eq!(judged(Some(b"mine"), &[]), Found::Foreign);
        let removal = crate::manifest::removal("multus.yaml");
        assert_eq!(judged(Some(&removal), known), Found::Removal);
    }

    #[test]
    fn the_state_machine() {
        use Found::{Absent, Edited, Foreign, Former, Removal, Wanted};
        for (found, when_on, manifest_off, chart_off, forced) in [
            (Absent, Step::Write, Step::Leave, Step::Leave, Step::Leave),
            (Wanted, Step::Leave, Step::Empty, Step::Delete, Step::Empty),
            (Former, Step::Write, Step::Empty, Step::Delete, Step::Empty),
            (Removal, Step::Write, Step::Leave, Step::Leave, Step::Leave),
            (
                Edited,
                Step::Overwrite,
                Step::Refuse,
                Step::Refuse,
                Step::Empty,
            ),
            (
                Foreign,
                Step::Refuse,
                Step::Refuse,
                Step::Refuse,
                Step::Empty,
            ),
        ] {
            assert_eq!(on(found), when_on, "{found:?}");
            assert_eq!(off(found, true, false), manifest_off, "{found:?}");
            assert_eq!(off(found, false, false), chart_off, "{found:?}");
            assert_eq!(off(found, true, true), forced, "{found:?}");
        }
    }
}
