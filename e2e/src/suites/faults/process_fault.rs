//! What is done to whom while a verb runs.

use std::{
    fmt,
    fs::{self, File},
    io::Read as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Signal, pidfd_send_signal};

use super::{fixture::FaultsFixture, random::Random};
use crate::node::Node;

/// Pause between two looks for a process that may live for milliseconds only.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// A blow, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Nobody,
    Shim,
    Daemon,
    /// A plugin while it runs.
    Bridge,
    /// The plugin that a plugin runs.
    HostLocal,
    /// Nobody is killed: another daemon takes over.
    Update {
        is_patient: bool,
    },
}

/// The verb that it comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Add,
    Del,
}

/// One disturbance of one container's life.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessFault {
    pub(super) target: Target,
    pub(super) during: Phase,
    /// Since the target is there.
    delay: Duration,
}

impl ProcessFault {
    /// What a cycle has to stand.
    pub(super) fn choose(random: &mut Random) -> Self {
        let target = random.one_of(&[
            Target::Nobody,
            Target::Shim,
            Target::Shim,
            Target::Daemon,
            Target::Daemon,
            Target::Bridge,
            Target::Bridge,
            Target::HostLocal,
            Target::HostLocal,
            Target::Update { is_patient: false },
            Target::Update { is_patient: true },
        ]);
        // About as long as the target has to do.
        let span = match target {
            Target::HostLocal => 5_000,
            Target::Bridge => 60_000,
            _ => 400_000,
        };
        let during = random.one_of(&[Phase::Add, Phase::Add, Phase::Del]);
        let delay = Duration::from_micros(random.below(span).into());
        Self {
            target,
            during,
            delay,
        }
    }

    /// Runs a verb of a container, and strikes meanwhile; says whether anybody was hit.
    pub(super) fn beside<T>(
        self,
        fixture: &FaultsFixture,
        container: &str,
        verb: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, bool)> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let blow = scope.spawn(|| self.strike(fixture, container, &over));
            let outcome = verb();
            over.store(true, Ordering::SeqCst);
            let hit = blow
                .join()
                .map_err(|_| anyhow::anyhow!("a strike panicked"))??;
            Ok((outcome?, hit))
        })
    }

    fn strike(
        self,
        fixture: &FaultsFixture,
        container: &str,
        over: &AtomicBool,
    ) -> anyhow::Result<bool> {
        let name = match self.target {
            Target::Nobody => return Ok(false),
            Target::Daemon => {
                thread::sleep(self.delay);
                return fixture.crash().map(|()| true);
            }
            Target::Update { is_patient } => {
                thread::sleep(self.delay);
                return fixture.update(is_patient).map(|()| true);
            }
            Target::Shim => "multus-shim",
            Target::Bridge => "bridge",
            Target::HostLocal => "host-local",
        };
        let variable = format!("CNI_CONTAINERID={container}");
        while !over.load(Ordering::SeqCst) {
            if let Some(process) = find(&fixture.single_node.node, name, &variable)? {
                // The moment is random, and nothing waits for it.
                thread::sleep(self.delay);
                return Ok(pidfd_send_signal(&process, Signal::KILL).is_ok());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(false)
    }
}

impl fmt::Display for ProcessFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} during {:?} after {:?}",
            self.target, self.during, self.delay
        )
    }
}

/// A process of the node by its name and a variable of its environment; what is returned stands for it alone.
fn find(node: &Node, name: &str, variable: &str) -> anyhow::Result<Option<File>> {
    let processes = node.path("/proc");
    let entries = fs::read_dir(&processes).context("the node's processes")?;
    for entry in entries {
        // Whatever cannot be read has ended meanwhile.
        let Ok(dir) = entry.map(|entry| entry.path()) else {
            continue;
        };
        let is_process = dir
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if !is_process {
            continue;
        }
        // Held before it is looked at: its number may go to another.
        let Ok(process) = File::open(&dir) else {
            continue;
        };
        let reads = |file: &str| {
            let mut bytes = Vec::new();
            let read = File::open(dir.join(file)).and_then(|mut file| file.read_to_end(&mut bytes));
            read.map(|_| bytes).unwrap_or_default()
        };
        let is_called = reads("comm").trim_ascii() == name.as_bytes();
        if is_called
            && reads("environ")
                .split(|byte| *byte == 0)
                .any(|one| one == variable.as_bytes())
        {
            return Ok(Some(process));
        }
    }
    Ok(None)
}
