//! One file per command: its options and its `run`.

pub(crate) mod airgap;
pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod chart;
pub(crate) mod ci;
pub(crate) mod dist;
pub(crate) mod download;
pub(crate) mod e2e;
pub(crate) mod generate;
pub(crate) mod images;
pub(crate) mod lint;
pub(crate) mod reproduce;
pub(crate) mod test;
pub(crate) mod verify;
