//! The configuration that makes the runtime call us: made from the primary's, written last, kept while it is right.

mod generate;
mod manager;

pub use generate::{GenerateError, Primary, choose, generate};
pub use manager::{Manager, Target, remove};

/// The file's name: the first by byte, so that the runtime takes it.
pub const FILE_NAME: &str = "00-multus.conf";
