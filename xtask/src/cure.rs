//! What helps against an error of the operating system: the last words of a message that says what failed, and where.
//!
//! Errors of our own carry their cure already.

use std::io::{self, ErrorKind};

/// The cure, where the system's own words do not say it.
pub(crate) fn of(error: &anyhow::Error) -> Option<&'static str> {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.find_map(|cause: &io::Error| of_kind(cause.kind()))
}

fn of_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some("make room there, or name another place")
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some("name another place, or become a user who may")
        }
        ErrorKind::NotADirectory => {
            Some("something on the way there is no folder: name another place")
        }
        ErrorKind::IsADirectory => Some("a folder stands there: move it, or name another place"),
        ErrorKind::ResourceBusy => Some("a mount, perhaps: name a folder below it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_full_disk_has_a_cure_below_any_words() {
        let full: anyhow::Result<()> = Err(io::Error::from(ErrorKind::StorageFull).into());
        let error = full.context("cannot write x").unwrap_err();
        assert_eq!(of(&error), Some("make room there, or name another place"));
    }

    #[test]
    fn our_own_errors_have_theirs_in_them() {
        assert_eq!(of(&anyhow::anyhow!("x is missing; make it with y")), None);
        assert_eq!(of(&io::Error::from(ErrorKind::NotFound).into()), None);
    }
}
