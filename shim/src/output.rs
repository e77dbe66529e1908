//! The only module that writes to stdout: one document, once.

use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use cni::types::pretty;
use cni::{CniError, Version};
use serde_json::Value;

/// The document for stdout.
pub(crate) enum Document {
    /// Success without output.
    Nothing,
    /// Text that is printed as it is, for versions.
    Text(String),
    /// The result of ADD.
    Result(Value),
    /// The error of a failed call.
    Error(CniError),
}

/// Set by the first write; later writes do nothing.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// Prints the document and returns the exit code of the process.
pub(crate) fn print(document: Document) -> ExitCode {
    let (bytes, code) = match document {
        Document::Nothing => return ExitCode::SUCCESS,
        Document::Text(text) => (text.into_bytes(), ExitCode::SUCCESS),
        Document::Result(result) => (pretty(&result), ExitCode::SUCCESS),
        Document::Error(error) => (error.to_pretty(), ExitCode::FAILURE),
    };
    if write(&bytes) {
        code
    } else {
        ExitCode::FAILURE
    }
}

/// Explains itself on stderr to a user who started the program by hand.
pub(crate) fn print_usage(name: &str, versions: &[Version]) -> ExitCode {
    let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
    let text = format!(
        "{name}: a CNI plugin; it is started by a container runtime\nCNI protocol versions supported: {}\n",
        versions.join(", ")
    );
    if write_all(rustix::stdio::stderr(), text.as_bytes()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Makes a panic print a CNI error, since the runtime reads nothing else.
pub(crate) fn guard_against_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        let error = CniError::new(CniError::INTERNAL, "multus-shim panicked; this is a bug");
        write(&error.with_details(text).to_pretty());
        std::process::exit(1);
    }));
}

fn write(bytes: &[u8]) -> bool {
    !WRITTEN.swap(true, Ordering::SeqCst) && write_all(rustix::stdio::stdout(), bytes)
}

/// Writes everything; `false` if that fails. One document needs none of the standard library's buffers.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return false,
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
