//! bond: joins two or more links into one interface. They are in the container, where networks before this one put them, or they are
//! moved there from the host, and back on DEL. Which packets go through which link, and when one takes over for another, is the
//! kernel's bonding driver's business.

use cni::CniResult;
use cni::types::Dns;

use super::host_device::{Host, Selector};
use super::{single, veth};
use crate::attachment::{Container, link_by_name, remove_link};
use crate::call::Call;
use crate::config::bond::{Bond, Config, Named};
use crate::error::{Context, Result, bail, failure};
use crate::kernel::link::{Link, NewLink};
use crate::kernel::{Errno, Message, Netlink};

const KIND: &str = "bond";
/// The attributes of the kind (`linux/if_link.h`).
const IFLA_BOND_MODE: u16 = 1;
const IFLA_BOND_MIIMON: u16 = 3;
const IFLA_BOND_FAIL_OVER_MAC: u16 = 13;
const IFLA_BOND_XMIT_HASH_POLICY: u16 = 14;
const IFLA_BOND_ALL_SLAVES_ACTIVE: u16 = 17;
const IFLA_BOND_TLB_DYNAMIC_LB: u16 = 27;
/// The MTU of a bond for which the configuration has none.
const DEFAULT_MTU: u32 = 1500;

impl Config {
    /// Returns whether a link, which may have been renamed since, is one of the configuration.
    fn names(&self, link: &Link) -> bool {
        let is_it = |named: &Named| {
            link.name == named.name || Selector::Name(named.name.clone()).matches(link)
        };
        self.links.iter().any(is_it)
    }
}

impl Bond {
    /// Returns the request that creates the bond, without links.
    fn request(&self, name: &str) -> Message {
        let link = NewLink {
            name,
            kind: KIND,
            mtu: self.mtu,
            ..NewLink::default()
        };
        link.message(|data| {
            data.put_u8(IFLA_BOND_MODE, self.mode)
                .put_u32(IFLA_BOND_MIIMON, self.miimon)
                .put_u8(IFLA_BOND_FAIL_OVER_MAC, self.fail_over_mac);
            for (kind, value) in [
                (IFLA_BOND_XMIT_HASH_POLICY, self.hash_policy),
                (IFLA_BOND_ALL_SLAVES_ACTIVE, self.all_ports_active),
                (IFLA_BOND_TLB_DYNAMIC_LB, self.is_dynamic),
            ] {
                if let Some(value) = value {
                    data.put_u8(kind, value);
                }
            }
        })
    }

    /// Fails for a link that cannot carry the bond's packets: the kernel would raise its MTU above that of the link below it.
    fn check_links(&self, links: &[Link]) -> Result<()> {
        let mtu = self.mtu.unwrap_or(DEFAULT_MTU);
        let Some(link) = links.iter().find(|link| link.mtu < mtu) else {
            return Ok(());
        };
        Err(failure!(
            "the bond's MTU of {mtu} is larger than that of link {:?} ({}): set \"mtu\"",
            link.name,
            link.mtu
        ))
    }
}

/// Returns the links whose hardware address an earlier one has.
fn duplicates(links: &[Link]) -> Vec<&Link> {
    let is_duplicate = |(number, link): &(usize, &Link)| {
        let mut earlier = links[..*number].iter();
        earlier.any(|other| other.mac == link.mac)
    };
    let numbered = links.iter().enumerate().filter(is_duplicate);
    numbered.map(|(_, link)| link).collect()
}

/// Gives links hardware addresses that differ, which some modes demand. One that keeps its address is the driver's to judge.
fn separate(netlink: &mut Netlink, links: &[Link]) -> Result<()> {
    for link in duplicates(links) {
        let mut mac = [0; 6];
        rustix::rand::getrandom(&mut mac, rustix::rand::GetRandomFlags::empty())
            .map_err(Errno::from)
            .context(|| "failed to generate a hardware address".to_owned())?;
        // Local, and not of a group.
        mac[0] = mac[0] & 0xfe | 0x02;
        let _ = netlink.set_mac(link.index, &mac);
    }
    Ok(())
}

/// Creates the bond of its links and gives it the addresses of the IPAM plugin.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config: Config = call.config()?;
    let bond = config.bond()?;
    let mut container = Container::open(&call.netns)?;
    if config.links_in_container {
        return attach(call, &config, &bond, &mut container);
    }
    let mut host = Host::open()?;
    let mut devices = Vec::new();
    for named in &config.links {
        let device = link_by_name(&mut host.netlink, &named.name);
        devices.push(device.context(|| format!("failed to find link {:?}", named.name))?);
    }
    bond.check_links(&devices)?;
    let result = devices
        .iter()
        .try_for_each(|device| {
            let moved = host.move_in(device, &mut container, &device.name);
            moved.map(|_| ())
        })
        .and_then(|()| attach(call, &config, &bond, &mut container));
    if result.is_err() {
        // The error that is reported is the first one.
        let _ = give_back(&mut host, &config, &mut container, &[], false);
        for device in devices.iter().filter(|device| device.is_up()) {
            if let Ok(link) = host.netlink.link_by_name(&device.name) {
                let _ = host.netlink.set_up(link.index);
            }
        }
    }
    result
}

/// Creates the bond of links in the container; a failure leaves them as they are.
fn attach(
    call: &Call,
    config: &Config,
    bond: &Bond,
    container: &mut Container,
) -> Result<CniResult> {
    let mut links = Vec::new();
    for named in &config.links {
        let link = container.link(&named.name);
        links.push(
            link.context(|| format!("failed to find link {:?} in the container", named.name))?,
        );
    }
    bond.check_links(&links)?;
    container
        .netlink
        .request(bond.request(&call.ifname))
        .map_err(refused)?;
    let result = fill(call, config, container, &links);
    if result.is_err() {
        // The error that is reported is the first one.
        let _ = take_apart(&mut container.netlink, None, &call.ifname);
    }
    result
}

/// Returns the error of a kernel that creates no bond.
fn refused(error: Errno) -> cni::CniError {
    let hint = match error {
        Errno::EOPNOTSUPP => ": the node's kernel has no bonding driver, load its module",
        _ => "",
    };
    failure!("failed to create bond: {error}{hint}")
}

/// Puts the links into the bond, which exists, and gives it its addresses.
fn fill(
    call: &Call,
    config: &Config,
    container: &mut Container,
    links: &[Link],
) -> Result<CniResult> {
    let ifname = call.ifname.as_str();
    let bond = container.link(ifname)?;
    let netlink = &mut container.netlink;
    separate(netlink, links)?;
    for link in links {
        // The driver takes only links that are down.
        let enter = |netlink: &mut Netlink| {
            netlink.set_down(link.index)?;
            netlink.set_master(link.index, bond.index)?;
            netlink.set_up(link.index)
        };
        enter(netlink).context(|| format!("failed to put {:?} into the bond", link.name))?;
    }
    netlink
        .set_up(bond.index)
        .context(|| format!("failed to set {ifname:?} up"))?;
    // The hardware address is that of the first link by now.
    let mac = container.link(ifname)?.mac_text();
    let interface = single::made_interface(call, mac);
    if !config.ipam.is_set() {
        return Ok(single::without_addresses(interface, &Dns::default()));
    }
    config.ipam.add_for_interface(call, |addresses| {
        single::configure(call, container, interface, &config.dns, &[], addresses)
    })
}

/// Gives the addresses back, deletes the bond, and moves links of the host to it; none keeps the others from being done.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let released = config.ipam.del(call);
    let container = Container::open_if_present(&call.netns)?;
    // What the pod has renamed is searched when the bond was there at all.
    let attached = call.listed_interface().map(|_| &config);
    let detached = match container {
        Some(mut container) => {
            let ports = take_apart(&mut container.netlink, attached, &call.ifname);
            let returned = if config.links_in_container {
                Ok(())
            } else {
                let ports = ports.as_deref().unwrap_or_default();
                let is_attached = attached.is_some();
                Host::open().and_then(|mut host| {
                    give_back(&mut host, &config, &mut container, ports, is_attached)
                })
            };
            veth::combine([ports.map(|_| ()), returned])
        }
        None if config.links_in_container => Ok(()),
        None => Host::open().and_then(|mut host| {
            let mut names = config.links.iter().map(|named| &named.name);
            names.try_for_each(|name| host.rename_stray(name, &Selector::Name(name.clone())))
        }),
    };
    veth::combine([released, detached])
}

/// Deletes the bond and returns the links that were in it. The kernel gives them their hardware addresses back; afterwards they are up,
/// and no two have the same.
fn take_apart(netlink: &mut Netlink, attached: Option<&Config>, ifname: &str) -> Result<Vec<Link>> {
    let list = |netlink: &mut Netlink| {
        netlink
            .links()
            .context(|| "failed to list links".to_owned())
    };
    let links = list(netlink)?;
    let Some(bond) = own_bond(&links, attached, ifname) else {
        return Ok(Vec::new());
    };
    remove_link(netlink, bond)?;
    let was_port = |link: &Link| {
        let mut ports = links.iter().filter(|port| port.master == Some(bond.index));
        ports.any(|port| port.index == link.index)
    };
    let mut ports = list(netlink)?;
    ports.retain(was_port);
    separate(netlink, &ports)?;
    for port in &ports {
        netlink
            .set_up(port.index)
            .context(|| format!("failed to set {:?} up", port.name))?;
    }
    Ok(ports)
}

/// Returns the attachment's bond among the links of the container: the one with the name, or one that the pod has renamed, by the links
/// of the configuration that is attached. Without one, these links may be in another attachment's bond.
fn own_bond<'a>(links: &'a [Link], attached: Option<&Config>, ifname: &str) -> Option<&'a Link> {
    let mut bonds = links.iter().filter(|link| link.kind == KIND);
    let has_our_link = |bond: &&Link| {
        let is_ours = |link: &Link| {
            link.master == Some(bond.index) && attached.is_some_and(|config| config.names(link))
        };
        links.iter().any(is_ours)
    };
    bonds
        .clone()
        .find(|bond| bond.name == ifname)
        .or_else(|| bonds.find(has_our_link))
}

/// Returns whether a link of the container came from the host: its alias says so, or it was in the bond, since the reference sets no alias.
/// Another network's link may have the name of one that never came. Without an attachment, when the links may have stayed on the host, one
/// that another attachment uses, under another name or in another bond, stays.
fn came_from_host(link: &Link, config: &Config, ports: &[Link], is_attached: bool) -> bool {
    let was_port = ports.iter().any(|port| port.index == link.index);
    let is_unchanged = link.alias == link.name && link.master.is_none();
    let has_alias = !link.alias.is_empty() && (is_attached || is_unchanged);
    config.names(link) && (was_port || has_alias)
}

/// Moves the links that came from the host to it.
fn give_back(
    host: &mut Host,
    config: &Config,
    container: &mut Container,
    ports: &[Link],
    is_attached: bool,
) -> Result<()> {
    let links = container
        .netlink
        .links()
        .context(|| "failed to list links".to_owned())?;
    let mut outcome = Ok(());
    let ours = links
        .into_iter()
        .filter(|link| came_from_host(link, config, ports, is_attached));
    for link in ours {
        let alias = match link.alias.as_str() {
            "" => link.name.clone(),
            alias => alias.to_owned(),
        };
        let moved = host.move_out(container, &Link { alias, ..link });
        outcome = veth::combine([outcome, moved]);
    }
    outcome
}

/// Compares the bond with the configuration and the previous result. Its hardware address may be that of another link by now.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let mut container = Container::open(&call.netns)?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "")?;
    let (_, bond) = single::expected_link(&mut container, call, &result, "")?;
    single::check_kind(&bond, KIND)?;
    for named in &config.links {
        if container.link(&named.name)?.master != Some(bond.index) {
            bail!("link {:?} is not in the bond {:?}", named.name, bond.name);
        }
    }
    single::check_addresses_and_routes(&mut container, call, &result)
}

/// Fails when no ADD could be served: by the configuration, or by the IPAM plugin.
pub(crate) fn status(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    config.bond()?;
    config.ipam.status(call)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kernel::link::requests::check_new_link;

    /// A configuration with the keys that every bond needs, and more.
    fn config(more: &Value) -> Config {
        let mut config = json!({
            "type": "bond", "mode": "active-backup", "miimon": "100",
            "links": [{"name": "net1"}, {"name": "net2"}],
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        Call::with_config(&config.to_string(), "").config().unwrap()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn request_has_what_the_configuration_says() {
        let check = |more: Value, expected: &str| {
            let bond = config(&more).bond().unwrap();
            check_new_link(bond.request("bond0"), expected);
        };
        // IFLA_IFNAME, then IFLA_LINKINFO with the kind; its data: mode, miimon, fail_over_mac.
        check(
            json!({}),
            "0a000300 626f6e643000 0000
             28001200 08000100 626f6e64  1c000200
             05000100 01000000  08000300 64000000  05000d00 00000000",
        );
        check(
            json!({
                "mode": "balance-tlb", "miimon": 250, "mtu": 1400, "failOverMac": 2,
                "xmitHashPolicy": "layer3+4", "allSlavesActive": 1, "tlbDynamicLb": 0,
            }),
            "0a000300 626f6e643000 0000  08000400 78050000
             40001200 08000100 626f6e64  34000200
             05000100 05000000  08000300 fa000000  05000d00 02000000
             05000e00 01000000  05001100 01000000  05001b00 00000000",
        );
    }

    #[test]
    fn modes_and_policies_have_the_kernels_numbers() {
        for (name, number) in [("balance-rr", 0), ("802.3ad", 4), ("balance-alb", 6)] {
            assert_eq!(config(&json!({"mode": name})).bond().unwrap().mode, number);
        }
        for (name, number) in [("layer2", 0), ("layer2+3", 2), ("encap3+4", 4)] {
            let bond = config(&json!({"xmitHashPolicy": name})).bond().unwrap();
            assert_eq!(bond.hash_policy, Some(number));
        }
    }

    #[test]
    fn wrong_configurations_are_refused() {
        for (more, expected) in [
            (json!({"mode": "1"}), "\"mode\" is one of balance-rr, "),
            (json!({"mode": null}), "\"mode\" is one of balance-rr, "),
            (
                json!({"links": [{"name": "net1"}]}),
                "a bond needs two links or more, \"links\" has 1",
            ),
            (
                json!({"links": [{"name": "net1"}, {}]}),
                "an entry of \"links\" has no \"name\"",
            ),
            (
                json!({"miimon": null}),
                "\"miimon\" is a number of milliseconds, such as \"100\", not null",
            ),
            (json!({"miimon": "soon"}), "\"miimon\" is a number"),
            (json!({"miimon": -1}), "\"miimon\" is a number"),
            (json!({"miimon": 1_u64 << 31}), "\"miimon\" is a number"),
            (
                json!({"failOverMac": 3}),
                "\"failOverMac\" is from 0 to 2, not 3",
            ),
            (
                json!({"failOverMac": -1}),
                "\"failOverMac\" is from 0 to 2, not -1",
            ),
            (
                json!({"allSlavesActive": 2}),
                "\"allSlavesActive\" is from 0 to 1, not 2",
            ),
            (
                json!({"tlbDynamicLb": 1}),
                "\"tlbDynamicLb\" is for the modes balance-tlb and balance-alb, not active-backup",
            ),
            (
                json!({"mode": "balance-alb", "tlbDynamicLb": 256}),
                "\"tlbDynamicLb\" is from 0 to 1, not 256",
            ),
            (
                json!({"xmitHashPolicy": "layer4"}),
                "\"xmitHashPolicy\" is one of layer2, ",
            ),
            (json!({"mtu": 67}), "invalid MTU 67: the least is 68"),
            (json!({"mtu": -1}), "invalid MTU -1: the least is 68"),
        ] {
            let error = config(&more).bond().unwrap_err();
            assert!(error.msg.starts_with(expected), "{}", error.msg);
        }
    }

    fn link(index: u32, name: &str, master: Option<u32>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            master,
            mtu: 1400,
            mac: vec![2; 6],
            ..Link::default()
        }
    }

    #[test]
    fn links_carry_packets_of_the_bonds_size() {
        let links = [link(2, "net1", None), link(3, "net2", None)];
        let check = |mtu: i64| {
            let bond = config(&json!({"mtu": mtu})).bond().unwrap();
            bond.check_links(&links).map_err(|error| error.msg)
        };
        assert_eq!(check(1400), Ok(()));
        let refused = |mtu| {
            Err(format!(
                "the bond's MTU of {mtu} is larger than that of link \"net1\" (1400): set \"mtu\""
            ))
        };
        assert_eq!(check(1401), refused(1401));
        assert_eq!(check(0), refused(1500));
    }

    #[test]
    fn later_links_with_an_address_are_duplicates() {
        let other = Link {
            mac: vec![4; 6],
            ..link(3, "net2", None)
        };
        let links = [link(2, "net1", None), other, link(4, "net3", None)];
        assert_eq!(duplicates(&links), [&links[2]]);
        assert_eq!(duplicates(&links[..2]), [] as [&Link; 0]);
    }

    #[test]
    fn bond_is_found_under_another_name() {
        let bond = |index, name| Link {
            kind: KIND.to_owned(),
            ..link(index, name, None)
        };
        let config = config(&json!({}));
        let renamed = Link {
            alias: "net2".to_owned(),
            ..link(3, "uplink", Some(7))
        };
        let links = [
            // Another attachment's bond, and a stand-in under the name.
            bond(6, "bond1"),
            link(4, "net3", Some(6)),
            link(5, "bond0", None),
            bond(7, "lag0"),
            renamed,
        ];
        let attached = Some(&config);
        assert_eq!(own_bond(&links, attached, "bond0"), Some(&links[3]));
        assert_eq!(own_bond(&links[..3], attached, "bond0"), None);
        assert_eq!(own_bond(&links, None, "bond0"), None);
        let named = [bond(7, "bond0")];
        assert_eq!(own_bond(&named, attached, "bond0"), named.first());
        assert_eq!(own_bond(&named, None, "bond0"), named.first());
    }

    #[test]
    fn links_of_another_attachment_stay() {
        let config = config(&json!({}));
        let moved = |master| Link {
            alias: "net1".to_owned(),
            ..link(2, "net1", master)
        };
        let renamed = Link {
            name: "eth7".to_owned(),
            ..moved(None)
        };
        let port = link(2, "net1", None);
        for (link, is_ours_if_attached, is_ours) in [
            (moved(None), true, true),
            (moved(Some(7)), true, false),
            (renamed, true, false),
            (port.clone(), false, false),
        ] {
            let came = |is_attached| came_from_host(&link, &config, &[], is_attached);
            assert_eq!((came(true), came(false)), (is_ours_if_attached, is_ours));
        }
        assert!(came_from_host(
            &port,
            &config,
            std::slice::from_ref(&port),
            false
        ));
    }

    #[test]
    fn kernel_without_bonding_is_named() {
        assert_eq!(
            refused(Errno::EOPNOTSUPP).msg,
            "failed to create bond: operation not supported: the node's kernel has no bonding driver, load its module"
        );
        assert_eq!(
            refused(Errno::EEXIST).msg,
            "failed to create bond: file exists"
        );
    }
}
