//! The queue of events to send. Its length and the number of concurrent requests are bounded, so that events delay neither an ADD nor
//! its status.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Event;
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
};
use tracing::warn;

use super::event_recorder::Recorder;
use crate::{access::Client, metrics::Metrics};

/// Capacity of the queue: more than one event of each pod of a full node. Further events are dropped.
const CAPACITY: usize = 512;
/// Concurrent requests for events; the rest of a connection's capacity is for statuses.
const CONCURRENCY: usize = 4;
/// The time limit for one event with all its tries.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The sending half of the queue.
#[derive(Debug, Clone)]
pub(super) struct EventQueue {
    queue: Sender<Queued>,
    dropped: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

/// An event with its reason, the label of its metric.
type Queued = (Event, &'static str);

impl EventQueue {
    /// Starts a task on `runtime` that sends events until the last clone of the queue is dropped.
    pub(super) fn start(client: Client, runtime: &Handle, metrics: Arc<Metrics>) -> Self {
        let (events, waiting) = Self::new(CAPACITY, Arc::clone(&metrics));
        let dropped = Arc::clone(&events.dropped);
        runtime.spawn(run(client, waiting, dropped, metrics));
        events
    }

    fn new(length: usize, metrics: Arc<Metrics>) -> (Self, Receiver<Queued>) {
        let (queue, waiting) = mpsc::channel(length);
        let events = Self {
            queue,
            dropped: Arc::default(),
            metrics,
        };
        (events, waiting)
    }

    /// Queues an event without waiting. A full queue drops and counts it.
    pub(super) fn send(&self, event: Event, reason: &'static str) {
        if self.queue.try_send((event, reason)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.metrics.event(reason, false);
        }
    }
}

async fn run(
    client: Client,
    mut waiting: Receiver<Queued>,
    dropped: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
) {
    let recorder = Recorder::default();
    let mut sending = JoinSet::new();
    while let Some((event, reason)) = waiting.recv().await {
        while sending.len() >= CONCURRENCY {
            sending.join_next().await;
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            warn!(dropped, "events dropped because the queue was full");
        }
        let (client, recorder) = (client.clone(), recorder.clone());
        let metrics = Arc::clone(&metrics);
        sending.spawn(async move {
            let sent = recorder.send(&client, event, TIMEOUT).await;
            metrics.event(reason, sent.is_ok());
            if let Err(error) = sent {
                warn!(%error, reason, "cannot send an event");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts_events() {
        let (events, mut waiting) = EventQueue::new(2, Arc::default());
        for _ in 0..5 {
            events.send(Event::default(), "X");
        }
        assert_eq!(events.dropped.load(Ordering::Relaxed), 3);
        waiting.try_recv().unwrap();
        events.send(Event::default(), "X");
        assert_eq!(events.dropped.load(Ordering::Relaxed), 3);
    }
}
