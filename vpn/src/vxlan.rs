//! The room that VXLAN takes of each packet, for the address plan and the report alike.

/// Headers of IPv4 (20 bytes), UDP (8), VXLAN (8) and the inner Ethernet frame (14).
const OVER_IPV4: u32 = 50;
/// The same with a header of IPv6 (40 bytes).
const OVER_IPV6: u32 = 70;
/// The smallest MTU with which IPv6 works.
pub(crate) const MIN_IPV6_MTU: u32 = 1280;

/// Returns the largest MTU of a VXLAN interface whose packets go through an interface with this MTU, in packets of IPv4 or of IPv6.
pub(crate) fn inner_mtu(outer_mtu: u32, is_over_ipv6: bool) -> u32 {
    let room = if is_over_ipv6 { OVER_IPV6 } else { OVER_IPV4 };
    outer_mtu.saturating_sub(room)
}
