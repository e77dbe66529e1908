//! Decides what staging does with a file, by the file that is found under its path. Functions over values.

use crate::manifest::{canonical, is_removal};

/// The state of the file under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileState {
    Absent,
    /// The planned content, whatever the distro itself has written into it.
    Current,
    /// The content of an earlier staging.
    Former,
    /// The comments for which the distro removes what it installed.
    Removal,
    /// A file that was staged and changed since.
    Edited,
    /// A file that was never staged.
    Foreign,
}

/// An action on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Keeps the file and its modification time, so that the distro has no reason to read it again.
    Leave,
    /// Writes the planned content.
    Write,
    /// Writes the planned content, and notes that an edit is lost.
    Overwrite,
    /// Fails before any file is touched, since this one is not ours or was edited.
    Refuse,
    /// Writes only comments, for which the distro removes what it installed.
    Empty,
    Delete,
}

/// Classifies a file by its bytes, the planned bytes, and the checks that were recorded for its path.
pub(crate) fn classify(
    path: &str,
    present: Option<&[u8]>,
    planned: Option<&[u8]>,
    recorded: &[&str],
) -> FileState {
    let Some(present) = present else {
        return FileState::Absent;
    };
    let content = canonical(path, present);
    if planned.is_some_and(|planned| canonical(path, planned) == content) {
        return FileState::Current;
    }
    if is_removal(present) {
        return FileState::Removal;
    }
    match recorded {
        [] => FileState::Foreign,
        recorded if recorded.contains(&check(path, present).as_str()) => FileState::Former,
        _ => FileState::Edited,
    }
}

/// Decides with Multus on. An edit is lost, as the distros lose edits of their own manifests at each start.
pub(crate) fn to_stage(state: FileState) -> Action {
    match state {
        FileState::Current => Action::Leave,
        FileState::Absent | FileState::Former | FileState::Removal => Action::Write,
        FileState::Edited => Action::Overwrite,
        FileState::Foreign => Action::Refuse,
    }
}

/// Decides with Multus off.
pub(crate) fn to_unstage(state: FileState, is_manifest: bool, force: bool) -> Action {
    match state {
        FileState::Absent | FileState::Removal => Action::Leave,
        FileState::Edited | FileState::Foreign if !force => Action::Refuse,
        _ if is_manifest => Action::Empty,
        _ => Action::Delete,
    }
}

/// Returns FNV-1a of a file's canonical content, which is enough to see an edit and protects against nothing else.
pub(crate) fn check(path: &str, bytes: &[u8]) -> String {
    let hash = canonical(path, bytes)
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

    fn state(present: Option<&[u8]>, recorded: &[&str]) -> FileState {
        classify(PATH, present, Some(b"new"), recorded)
    }

    #[test]
    fn every_state_of_a_file_is_distinguished() {
        let old = check(PATH, b"old");
        let recorded = &[old.as_str()][..];
        assert_eq!(state(None, recorded), FileState::Absent);
        assert_eq!(state(Some(b"new"), &[]), FileState::Current);
        assert_eq!(state(Some(b"old"), recorded), FileState::Former);
        assert_eq!(state(Some(b"mine"), recorded), FileState::Edited);
        assert_eq!(state(Some(b"mine"), &[]), FileState::Foreign);
        let removal = crate::manifest::removal("multus.yaml");
        assert_eq!(state(Some(&removal), recorded), FileState::Removal);
    }

    #[test]
    fn every_state_has_its_action() {
        use Action::{Delete, Empty, Leave, Overwrite, Refuse, Write};
        use FileState::{Absent, Current, Edited, Foreign, Former, Removal};
        for (state, staged, manifest_unstaged, chart_unstaged, forced) in [
            (Absent, Write, Leave, Leave, Leave),
            (Current, Leave, Empty, Delete, Empty),
            (Former, Write, Empty, Delete, Empty),
            (Removal, Write, Leave, Leave, Leave),
            (Edited, Overwrite, Refuse, Refuse, Empty),
            (Foreign, Refuse, Refuse, Refuse, Empty),
        ] {
            assert_eq!(to_stage(state), staged, "{state:?}");
            let unstage = |is_manifest, force| to_unstage(state, is_manifest, force);
            assert_eq!(unstage(true, false), manifest_unstaged, "{state:?}");
            assert_eq!(unstage(false, false), chart_unstaged, "{state:?}");
            assert_eq!(unstage(true, true), forced, "{state:?}");
        }
    }
}
