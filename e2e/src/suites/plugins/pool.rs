//! Independent jobs, twice as many at a time as the machine has processors since they wait half of their time, reported in the order in which they end.

use std::{
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Calls `work` on each job and `done` with each outcome and the time that it took; `done` runs on this thread.
pub(super) fn run<J: Send, T: Send>(
    jobs: Vec<J>,
    work: impl Fn(&J) -> T + Sync,
    mut done: impl FnMut(&J, T, Duration),
) {
    let workers = 2 * thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(jobs.into_iter());
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, queue, work) = (sender.clone(), &queue, &work);
            scope.spawn(move || {
                loop {
                    let next = queue.lock().ok().and_then(|mut jobs| jobs.next());
                    let Some(job) = next else { break };
                    let start = Instant::now();
                    let outcome = work(&job);
                    // The receiver lives until the last sender is dropped.
                    let _ = sender.send((job, outcome, start.elapsed()));
                }
            });
        }
        drop(sender);
        for (job, outcome, time) in receiver {
            done(&job, outcome, time);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_done_once() {
        let mut sum = 0;
        run(
            (1..=100).collect(),
            |job| job * 2,
            |job, twice, _| {
                assert_eq!(twice, job * 2);
                sum += job;
            },
        );
        assert_eq!(sum, 5050);
    }
}
