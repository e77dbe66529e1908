//! Hot plug: changes to the networks of running pods. Another controller requests them on `/delegate`, one network at a time; with the option
//! `dynamicNetworks` the daemon reconciles running pods with their annotations. In both cases the engine changes the containers.

mod reconciler;

pub use reconciler::{PodReconciler, run};
