//! For tests alone: a moment at which things go wrong on this thread, the same for state files and for plugins.

use std::cell::Cell;
use std::fs;
use std::io;

use node::root::{Directory, RootError, proc_path};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The step fails, as on a full disk.
    Failure,
    /// The process ends right before it. What this unwinds to has to catch it.
    End,
}

thread_local! {
    static PLAN: Cell<Option<(u32, Fault)>> = const { Cell::new(None) };
}

/// Lets the step after the next `steps` ones go wrong.
pub(crate) fn plan(steps: u32, fault: Fault) {
    PLAN.set(Some((steps, fault)));
}

/// Whether it has gone wrong; if not, it never will.
pub(crate) fn happened() -> bool {
    PLAN.take().is_none()
}

/// One step; `Err` if it is to fail.
pub(crate) fn step() -> Result<(), io::Error> {
    match PLAN.get() {
        None => Ok(()),
        Some((0, fault)) => {
            PLAN.set(None);
            match fault {
                Fault::Failure => Err(io::ErrorKind::StorageFull.into()),
                Fault::End => std::panic::resume_unwind(Box::new(fault)),
            }
        }
        Some((steps, fault)) => {
            PLAN.set(Some((steps - 1, fault)));
            Ok(())
        }
    }
}

/// One replacement or removal of a file of state. A process that ends there leaves the beginning of a hidden file beside it.
pub(super) fn file_step(dir: &Directory, name: &str) -> Result<(), RootError> {
    leaving(dir, &format!(".multus-rs-{name}.tmp"), name)
}

/// A file of state that is made under its own name, of which a process that ends leaves the beginning.
pub(super) fn create_step(dir: &Directory, name: &str) -> Result<(), RootError> {
    leaving(dir, name, name)
}

fn leaving(dir: &Directory, half: &str, name: &str) -> Result<(), RootError> {
    if let Some((0, Fault::End)) = PLAN.get() {
        let _ = fs::write(proc_path(dir).join(half), "[{");
    }
    step().map_err(|source| RootError {
        action: "write",
        path: dir.path().join(name),
        source,
    })
}
