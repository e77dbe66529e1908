//! The bridge as a link of the host: creating it, its addresses as a gateway, and the interface that is the gateway of a VLAN.

use crate::attachment::link_by_name;
use crate::error::{Context, Failure, Result};
use crate::interface::bridge::config::Plan;
use crate::interface::bridge::port;
use crate::interface::veth;
use crate::ip::Cidr;
use crate::kernel::address::family;
use crate::kernel::bridge_port::{VLAN_PVID, VLAN_UNTAGGED, Vlans};
use crate::kernel::link::{IFF_PROMISC, Link, NewLink};
use crate::kernel::{Errno, Message, Netlink};

/// The kind of the link.
pub(super) const KIND: &str = "bridge";
const IFLA_BR_VLAN_FILTERING: u16 = 7;

/// Returns the bridge, up; creates it when there is none.
pub(super) fn ensure(host: &mut Netlink, plan: &Plan) -> Result<Link> {
    let name = &plan.config.bridge;
    ensure_link(host, plan)
        .map_err(|error| error.context(&format!("failed to create bridge {name:?}")))
}

fn ensure_link(host: &mut Netlink, plan: &Plan) -> Result<Link> {
    let name = &plan.config.bridge;
    let link = match host.link_by_name(name) {
        Ok(link) => link,
        Err(_) => create(host, plan)?,
    };
    if link.kind != KIND {
        return Err(Failure::internal(format!(
            "{name:?} already exists but is not a bridge"
        )));
    }
    if plan.config.promisc_mode && link.flags & IFF_PROMISC == 0 {
        host.set_flags(link.index, IFF_PROMISC, IFF_PROMISC)
            .context(|| format!("could not set promiscuous mode on {name:?}"))?;
    }
    veth::ignore_router_advertisements(name);
    if !link.is_up() {
        host.set_up(link.index)
            .context(|| format!("could not set {name:?} up"))?;
    }
    Ok(link)
}

fn create(host: &mut Netlink, plan: &Plan) -> Result<Link> {
    let name = &plan.config.bridge;
    match host.request(request(plan)) {
        // Another container's ADD may have created it in the meantime.
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => {
            return Err(Failure::internal(format!(
                "could not add {name:?}: {error}"
            )));
        }
    }
    link_by_name(host, name).map_err(|error| error.context(&format!("could not lookup {name:?}")))
}

fn request(plan: &Plan) -> Message {
    let link = NewLink {
        name: &plan.config.bridge,
        kind: KIND,
        mtu: plan.mtu(),
        ..NewLink::default()
    };
    link.message(|data| {
        if plan.filters_vlans() {
            data.put_u8(IFLA_BR_VLAN_FILTERING, 1);
        }
    })
}

/// Gives the gateway's address to the bridge, or to the interface of its VLAN.
pub(super) fn ensure_address(
    host: &mut Netlink,
    link: &Link,
    wanted: Cidr,
    force: bool,
) -> Result<()> {
    let name = &link.name;
    let present = host
        .addresses_of_family(link.index, family(wanted.address))
        .context(|| "could not get list of IP addresses".to_owned())?;
    let present: Vec<_> = present.iter().map(|address| address.cidr).collect();
    let change = Change::of(&present, wanted, force).ok_or_else(|| {
        Failure::internal(format!(
            "{name:?} already has an IP address different from {wanted}"
        ))
    })?;
    for cidr in change.remove {
        host.delete_address(link.index, cidr)
            .context(|| format!("could not remove IP address from {name:?}"))?;
    }
    if !change.adds {
        return Ok(());
    }
    match host.add_address(link.index, wanted) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => {
            return Err(Failure::internal(format!(
                "could not add IP address {wanted} to {name:?}: {error}"
            )));
        }
    }
    // A bridge has the lowest hardware address of its ports until it gets one of its own. A gateway must keep its address while
    // containers come and go.
    host.set_mac(link.index, &link.mac)
        .context(|| "could not set bridge's mac".to_owned())
}

/// How a link gets an address.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    /// The addresses that give way.
    remove: Vec<Cidr>,
    /// Whether the address is added: it may be there.
    adds: bool,
}

impl Change {
    /// Compares the addresses of the family with the one that is wanted. Returns `None` when another one is in its way: any of IPv4,
    /// and one of IPv6 whose network overlaps, unless `force` removes it.
    fn of(present: &[Cidr], wanted: Cidr, force: bool) -> Option<Self> {
        let mut remove = Vec::new();
        for cidr in present {
            if *cidr == wanted {
                return Some(Self {
                    remove,
                    adds: false,
                });
            }
            let is_in_the_way = wanted.address.is_ipv4()
                || cidr.contains(wanted.address)
                || wanted.contains(cidr.address);
            if is_in_the_way {
                if !force {
                    return None;
                }
                remove.push(*cidr);
            }
        }
        Some(Self { remove, adds: true })
    }
}

/// Returns the interface that is the gateway of a VLAN: one end of a pair whose other end is a port of the bridge in that VLAN.
pub(super) fn ensure_vlan_interface(
    host: &mut Netlink,
    bridge: &Link,
    vlan: u16,
    preserve_default_vlan: bool,
) -> Result<Link> {
    let name = format!("{}.{vlan}", bridge.name);
    match host.link_by_name(&name) {
        Ok(link) => return Ok(link),
        Err(Errno::ENODEV) => {}
        Err(error) => {
            return Err(Failure::internal(format!(
                "failed to find interface {name:?}: {error}"
            )));
        }
    }
    create_vlan_interface(host, bridge, &name, vlan, preserve_default_vlan)
        .map_err(|error| error.context(&format!("faild to create vlan gateway {name:?}")))?;
    let link = host
        .link_by_name(&name)
        .context(|| format!("failed to lookup {name:?}"))?;
    host.set_up(link.index)
        .context(|| format!("failed to up {name:?}"))?;
    Ok(link)
}

fn create_vlan_interface(
    host: &mut Netlink,
    bridge: &Link,
    name: &str,
    vlan: u16,
    preserve_default_vlan: bool,
) -> Result<()> {
    let mtu = Some(bridge.mtu).filter(|mtu| *mtu != 0);
    let other_end = veth::create_on_host(host, name, mtu)?;
    let connected = connect(host, bridge, &other_end, vlan, preserve_default_vlan);
    if connected.is_err() {
        veth::undo(host, &other_end);
    }
    connected
}

fn connect(
    host: &mut Netlink,
    bridge: &Link,
    name: &str,
    vlan: u16,
    preserve_default_vlan: bool,
) -> Result<()> {
    let link = host
        .link_by_name(name)
        .context(|| format!("failed to lookup {name:?}"))?;
    host.set_up(link.index)
        .context(|| format!("failed to set {name:?} up"))?;
    port::connect(host, bridge, &link)?;
    let vlans = [Vlans::one(vlan, VLAN_PVID | VLAN_UNTAGGED)];
    port::set_vlans(host, bridge, &link, &vlans, preserve_default_vlan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Call;

    fn check(present: &[&str], wanted: &str, force: bool, expected: Option<(&[&str], bool)>) {
        let cidrs = |texts: &[&str]| -> Vec<Cidr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let expected = expected.map(|(remove, adds)| Change {
            remove: cidrs(remove),
            adds,
        });
        let change = Change::of(&cidrs(present), wanted.parse().unwrap(), force);
        assert_eq!(change, expected, "{present:?} {wanted} {force}");
    }

    #[test]
    fn one_address_of_ipv4_per_bridge() {
        check(&[], "10.0.0.1/24", false, Some((&[], true)));
        check(&["10.0.0.1/24"], "10.0.0.1/24", false, Some((&[], false)));
        check(&["10.0.1.1/24"], "10.0.0.1/24", false, None);
        check(&["10.0.0.1/16"], "10.0.0.1/24", false, None);
        let others = ["10.0.1.1/24", "10.0.0.1/24"];
        check(
            &others,
            "10.0.0.1/24",
            true,
            Some((&["10.0.1.1/24"], false)),
        );
    }

    #[test]
    fn networks_of_ipv6_must_not_overlap() {
        check(&["fe80::1/64"], "fd00::1/64", false, Some((&[], true)));
        check(&["fd00::2/64"], "fd00::1/64", false, None);
        check(&["fd00:0:0:1::2/48"], "fd00::1/64", false, None);
        check(
            &["fe80::1/64", "fd00::2/64"],
            "fd00::1/64",
            true,
            Some((&["fd00::2/64"], true)),
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn bridge_with_vlans_filters_them() {
        let config = r#"{"bridge": "br", "vlan": 7}"#;
        let plan = Plan::load(&Call::with_config(config, "")).unwrap();
        let expected = [
            &[68, 0, 0, 0, 16, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0][..],
            &[0; 16],
            &[7, 0, 3, 0],
            b"br\0\0",
            &[28, 0, 18, 0x80, 10, 0, 1, 0],
            b"bridge\0\0",
            // IFLA_INFO_DATA with IFLA_BR_VLAN_FILTERING.
            &[12, 0, 2, 0x80, 5, 0, 7, 0, 1, 0, 0, 0],
        ]
        .concat();
        assert_eq!(request(&plan).finish(4, 1), expected);
    }
}
