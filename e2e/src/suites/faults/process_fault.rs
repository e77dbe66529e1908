//! A process that is killed while a CNI verb runs, or a rolling update of the daemon meanwhile.

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
use crate::{node::Node, pool};

/// Pause between two searches for a process that may live for milliseconds only.
const SEARCH_PAUSE: Duration = Duration::from_micros(500);

/// The process that the fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    None,
    Shim,
    Daemon,
    /// The main plugin of a network.
    Bridge,
    /// The IPAM plugin, which the main plugin runs.
    HostLocal,
    /// No process is killed: a rolling update starts another daemon.
    Update {
        waits_for_ready: bool,
    },
}

/// The verb during which the fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Add,
    Del,
}

/// One fault in the lifecycle of one container.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessFault {
    pub(super) target: Target,
    pub(super) during: Phase,
    /// Time from the start of the target process, or of the verb, to the fault.
    delay: Duration,
}

impl ProcessFault {
    /// Chooses the fault of a cycle.
    pub(super) fn choose(random: &mut Random) -> Self {
        let target = random.one_of(&[
            Target::None,
            Target::Shim,
            Target::Shim,
            Target::Daemon,
            Target::Daemon,
            Target::Bridge,
            Target::Bridge,
            Target::HostLocal,
            Target::HostLocal,
            Target::Update {
                waits_for_ready: false,
            },
            Target::Update {
                waits_for_ready: true,
            },
        ]);
        // About as long as the target runs.
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

    /// Runs a verb of a container and causes the fault meanwhile; returns also whether it hit a process.
    pub(super) fn cause_during<T>(
        self,
        fixture: &FaultsFixture,
        container: &str,
        verb: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, bool)> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let fault = scope.spawn(|| self.cause(fixture, container, &over));
            let outcome = verb();
            over.store(true, Ordering::SeqCst);
            let hit = pool::joined(fault)?;
            Ok((outcome?, hit))
        })
    }

    fn cause(
        self,
        fixture: &FaultsFixture,
        container: &str,
        over: &AtomicBool,
    ) -> anyhow::Result<bool> {
        let name = match self.target {
            Target::None => return Ok(false),
            Target::Daemon => {
                thread::sleep(self.delay);
                return fixture.crash().map(|()| true);
            }
            Target::Update { waits_for_ready } => {
                thread::sleep(self.delay);
                return fixture.update(waits_for_ready).map(|()| true);
            }
            Target::Shim => "multus-shim",
            Target::Bridge => "bridge",
            Target::HostLocal => "host-local",
        };
        let variable = format!("CNI_CONTAINERID={container}");
        while !over.load(Ordering::SeqCst) {
            if let Some(process) = find(&fixture.single_node.node, name, &variable)? {
                // The delay is part of the random choice; the test does not wait for a condition here.
                thread::sleep(self.delay);
                return Ok(pidfd_send_signal(&process, Signal::KILL).is_ok());
            }
            thread::sleep(SEARCH_PAUSE);
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

/// Finds a process of the node by its name and a variable of its environment. The returned file refers to this process even after
/// its id went to another.
fn find(node: &Node, name: &str, variable: &str) -> anyhow::Result<Option<File>> {
    let processes = node.path("/proc");
    let entries = fs::read_dir(&processes).context("the node's processes")?;
    for entry in entries {
        // A process whose files cannot be read has ended meanwhile.
        let Ok(dir) = entry.map(|entry| entry.path()) else {
            continue;
        };
        let is_process = dir
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if !is_process {
            continue;
        }
        // Opened before its files are read, because the kernel may give the process id to another process.
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
