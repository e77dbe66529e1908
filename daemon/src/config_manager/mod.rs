//! The configuration manager. It generates the CNI configuration that makes the runtime call Multus from that of the default network,
//! installs it last, and keeps it in place.

mod primary;

mod generate;
mod manager;
mod ready_made;
mod rivalry;
mod written;

pub use generate::{NoName, generate};
pub use manager::{ManageError, Manager, Target};
pub use primary::{Known, Primary, PrimaryError, choose};
pub use ready_made::{standing_netconf, state_dirs};
pub use written::{any, are_all_in, remove_others};

/// The name of the configuration: the first in byte order, so that the runtime loads it.
pub const FILE_NAME: &str = "00-multus.conf";
