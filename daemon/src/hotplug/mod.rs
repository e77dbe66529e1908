//! Networks of pods that run. Another controller names them on `/delegate`, one at a time; or, where the option `dynamicNetworks` is on,
//! the annotation of a running pod is followed. What is done to a container is the engine's business in both cases.

mod delegate;
mod queue;
mod task;

pub(crate) use delegate::delegate;
pub use task::{Follower, run};
