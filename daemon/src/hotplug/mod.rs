//! Networks of pods that run. Another controller names them on `/delegate`, one at a time; or, where the option `dynamicNetworks` is on,
//! the annotation of a running pod is followed. What is done to a container is the engine's business in both cases.

mod queue;
mod task;

pub use task::{Follower, run};
