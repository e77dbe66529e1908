//! The plugins that make an interface, or give the container one that exists.

pub(crate) mod bond;
pub(crate) mod bridge;
pub(crate) mod dummy;
pub(crate) mod host_device;
pub(crate) mod ipvlan;
pub(crate) mod loopback;
pub(crate) mod macvlan;
pub(crate) mod masquerade;
mod parent;
pub(crate) mod ptp;
pub(crate) mod single;
pub(crate) mod tap;
pub(crate) mod veth;
pub(crate) mod vlan;
