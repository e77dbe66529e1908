//! The CNI specification, versions 0.1.0 to 1.1.0: types, configuration, conversion of results, running plugins one by one
//! and in chains, and the result cache.
//!
//! It blocks, knows nothing of Kubernetes and has no global state.

pub mod types;
pub mod version;

pub mod args;
pub mod config;
pub mod convert;
pub mod env;

// A workstation reads configurations and results, and runs no plugin.
#[cfg(target_os = "linux")]
pub mod cache;
#[cfg(target_os = "linux")]
pub mod chain;
#[cfg(target_os = "linux")]
pub mod exec;
#[cfg(target_os = "linux")]
pub mod process;

mod fields;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use self::config::NetworkConfig;
pub use self::env::{Command, ContainerId, IfName};
pub use self::fields::FieldError;
pub use self::types::{CniError, CniResult};
pub use self::version::Version;
