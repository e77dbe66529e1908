//! Deterministic tar and gzip, digests, OCI types and layouts, and safe reading of all of them.
//!
//! Everything here is a function over bytes or over one folder: no network, no clock, no owner, no time of a file.
//! zstd is absent on purpose, since its encoder is C and this crate is linked into what runs on a node.

pub mod digest;
pub mod gzip;
pub mod layout;
pub mod oci;
pub mod read;
pub mod tar;
pub mod verify;
