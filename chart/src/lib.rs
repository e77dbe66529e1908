//! The Helm chart, one template tree that is published under three names, and tools for charts of any publisher.
//! Everything here is a function from data to bytes.

// Our chart.
pub mod identity;
pub mod images;
pub mod settings;
pub mod values;

mod chart_yaml;
mod options;
pub mod schema;

pub mod pack;

pub mod bindata;
pub mod check;
pub mod manifest;

// Charts of any publisher.
pub mod metadata;
pub mod package;
pub mod version;

pub mod derive;
mod edit;
pub mod index;
pub mod oci;

#[cfg(test)]
mod address_block;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod reference;

pub use identity::{CHARTS, Chart, Distro, IDENTITIES, Identity};
pub use images::ImagePrefix;
pub use pack::pack;
pub use settings::BuildSettings;

/// The version of the release, the images and all charts.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
