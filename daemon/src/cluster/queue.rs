//! Events that wait to be sent: so many at most, few at once, so that they delay neither an ADD nor its status.

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

use super::recorder::Recorder;
use crate::{access::Client, metrics::Metrics};

/// One event of each pod of a full node, with some to spare. What comes while so many wait is dropped.
const WAITING: usize = 512;
/// So many are sent at once; what else a connection can take is for statuses.
const AT_ONCE: usize = 4;
/// How long one event is tried.
const PATIENCE: Duration = Duration::from_secs(5);

/// The end of the queue that events are put in at.
#[derive(Debug, Clone)]
pub(super) struct Events {
    queue: Sender<Waiting>,
    dropped: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

/// An event with its reason, by which it is counted.
type Waiting = (Event, &'static str);

impl Events {
    /// Sends on `runtime` until the last clone is dropped.
    pub(super) fn start(client: Client, runtime: &Handle, metrics: Arc<Metrics>) -> Self {
        let (events, waiting) = Self::new(WAITING, Arc::clone(&metrics));
        let dropped = Arc::clone(&events.dropped);
        runtime.spawn(run(client, waiting, dropped, metrics));
        events
    }

    fn new(length: usize, metrics: Arc<Metrics>) -> (Self, Receiver<Waiting>) {
        let (queue, waiting) = mpsc::channel(length);
        let events = Self {
            queue,
            dropped: Arc::default(),
            metrics,
        };
        (events, waiting)
    }

    /// Puts an event in, and does not wait: one that finds no room is counted.
    pub(super) fn send(&self, event: Event, reason: &'static str) {
        if self.queue.try_send((event, reason)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.metrics.event(reason, false);
        }
    }
}

async fn run(
    client: Client,
    mut waiting: Receiver<Waiting>,
    dropped: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
) {
    let recorder = Recorder::default();
    let mut sending = JoinSet::new();
    while let Some((event, reason)) = waiting.recv().await {
        while sending.len() >= AT_ONCE {
            sending.join_next().await;
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            warn!(dropped, "events came faster than the API server took them");
        }
        let (client, recorder) = (client.clone(), recorder.clone());
        let metrics = Arc::clone(&metrics);
        sending.spawn(async move {
            let sent = recorder.send(&client, event, PATIENCE).await;
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
    fn events_without_room_are_counted_and_nothing_waits() {
        let (events, mut waiting) = Events::new(2, Arc::default());
        for _ in 0..5 {
            events.send(Event::default(), "X");
        }
        assert_eq!(events.dropped.load(Ordering::Relaxed), 3);
        waiting.try_recv().unwrap();
        events.send(Event::default(), "X");
        assert_eq!(events.dropped.load(Ordering::Relaxed), 3);
    }
}
