//! What `multus-daemon` is made of: deciding (`netconf`, `plan`, `netstatus`) apart from doing (`state`, `engine` and the
//! modules around them).

pub mod engine;
mod json;
pub mod netconf;
pub mod netstatus;
pub mod plan;
pub mod state;
