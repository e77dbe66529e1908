//! The commands of `multus-airgap`, which `cargo xtask` has as well: a release goes through them to where people want it.
//!
//! What a release consists of and whether it is sound is the crate `release`, and `registry` connects to servers; a push is both.

pub mod commands;
pub mod ui;
