//! containerd's configuration files: which there are, how they lie over each other, and which CNI directories come of it.
//!
//! Followed is what containerd itself does, and it differs by release: 1.x replaces a plugin's whole table by that of a later file,
//! 2.x merges tables key by key. Both were compared with `containerd config dump` of real releases.

mod effective;
mod files;
mod glob;

pub use effective::{Effective, Release, effective};
pub(crate) use files::parse;
pub use files::{ConfigError, ConfigFile, gather};

/// Where it looks without `--config`.
pub const DEFAULT_CONFIG: &str = "/etc/containerd/config.toml";
/// Where it listens unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "/run/containerd/containerd.sock";

#[cfg(test)]
mod tests;
