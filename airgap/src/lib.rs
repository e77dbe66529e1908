//! Releases on their way to nodes: the images, archives, lists and checksums that carry them, what a release consists of, and the commands
//! that `multus-airgap` and `cargo xtask airgap` share.
//!
//! Deciding is functions over values; `http` and `registry` connect to servers, `tree` reads and
//! writes directories, and `commands` calls them.

pub mod arch;
pub mod build;
pub mod bundle;
pub mod charts;
pub mod commands;
pub mod elf;
pub mod exports;
pub mod image;
pub mod kubectl_archives;
pub mod medium;
pub mod names;
pub mod parts;
pub mod plugin_archives;
mod program_archive;
pub mod release;
#[cfg(test)]
mod sample;
pub mod sbom;
pub mod signatures;
pub mod source;
pub mod time;
pub mod tree;
pub mod ui;
pub mod verify;
pub mod workstation;

pub use archive::lists;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
