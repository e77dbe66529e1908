//! The configuration that makes the runtime call us: made from the primary's, written last, kept while it is right.

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

/// The file's name: the first by byte, so that the runtime takes it.
pub const FILE_NAME: &str = api::CONF_NAME;
