//! Independent jobs, twice as many at a time as the machine has processors since they wait half of their time, reported in the order in which they end.

use std::{
    sync::{Mutex, mpsc},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// Calls `work` on each job and `done` with each outcome and the time that it took; `done` runs on this thread.
pub(crate) fn run<J: Send, T: Send>(
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

/// Calls `work` on each job and returns the outcomes in the order of the jobs, or the error of the first one that has one.
pub(crate) fn all<J: Copy + Send, T: Send>(
    jobs: impl IntoIterator<Item = J>,
    work: impl Fn(J) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let mut outcomes = Vec::new();
    run(
        jobs.into_iter().enumerate().collect(),
        |&(_, job)| work(job),
        |&(at, _), outcome, _| outcomes.push((at, outcome)),
    );
    outcomes.sort_by_key(|&(at, _)| at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Calls `work` on all jobs at once, each on a thread of its own, and returns the outcomes in the order of the jobs.
pub(crate) fn at_once<J: Send, T: Send>(
    jobs: impl IntoIterator<Item = J>,
    work: impl Fn(J) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let jobs = jobs.into_iter();
        let workers: Vec<_> = jobs.map(|job| scope.spawn(move || work(job))).collect();
        workers.into_iter().map(joined).collect()
    })
}

/// Waits for a thread, whose panic is an error.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    let outcome = thread.join();
    outcome.map_err(|_| anyhow::anyhow!("a thread panicked"))?
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

    #[test]
    fn outcomes_have_the_order_of_their_items_and_the_first_error_counts() {
        let items: Vec<u32> = (1..=100).collect();
        let (done, others) = mpsc::channel();
        let others = Mutex::new(others);
        let twice = all(&items, |&item| {
            // The first item is the last one whose work ends.
            if item == 1 {
                let others = others.lock().unwrap();
                others.iter().take(items.len() - 1).for_each(drop);
            } else {
                done.send(())?;
            }
            Ok(item * 2)
        });
        assert!(
            twice
                .unwrap()
                .iter()
                .zip(&items)
                .all(|(twice, item)| *twice == item * 2)
        );
        let error = all(&items, |&item| {
            anyhow::ensure!(item < 40, "{item}");
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "40");
    }
}
