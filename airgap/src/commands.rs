//! The commands of `multus-airgap`, each with its options and its `run`. `cargo xtask airgap` has the same ones.

pub mod connection;
pub mod explain;
pub mod push;
pub mod trust;
pub mod verify;
