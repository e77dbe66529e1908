//! containerd's configuration files, their order, and the CNI directories that they result in.
//!
//! The module does what containerd itself does, which differs by release: 1.x replaces a plugin's complete table by that of a later file,
//! 2.x merges tables key by key. Both were compared with `containerd config dump` of real releases.

mod effective;
mod files;
mod release;

pub use effective::{DEFAULT_ADDRESS, Effective, effective};
#[cfg(any(test, fuzzing))]
pub(crate) use files::follow;
pub(crate) use files::parse;
pub use files::{ConfigError, ConfigFile, gather};
pub use release::Release;

/// The main file of a containerd without `--config`.
pub const DEFAULT_CONFIG: &str = "/etc/containerd/config.toml";

#[cfg(test)]
mod tests;
