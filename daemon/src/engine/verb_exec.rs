//! Runs the plugins of one verb within the verb's time, and none after the runtime has given up an ADD.
//!
//! A plugin that hangs ends at its own time limit. Without one for the whole verb, a few such plugins together would outlast the shim,
//! and the slot and the container's lock would be taken for all that time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cni::exec::{Exec, ExecError};
use cni::types::CniError;

use super::Cancellation;
use super::invocation::DelegateContext;

/// How long after a request its networks can be attached. The shim waits for 170 seconds; the rest is for the undo of an ADD.
const ATTACH: Duration = Duration::from_secs(150);
/// How long after a request its networks can be detached.
const DETACH: Duration = Duration::from_secs(165);
/// How long networks can be detached at least: a DEL may have waited long for an ADD of its container.
const DETACH_AT_LEAST: Duration = Duration::from_secs(20);

/// How long the plugins of a GC may take together. No ADD begins meanwhile.
const COLLECT: Duration = Duration::from_secs(15);

/// The times at which the plugins of a verb have to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    attach: Instant,
    detach: Instant,
}

impl Deadlines {
    /// The deadlines of a request whose work begins now.
    pub(super) fn of(cancellation: &Cancellation) -> Self {
        let since = cancellation.since;
        Self {
            attach: since + ATTACH,
            detach: (since + DETACH).max(Instant::now() + DETACH_AT_LEAST),
        }
    }
}

/// The plugins of one delegate.
pub(super) struct VerbExec<'a> {
    exec: &'a dyn Exec,
    deadline: Instant,
    /// Stops an ADD or CHECK.
    cancellation: Option<&'a Cancellation>,
    /// Whether others get the time that this delegate leaves.
    is_last: bool,
}

impl<'a> VerbExec<'a> {
    /// Runs plugins for ADD or CHECK.
    pub(super) fn attaching(exec: &'a dyn Exec, context: &'a DelegateContext<'_>) -> Self {
        Self {
            exec,
            deadline: context.deadlines.attach,
            cancellation: Some(&context.request.cancellation),
            is_last: true,
        }
    }

    /// Runs plugins for DEL, which goes on when the runtime has given up. Each plugin of a delegate that is not the last one has half of
    /// the time that is left, so that one that hangs at every DEL does not keep the others attached.
    pub(super) fn detaching(
        exec: &'a dyn Exec,
        context: &'a DelegateContext<'_>,
        is_last: bool,
    ) -> Self {
        Self {
            exec,
            deadline: context.deadlines.detach,
            cancellation: None,
            is_last,
        }
    }

    /// Runs the plugins of a GC that begins now, each in half of the time that is left, so that one that hangs does not keep the others from
    /// collecting.
    pub(super) fn collecting(exec: &'a dyn Exec) -> Self {
        Self {
            exec,
            deadline: Instant::now() + COLLECT,
            cancellation: None,
            is_last: false,
        }
    }

    fn time_left(&self) -> Result<Duration, CniError> {
        if let Some(cancellation) = self.cancellation {
            cancellation.check()?;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = "not run: the time of the request is over, which the plugins before it took; a retry follows";
            return Err(CniError::new(CniError::TRY_AGAIN_LATER, text));
        }
        Ok(if self.is_last { left } else { left / 2 })
    }
}

impl Exec for VerbExec<'_> {
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError> {
        self.exec.find(plugin, dirs)
    }

    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        let time = self
            .time_left()
            .map_err(|error| ExecError::Stopped(error.into()))?;
        self.exec.run_within(time, path, env, stdin)
    }
}
