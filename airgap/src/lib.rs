//! Images from data, binaries and registries, and the archives, lists and checksums that carry them to nodes without a network.
//!
//! Everything is a function over values except three modules: `http` and `registry` connect to servers, and `pull` stores blobs in a
//! directory.

#![expect(
    missing_docs,
    reason = "only xtask uses this crate, and the messages of its errors say what their fields are"
)]

pub mod bundle;
pub mod check;
pub mod delta;
pub mod http;
pub mod image;
pub mod lists;
pub mod medium;
pub mod names;
pub mod pack;
pub mod pull;
pub mod push;
pub mod referrers;
pub mod registry;
pub mod sets;
pub mod time;
pub mod zstd;
