//! Ends a daemon whose async thread hangs, so that the kubelet restarts it. A probe would start a process on each node for ever.
//!
//! Threads that wait for plugins, files or the API server are not a hang: only the thread that accepts requests is asked.

use std::{
    process,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::Context;
use tokio::runtime::Handle;
use tracing::error;

/// The pace of the questions.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Between an answer and the next question.
    pause: Duration,
    /// The time of one wait for an answer, and the number of waits. A machine or container that was paused for long misses one of them.
    wait: Duration,
    waits: u32,
}

const PACE: Pace = Pace {
    pause: Duration::from_secs(20),
    wait: Duration::from_secs(10),
    waits: 6,
};
/// The time for the last log line: what hangs may be the log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Watches this runtime from a thread of its own until the runtime ends.
pub fn start(runtime: Handle) -> anyhow::Result<()> {
    let watch = move || {
        if watch(&runtime, PACE) == Outcome::Hangs {
            end();
        }
    };
    let thread = thread::Builder::new().name("watchdog".to_owned());
    thread
        .spawn(watch)
        .map(drop)
        .context("cannot start the watchdog")
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The runtime gives no sign of life.
    Hangs,
    /// The runtime was shut down.
    Ended,
}

fn watch(runtime: &Handle, pace: Pace) -> Outcome {
    loop {
        let (sender, answer) = mpsc::channel();
        // It fails only when nobody waits for the answer any more.
        runtime.spawn(async move {
            let _ = sender.send(());
        });
        let mut waits = (0..pace.waits).map(|_| answer.recv_timeout(pace.wait));
        match waits.find(|outcome| *outcome != Err(RecvTimeoutError::Timeout)) {
            Some(Ok(())) => thread::sleep(pace.pause),
            Some(Err(_)) => return Outcome::Ended,
            None => return Outcome::Hangs,
        }
    }
}

fn end() -> ! {
    let (sender, logged) = mpsc::channel();
    thread::spawn(move || {
        error!(
            "the daemon has not responded to itself for a minute: it ends, and the kubelet restarts it"
        );
        // The other side may have given up.
        let _ = sender.send(());
    });
    let _ = logged.recv_timeout(LAST_WORDS);
    process::exit(1)
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const SHORT: Pace = Pace {
        pause: Duration::from_millis(1),
        wait: Duration::from_millis(20),
        waits: 3,
    };

    fn runtime() -> Runtime {
        Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap()
    }

    #[test]
    fn runtime_whose_thread_is_blocked_hangs() {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let watching = thread::spawn(move || watch(&handle, SHORT));
        // The thread of the runtime does something else than its tasks.
        runtime.block_on(async { assert_eq!(watching.join().unwrap(), Outcome::Hangs) });
    }

    #[test]
    fn runtime_with_blocked_workers_is_watched_until_it_ends() {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let (release, blocked) = mpsc::channel::<()>();
        let worker = runtime.spawn_blocking(move || blocked.recv());
        let (lasting, ended) = (
            Pace {
                wait: Duration::from_mins(1),
                ..SHORT
            },
            mpsc::channel(),
        );
        let watching = thread::spawn(move || drop(ended.0.send(watch(&handle, lasting))));
        // More questions than the blocked worker lets pass if one of them needed it.
        runtime.block_on(async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(ended.1.try_recv().is_err());
        drop(release);
        drop(worker);
        runtime.shutdown_background();
        assert_eq!(ended.1.recv().unwrap(), Outcome::Ended);
        watching.join().unwrap();
    }
}
