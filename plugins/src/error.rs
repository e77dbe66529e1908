//! Errors of plugins. Each is a CNI error from the start: its code is chosen where the cause is known, and it is printed once.

use cni::CniError;

/// The result of anything that can fail the verb.
pub(crate) type Result<T> = std::result::Result<T, CniError>;

/// Makes an error by [`internal`], from a text with values.
macro_rules! failure {
    ($($text:tt)*) => {
        $crate::error::internal(format!($($text)*))
    };
}

/// Returns such an error.
macro_rules! bail {
    ($($text:tt)*) => {
        return Err($crate::error::failure!($($text)*))
    };
}

pub(crate) use {bail, failure};

/// Returns an error without a code of its own (999), which is what the reference plugins use nearly everywhere.
pub(crate) fn internal(text: String) -> CniError {
    CniError::new(CniError::INTERNAL, text)
}

/// Fails with the texts of all steps that failed, if there are any.
pub(crate) fn join_failures(texts: &[String], separator: &str) -> Result<()> {
    if texts.is_empty() {
        Ok(())
    } else {
        Err(internal(texts.join(separator)))
    }
}

/// Writes a failure that is not a failure of the verb to stderr, which runtimes log.
pub(crate) fn warn(text: &str) {
    use std::io::Write;
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(format!("{text}\n").as_bytes());
}

/// Says what failed in front of a cause.
pub(crate) trait Context<T> {
    /// Returns an error without a code of its own: `what: cause`. An error that is a CNI error already keeps its code.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Cause> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.with(&what()))
    }
}

/// A cause of an error.
pub(crate) trait Cause {
    /// Returns the error `what: cause`.
    fn with(self, what: &str) -> CniError;
}

impl Cause for CniError {
    fn with(self, what: &str) -> CniError {
        self.context(what)
    }
}

impl Cause for serde_json::Error {
    fn with(self, what: &str) -> CniError {
        failure!("{what}: {self}")
    }
}

impl Cause for crate::ip::AddressError {
    fn with(self, what: &str) -> CniError {
        failure!("{what}: {self}")
    }
}

/// Runs `work`; when it fails, `undo` takes back what came before.
pub(crate) fn or_undo<T>(work: impl FnOnce() -> Result<T>, undo: impl FnOnce()) -> Result<T> {
    let result = work();
    if result.is_err() {
        undo();
    }
    result
}
