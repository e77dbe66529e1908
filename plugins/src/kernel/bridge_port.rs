//! Ports of bridges: their flags and VLANs (`linux/if_bridge.h`).

use super::codec::Message;
use super::errno::Errno;
use super::link::ifinfo;
use super::socket::Netlink;

const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const AF_BRIDGE: u8 = 7;
const IFLA_PROTINFO: u16 = 12;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_BRIDGE_FLAGS: u16 = 0;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
/// The request is for the bridge, not for the port's own driver.
const BRIDGE_FLAGS_MASTER: u16 = 1;
const RANGE_BEGIN: u16 = 0x8;
const RANGE_END: u16 = 0x10;

/// Untagged packets that arrive get this VLAN.
pub(crate) const VLAN_PVID: u16 = 0x2;
/// Packets of this VLAN leave without a tag.
pub(crate) const VLAN_UNTAGGED: u16 = 0x4;

/// VLANs of a port, one or many in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vlans {
    /// The lowest identifier.
    pub(crate) first: u16,
    /// The highest identifier.
    pub(crate) last: u16,
    /// `VLAN_*`; the kernel refuses a row that has `VLAN_PVID`.
    pub(crate) flags: u16,
}

impl Vlans {
    /// One VLAN.
    pub(crate) const fn one(id: u16, flags: u16) -> Self {
        Self {
            first: id,
            last: id,
            flags,
        }
    }
}

impl Netlink {
    /// Lets a port send packets back to where they came from.
    pub(crate) fn set_port_hairpin(&mut self, port: u32) -> Result<(), Errno> {
        self.request(flag_message(port, IFLA_BRPORT_MODE))
    }

    /// Keeps a port from reaching others that are isolated.
    pub(crate) fn set_port_isolated(&mut self, port: u32) -> Result<(), Errno> {
        self.request(flag_message(port, IFLA_BRPORT_ISOLATED))
    }

    /// Lets a port carry VLANs. The kernel takes them in their order: a later entry for the same VLAN counts.
    pub(crate) fn add_port_vlans(&mut self, port: u32, vlans: &[Vlans]) -> Result<(), Errno> {
        self.request(vlan_message(RTM_SETLINK, port, vlans))
    }

    /// Takes VLANs from a port; those that it does not carry are passed over.
    pub(crate) fn delete_port_vlans(&mut self, port: u32, vlans: &[Vlans]) -> Result<(), Errno> {
        self.request(vlan_message(RTM_DELLINK, port, vlans))
    }
}

fn header(port: u32) -> [u8; 16] {
    let mut fixed = ifinfo(port, 0, 0);
    fixed[0] = AF_BRIDGE;
    fixed
}

fn flag_message(port: u32, kind: u16) -> Message {
    let mut message = Message::new(RTM_SETLINK, 0, &header(port));
    message.nest(IFLA_PROTINFO, |flags| {
        flags.put_u8(kind, 1);
    });
    message
}

fn vlan_message(kind: u16, port: u32, vlans: &[Vlans]) -> Message {
    let mut message = Message::new(kind, 0, &header(port));
    message.nest(IFLA_AF_SPEC, |spec| {
        spec.put_u16(IFLA_BRIDGE_FLAGS, BRIDGE_FLAGS_MASTER);
        for row in vlans {
            let mut put = |id: u16, flags: u16| {
                let [a, b] = flags.to_ne_bytes();
                let [c, d] = id.to_ne_bytes();
                spec.put(IFLA_BRIDGE_VLAN_INFO, &[a, b, c, d]);
            };
            if row.first == row.last {
                put(row.first, row.flags);
            } else {
                put(row.first, row.flags | RANGE_BEGIN);
                put(row.last, row.flags | RANGE_END);
            }
        }
    });
    message
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn vlans_of_a_port_are_one_request() {
        let vlans = [
            Vlans::one(100, VLAN_PVID | VLAN_UNTAGGED),
            Vlans {
                first: 200,
                last: 300,
                flags: 0,
            },
        ];
        let expected = [
            // The header: length, RTM_SETLINK, request and acknowledge, sequence, port.
            &[68, 0, 0, 0, 19, 0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],
            // ifinfomsg: AF_BRIDGE, the port's index.
            &[7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            // IFLA_AF_SPEC, nested.
            &[36, 0, 26, 0x80],
            // IFLA_BRIDGE_FLAGS: master.
            &[6, 0, 0, 0, 1, 0, 0, 0],
            // IFLA_BRIDGE_VLAN_INFO: flags, identifier.
            &[8, 0, 2, 0, 6, 0, 100, 0],
            &[8, 0, 2, 0, 8, 0, 200, 0],
            &[8, 0, 2, 0, 16, 0, 44, 1],
        ]
        .concat();
        let message = vlan_message(RTM_SETLINK, 9, &vlans);
        assert_eq!(message.finish(4, 1), expected);
    }

    #[test]
    fn flags_of_a_port_are_its_protocol_information() {
        let message = flag_message(9, IFLA_BRPORT_ISOLATED);
        let expected = [
            &[44, 0, 0, 0, 19, 0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],
            &[7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[12, 0, 12, 0x80, 5, 0, 33, 0, 1, 0, 0, 0],
        ]
        .concat();
        assert_eq!(message.finish(4, 1), expected);
    }
}
