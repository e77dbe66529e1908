//! What a release consists of: the table of its parts, and how images, charts, archives, lists, names and signatures are made, read and
//! verified. `multus-airgap` and `xtask` share it.
//!
//! Deciding is functions over values; `tree` reads and writes directories. Nothing here has a network: pushing is the command of `airgap`.

pub mod arch;
pub mod build;
pub mod bundle;
pub mod charts;
pub mod compose;
pub mod description;
pub mod elf;
pub mod exports;
pub mod image;
pub mod kubectl_archives;
pub mod medium;
pub mod names;
pub mod parts;
pub mod plugin_archives;
mod program_archive;
pub mod sbom;
pub mod signatures;
pub mod source;
pub mod tree;
pub mod verify;
pub mod workstation;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
