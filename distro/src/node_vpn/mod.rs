//! The VPN of this node: its settings and files, what the distro and the host say about addresses, and the start of a distro on it. The
//! crate `vpn` decides; this is where it meets the node.

pub(crate) mod auth;
pub(crate) mod curl;
pub(crate) mod files;
pub(crate) mod fragment;
pub(crate) mod host;
pub(crate) mod own_subnet;
pub(crate) mod plan_input;
pub(crate) mod pod_networks;
pub(crate) mod report;
pub(crate) mod start;
