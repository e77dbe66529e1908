//! The file `<cniDir>/<containerID>` as upstream Multus writes and reads it: a list with one object for each delegate.

mod read;
mod write;

pub(super) use read::{Saved, decode, from_base64};
pub(super) use write::encode;
