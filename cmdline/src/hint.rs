//! Hints for errors of the operating system: the end of a message that already says what failed, and where.
//!
//! The programs' own errors carry their hints in their texts.

use std::io::{self, ErrorKind};

/// Returns the hint for the first error of the operating system in the chain, or `None` when its own text suffices.
pub fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.find_map(|cause: &io::Error| for_kind(cause.kind()))
}

fn for_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some("make room there and run again, or name another path")
        }
        ErrorKind::PermissionDenied => {
            Some("run as a user with that permission, root on most nodes, or name another path")
        }
        ErrorKind::ReadOnlyFilesystem => Some("name a path on a writable file system"),
        ErrorKind::NotADirectory => {
            Some("a parent in that path is not a directory: name another path")
        }
        ErrorKind::IsADirectory => Some("that path is a directory: move it, or name another path"),
        ErrorKind::ResourceBusy => Some("it may be a mount point: name a directory below it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn hint_for_a_full_disk_is_found_below_any_context() {
        let full: anyhow::Result<()> = Err(io::Error::from(ErrorKind::StorageFull).into());
        let error = full.context("cannot write x").unwrap_err();
        assert!(hint(&error).is_some_and(|hint| hint.starts_with("make room there")));
    }

    #[test]
    fn errors_of_the_programs_get_no_further_hint() {
        let own = anyhow::anyhow!("x is missing; make it with y");
        assert_eq!(hint(&own), None);
        assert_eq!(hint(&io::Error::from(ErrorKind::NotFound).into()), None);
    }
}
