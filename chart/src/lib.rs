//! The Helm chart: one template tree, published under two names. Everything here is a function from data to bytes.

pub mod identity;
pub mod pack;

pub mod about;
pub mod bindata;
pub mod check;
pub mod derive;
pub mod describe;
pub mod edit;
pub mod index;
pub mod manifest;
pub mod oci;
pub mod options;
pub mod package;
pub mod reference;
pub mod schema;
pub mod values;
pub mod version;

#[cfg(test)]
mod fuzz;

pub use identity::{Distro, IDENTITIES, Identity};
pub use pack::{Chart, pack};

/// The version of the release, the images and all charts.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
