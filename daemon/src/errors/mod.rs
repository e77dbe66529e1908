//! A CNI error on its way out: complete in the log, short in the runtime's answer and in events, and kept for `multus-daemon pod`.

pub mod brief;
pub(crate) mod failure;
pub mod recent;
