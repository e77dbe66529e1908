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
use crate::access::Client;

/// One event of each pod of a full node, with some to spare. What comes while so many wait is dropped.
const WAITING: usize = 512;
/// So many are sent at once; what else a connection can take is for statuses.
const AT_ONCE: usize = 2;
/// How long one event is tried.
const PATIENCE: Duration = Duration::from_secs(5);

/// The end of the queue that events are put in at.
#[derive(Debug, Clone)]
pub(super) struct Events {
    queue: Sender<Event>,
    dropped: Arc<AtomicU64>,
}

impl Events {
    /// Sends on `runtime` until the last clone is dropped.
    pub(super) fn start(client: Client, runtime: &Handle) -> Self {
        let (events, waiting) = Self::new(WAITING);
        let dropped = Arc::clone(&events.dropped);
        runtime.spawn(run(client, waiting, dropped));
        events
    }

    fn new(length: usize) -> (Self, Receiver<Event>) {
        let (queue, waiting) = mpsc::channel(length);
        let dropped = Arc::default();
        (Self { queue, dropped }, waiting)
    }

    /// Puts an event in, and does not wait: one that finds no room is counted.
    pub(super) fn send(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn run(client: Client, mut waiting: Receiver<Event>, dropped: Arc<AtomicU64>) {
    let recorder = Recorder::default();
    let mut sending = JoinSet::new();
    while let Some(event) = waiting.recv().await {
        while sending.len() >= AT_ONCE {
            sending.join_next().await;
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            warn!(dropped, "events came faster than the API server took them");
        }
        let (client, recorder) = (client.clone(), recorder.clone());
        sending.spawn(async move {
            let reason = event.reason.clone().unwrap_or_default();
            if let Err(error) = recorder.send(&client, event, PATIENCE).await {
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
        let (events, mut waiting) = Events::new(2);
        for _ in 0..5 {
            events.send(Event::default());
        }
        assert_eq!(events.dropped.load(Ordering::Relaxed), 3);
        waiting.try_recv().unwrap();
        events.send(Event::default());
        assert_eq!(events.dropped.load(Ordering::Relaxed), 3);
    }
}
