//! The room that VXLAN takes of each packet, for the address plan and the report alike.

use crate::Family;

/// Headers of IPv4 (20 bytes), UDP (8), VXLAN (8) and the inner Ethernet frame (14).
const OVER_IPV4: u32 = 50;
/// The same with a header of IPv6 (40 bytes).
const OVER_IPV6: u32 = 70;
/// The smallest MTU with which IPv6 works.
pub(crate) const MIN_IPV6_MTU: u32 = 1280;

/// Returns the largest MTU of a VXLAN interface whose packets go through an interface with this MTU, in packets of this family.
pub(crate) fn inner_mtu(outer_mtu: u32, outer: Family) -> u32 {
    outer_mtu.saturating_sub(match outer {
        Family::Ipv4 => OVER_IPV4,
        Family::Ipv6 => OVER_IPV6,
    })
}
