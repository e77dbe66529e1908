//! What helps against an error of the operating system: the last words of a message that says what failed, and where.

use std::io::{self, ErrorKind};

/// The cure, where the system's own words do not say it.
pub(crate) fn of(error: &anyhow::Error) -> Option<&'static str> {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.find_map(|cause: &io::Error| of_kind(cause.kind()))
}

fn of_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some("make room there and run again")
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some("run as a user who may, as root on most nodes")
        }
        ErrorKind::NotADirectory => Some("something on the way there is no directory"),
        ErrorKind::IsADirectory => Some("a directory stands there: move it, or name another place"),
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
        assert_eq!(of(&error), Some("make room there and run again"));
        assert_eq!(of(&anyhow::anyhow!("x")), None);
    }
}
