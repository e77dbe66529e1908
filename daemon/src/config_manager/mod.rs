//! The configuration manager. It generates the CNI configuration that makes the runtime call Multus from that of the default network,
//! installs it last, and keeps it in place.

mod default_network;

mod backoff;
mod generate;
mod installed;
mod manager;
mod static_config;

pub use default_network::{Constraints, DefaultNetwork, DefaultNetworkError, choose};
pub use generate::{NoName, generate};
pub use installed::{all_installed_in, any_installed, remove_others};
pub use manager::{ManageError, Manager, Target};
pub use static_config::{effective_netconf, state_dirs};

/// The file's name: the first by byte, so that the runtime takes it.
pub const FILE_NAME: &str = api::CONF_NAME;
