//! The bridge as a link of the host: creating it, its addresses as a gateway, and the interface that is the gateway of a VLAN.

use cni::CniError;

use crate::attachment::link_by_name;
use crate::config::bridge::Plan;
use crate::error::{Context, Result, bail, failure};
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
    ensure_link(host, plan).context(|| format!("failed to create bridge {name:?}"))
}

fn ensure_link(host: &mut Netlink, plan: &Plan) -> Result<Link> {
    let name = &plan.config.bridge;
    let link = match host.link_by_name(name) {
        Ok(link) => link,
        Err(_) => create(host, plan)?,
    };
    if link.kind != KIND {
        bail!("{name:?} already exists but is not a bridge");
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
            bail!("could not add {name:?}: {error}");
        }
    }
    link_by_name(host, name).context(|| format!("could not lookup {name:?}"))
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
    let change = Change::of(&present, wanted, force)
        .ok_or_else(|| failure!("{name:?} already has an IP address different from {wanted}"))?;
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
            bail!("could not add IP address {wanted} to {name:?}: {error}");
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

/// Returns the interface that is the gateway of a VLAN: one end of a pair whose other end is a port of the bridge in that VLAN. One
/// that is there may be half made, by a plugin that was killed or is at work now, so it gets whatever it lacks.
pub(super) fn ensure_vlan_interface(
    host: &mut Netlink,
    bridge: &Link,
    vlan: u16,
    preserve_default_vlan: bool,
) -> Result<Link> {
    let name = format!("{}.{vlan}", bridge.name);
    let failed = |error: CniError| error.context(&format!("faild to create vlan gateway {name:?}"));
    let mut made = None;
    let found = match host.link_by_name(&name) {
        Err(Errno::ENODEV) => {
            let mtu = Some(bridge.mtu).filter(|mtu| *mtu != 0);
            made = Some(veth::create_on_host(host, &name, mtu));
            // Another container's ADD may have made it in the meantime.
            host.link_by_name(&name)
        }
        other => other,
    };
    let link = match (found, made.as_ref()) {
        (Ok(link), _) => link,
        (Err(_), Some(Err(error))) => return Err(failed(error.clone())),
        (Err(error), _) => {
            bail!("failed to find interface {name:?}: {error}");
        }
    };
    let completed = complete(host, bridge, &link, vlan, preserve_default_vlan);
    if completed.is_err()
        && let Some(Ok(other_end)) = made
    {
        veth::undo(host, &other_end);
    }
    completed.map_err(failed)?;
    Ok(link)
}

/// Connects the pair of a VLAN's gateway with the bridge. Every step may be repeated.
fn complete(
    host: &mut Netlink,
    bridge: &Link,
    link: &Link,
    vlan: u16,
    preserve_default_vlan: bool,
) -> Result<()> {
    let other_end = link.parent.and_then(|index| host.link_by_index(index).ok());
    let Some(other_end) = other_end.filter(|other_end| is_own_pair(link, other_end, bridge)) else {
        return Ok(());
    };
    for end in [&other_end, link] {
        if !end.is_up() {
            host.set_up(end.index)
                .context(|| format!("failed to set {:?} up", end.name))?;
        }
    }
    port::connect(host, bridge, &other_end)?;
    let vlans = [Vlans::one(vlan, VLAN_PVID | VLAN_UNTAGGED)];
    port::set_vlans(host, bridge, &other_end, &vlans, preserve_default_vlan)
}

/// Returns whether a gateway's interface is a pair as this plugin makes it. Others, such as a VLAN interface of the bridge itself or a
/// pair with another bridge, are the administrator's, who sees to them.
fn is_own_pair(link: &Link, other_end: &Link, bridge: &Link) -> bool {
    let is_end = |end: &Link, of: &Link| {
        veth::is_veth(end) && !end.has_remote_parent && end.parent == Some(of.index)
    };
    is_end(link, other_end)
        && is_end(other_end, link)
        && other_end.master.is_none_or(|master| master == bridge.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    #[test]
    fn pair_of_another_bridge_is_left_alone() {
        let end = |index, parent, master| Link {
            index,
            parent: Some(parent),
            master,
            kind: veth::KIND.to_owned(),
            ..Link::default()
        };
        let bridge = Link {
            index: 3,
            ..Link::default()
        };
        let gateway = end(8, 7, None);
        // Half made, and finished.
        for master in [None, Some(3)] {
            assert!(is_own_pair(&gateway, &end(7, 8, master), &bridge));
        }
        let remote = Link {
            has_remote_parent: true,
            ..end(7, 8, None)
        };
        let vlan = Link {
            kind: "vlan".to_owned(),
            ..end(8, 3, None)
        };
        for (link, other_end) in [
            (&gateway, &end(7, 8, Some(4))),
            (&gateway, &end(7, 9, None)),
            (&gateway, &remote),
            (&vlan, &bridge),
        ] {
            assert!(!is_own_pair(link, other_end, &bridge), "{other_end:?}");
        }
    }

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
