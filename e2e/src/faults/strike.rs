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

use super::{random::Random, world::World};
use crate::node::Node;

/// Pause between two looks for a process that may live for milliseconds only.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// A blow, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Victim {
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
pub(super) enum During {
    Add,
    Del,
}

/// One disturbance of one container's life.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strike {
    pub(super) victim: Victim,
    pub(super) during: During,
    /// Since the victim is there.
    delay: Duration,
}

impl Strike {
    /// What a cycle has to stand.
    pub(super) fn choose(random: &mut Random) -> Self {
        let victim = random.one_of(&[
            Victim::Nobody,
            Victim::Shim,
            Victim::Shim,
            Victim::Daemon,
            Victim::Daemon,
            Victim::Bridge,
            Victim::Bridge,
            Victim::HostLocal,
            Victim::HostLocal,
            Victim::Update { is_patient: false },
            Victim::Update { is_patient: true },
        ]);
        // About as long as the victim has to do.
        let span = match victim {
            Victim::HostLocal => 5_000,
            Victim::Bridge => 60_000,
            _ => 400_000,
        };
        let during = random.one_of(&[During::Add, During::Add, During::Del]);
        let delay = Duration::from_micros(random.below(span).into());
        Self {
            victim,
            during,
            delay,
        }
    }

    /// Runs a verb of a container, and strikes meanwhile; says whether anybody was hit.
    pub(super) fn beside<T>(
        self,
        world: &World,
        container: &str,
        verb: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, bool)> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let blow = scope.spawn(|| self.strike(world, container, &over));
            let outcome = verb();
            over.store(true, Ordering::SeqCst);
            let hit = blow
                .join()
                .map_err(|_| anyhow::anyhow!("a strike panicked"))??;
            Ok((outcome?, hit))
        })
    }

    fn strike(self, world: &World, container: &str, over: &AtomicBool) -> anyhow::Result<bool> {
        let name = match self.victim {
            Victim::Nobody => return Ok(false),
            Victim::Daemon => {
                thread::sleep(self.delay);
                return world.crash().map(|()| true);
            }
            Victim::Update { is_patient } => {
                thread::sleep(self.delay);
                return world.update(is_patient).map(|()| true);
            }
            Victim::Shim => "multus-shim",
            Victim::Bridge => "bridge",
            Victim::HostLocal => "host-local",
        };
        let variable = format!("CNI_CONTAINERID={container}");
        while !over.load(Ordering::SeqCst) {
            if let Some(process) = find(&world.scene.node, name, &variable)? {
                // The moment is random, and nothing waits for it.
                thread::sleep(self.delay);
                return Ok(pidfd_send_signal(&process, Signal::KILL).is_ok());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(false)
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} during {:?} after {:?}",
            self.victim, self.during, self.delay
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
