//! The plugins that come after one that made an interface, and change it.

pub(crate) mod bandwidth;
pub(crate) mod firewall;
pub(crate) mod portmap;
pub(crate) mod sbr;
pub(crate) mod tuning;
pub(crate) mod vrf;
