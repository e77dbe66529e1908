//! Images from data, binaries and registries, and the archives, lists and checksums that carry them to nodes without a network.
//!
//! Functions over values, but for two edges: `registry` speaks to registries, and `pull` keeps what they send in a folder.

pub mod bundle;
pub mod check;
pub mod delta;
pub mod image;
pub mod lists;
pub mod pack;
pub mod pull;
pub mod push;
pub mod registry;
pub mod sets;
pub mod time;
pub mod zstd;
