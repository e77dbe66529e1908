//! A failure on its way out: complete in the log, shortened for the runtime and for events, and kept for `multus-daemon pod`.

pub(crate) mod failure;
pub mod recent;
pub mod render;
