//! Only for tests: plans a fault at a step of this thread. Writes of state files and runs of plugins are the steps.

use std::cell::Cell;
use std::fs;
use std::io;

use node::root::{Directory, RootError, proc_path};

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The step fails, as on a full disk.
    Failure,
    /// The process ends right before the step. It unwinds, and the test has to catch that.
    End,
}

thread_local! {
    static PLAN: Cell<Option<(u32, Fault)>> = const { Cell::new(None) };
}

/// Plans a fault for the step after the next `steps` ones.
pub(crate) fn plan(steps: u32, fault: Fault) {
    PLAN.set(Some((steps, fault)));
}

/// Returns whether the fault has happened, and cancels it otherwise.
pub(crate) fn happened() -> bool {
    PLAN.take().is_none()
}

/// Takes one step. It returns an error if the step is to fail.
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

/// Takes the step of replacing or removing a state file. A process that ends there leaves the beginning of a hidden file next to it.
pub(super) fn file_step(dir: &Directory, name: &str) -> Result<(), RootError> {
    fault_step(dir, &format!(".multus-rs-{name}.tmp"), name)
}

/// Takes the step of creating a state file under its own name. A process that ends there leaves the beginning of it.
pub(super) fn create_step(dir: &Directory, name: &str) -> Result<(), RootError> {
    fault_step(dir, name, name)
}

fn fault_step(dir: &Directory, half: &str, name: &str) -> Result<(), RootError> {
    if let Some((0, Fault::End)) = PLAN.get() {
        let _ = fs::write(proc_path(dir).join(half), "[{");
    }
    step().map_err(|source| RootError {
        action: "write",
        path: dir.path().join(name),
        source,
    })
}
