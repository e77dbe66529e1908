//! Images from data and binaries, and the archives, lists and checksums that carry them to nodes without a network.
//!
//! Functions over values: the caller reads and writes files. No registry is spoken to.

pub mod bundle;
pub mod image;
pub mod lists;
pub mod time;
pub mod zstd;
