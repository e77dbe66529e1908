//! Counts requests that wait for their turn or are being served. Both states are values that end when they are dropped, so that no
//! count is lost however a request ends.

use std::{sync::Arc, time::Instant};

use super::registry::{Counter, Gauge, Histogram};

/// The metrics of one lane.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) waiting: Arc<Gauge>,
    pub(super) working: Arc<Gauge>,
    pub(super) waited: Arc<Histogram>,
    pub(super) abandoned: Arc<Counter>,
}

/// A request that waits. When this is dropped before the request's turn, the request counts as abandoned.
#[derive(Debug)]
pub struct Queued {
    lane: Lane,
    since: Instant,
    has_started: bool,
}

/// A request that is being served until this is dropped.
#[derive(Debug)]
pub struct Working(Arc<Gauge>);

impl Queued {
    pub(super) fn new(lane: Lane) -> Self {
        lane.waiting.add(1);
        Self {
            lane,
            since: Instant::now(),
            has_started: false,
        }
    }

    /// Counts the request as being served.
    pub fn start(mut self) -> Working {
        self.has_started = true;
        self.lane.waited.observe(self.since.elapsed());
        self.lane.working.add(1);
        Working(Arc::clone(&self.lane.working))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.lane.waiting.add(-1);
        if !self.has_started {
            self.lane.abandoned.increment();
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
