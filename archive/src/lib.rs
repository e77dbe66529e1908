//! Deterministic tar and gzip, digests, OCI types and layouts, and safe reading of all of them; and the one way in which files are replaced.
//!
//! Everything here is a function over bytes or over one directory: it uses no network and no clock, and neither reads nor writes owners or times of files.
//! Layers are gzip and nothing else: every importer reads it, docker before 23.0 among them, and no encoder in C is needed.

pub mod digest;
pub mod durable;
pub mod gzip;
pub mod image_archive;
pub mod layout;
pub mod lists;
pub mod medium;
pub mod oci;
pub mod read;
pub mod tar;
pub mod verify;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
