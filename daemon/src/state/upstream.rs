//! The file `<cniDir>/<containerID>` as upstream Multus writes and reads it: a list with one object for each delegate.

mod read;
mod write;

pub(super) use read::{decode, from_base64, from_upstream};
pub(super) use write::encode;
