//! ipvlan: an interface with addresses of its own and the hardware address of the link below it, which is on the host or in the
//! container.

use cni::CniResult;
use cni::types::Interface;

use super::parent::Parents;
use super::single;
use crate::attachment::Container;
use crate::call::Call;
use crate::config::ipvlan::{Config, MODES};
use crate::error::{Context, Result, bail, failure};
use crate::kernel::Message;
use crate::kernel::link::{Link, NewLink};

const KIND: &str = "ipvlan";
const IFLA_IPVLAN_MODE: u16 = 1;
const IFLA_IPVLAN_FLAGS: u16 = 2;

/// Returns the name of the link below that the configuration or the previous result states, or `None` for that of the default route.
fn stated_master(config: &Config, previous: Option<&CniResult>) -> Result<Option<String>> {
    if !config.master.is_empty() {
        return Ok(Some(config.master.clone()));
    }
    let Some(previous) = previous else {
        return Ok(None);
    };
    match previous.interfaces.as_slice() {
        [interface] if !interface.name.is_empty() => Ok(Some(interface.name.clone())),
        _ => Err(failure!(
            "chained master failure. PrevResult lacks a single named interface"
        )),
    }
}

/// Returns the request that creates the interface.
fn request(name: &str, parent: u32, mode: u16, mtu: i64, netns: u32) -> Message {
    let link = NewLink {
        name,
        kind: KIND,
        parent: Some(parent),
        mtu: u32::try_from(mtu).ok().filter(|mtu| *mtu != 0),
        netns: Some(netns),
        ..NewLink::default()
    };
    link.message(|data| {
        data.put_u16(IFLA_IPVLAN_MODE, mode)
            .put_u16(IFLA_IPVLAN_FLAGS, 0);
    })
}

/// Creates the interface and gives it the addresses of the IPAM plugin, or those of the previous result.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config: Config = call.config()?;
    let mode = MODES.parse(&config.mode)?;
    let previous = call.prev_result()?;
    let master = stated_master(&config, previous.as_ref())?;
    let mut parents = Parents::open(call, config.link_in_container)?;
    let parent = match master {
        Some(master) => named_master(&mut parents, &master)?,
        None => parents.link_of_default_route()?,
    };
    let link = parents.create(&parent, KIND, call, |name, netns| {
        request(name, parent.index, mode, config.mtu, netns)
    })?;
    let interface = single::made_interface(call, link.mac_text());
    single::or_delete(call, || {
        configure(call, &config, previous, interface, &mut parents.container)
    })
}

fn named_master(parents: &mut Parents, name: &str) -> Result<Link> {
    parents
        .link(name)
        .context(|| format!("failed to lookup master {name:?}"))
}

fn configure(
    call: &Call,
    config: &Config,
    previous: Option<CniResult>,
    interface: Interface,
    container: &mut Container,
) -> Result<CniResult> {
    let apply = |addresses| {
        single::configure(
            call,
            container,
            interface,
            &config.dns,
            &single::NOTIFY,
            addresses,
        )
    };
    match previous {
        Some(previous) if !config.ipam.is_set() && !previous.ips.is_empty() => {
            config.ipam.use_for_interface(call, previous, apply)
        }
        _ => config.ipam.add_for_interface(call, apply),
    }
}

/// Gives the addresses back and deletes the interface.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    single::delete(call, &config.ipam, KIND)
}

/// Compares the interface with the previous result.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let mut parents = Parents::open(call, config.link_in_container)?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "")?;
    let (interface, link) = single::expected_link(&mut parents.container, call, &result, "")?;
    if !config.master.is_empty() {
        named_master(&mut parents, &config.master)?;
    }
    single::check_kind(&link, KIND)?;
    let expected = MODES.parse(&config.mode)?;
    let mode = link
        .data(IFLA_IPVLAN_MODE)
        .and_then(|value| value.try_into().ok())
        .map_or(0, u16::from_ne_bytes);
    if mode != expected {
        bail!(
            "Container IPVlan mode {} does not match expected value: {}",
            MODES.name(mode.into()),
            MODES.name(expected.into())
        );
    }
    single::check_mac(interface, &link, "")?;
    single::check_addresses_and_routes(&mut parents.container, call, &result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::link::requests::check_new_link;

    #[test]
    fn request_has_the_attributes_of_the_reference() {
        check_new_link(
            request("veth6668a7ba", 3, 0, 0, 3),
            "08000500 03000000  11000300 76657468363636386137626100000000  08001c00 03000000
             24001200 0a000100 6970766c616e0000 14000200 06000100 00000000 06000200 00000000",
        );
        check_new_link(
            request("vethda662fd1", 3, 2, 1400, 3),
            "08000500 03000000  11000300 76657468646136363266643100000000  08000400 78050000  08001c00 03000000
             24001200 0a000100 6970766c616e0000 14000200 06000100 02000000 06000200 00000000",
        );
        check_new_link(
            request("veth3a952f89", 3, 1, -1, 3),
            "08000500 03000000  11000300 76657468336139353266383900000000  08001c00 03000000
             24001200 0a000100 6970766c616e0000 14000200 06000100 01000000 06000200 00000000",
        );
    }

    #[test]
    fn modes_are_read() {
        assert_eq!(MODES.parse("").unwrap(), 0);
        assert_eq!(MODES.parse("l3s").unwrap(), 2);
        assert_eq!(MODES.name(1), "l3");
        assert_eq!(
            MODES.parse("L3").unwrap_err().msg,
            r#"unknown ipvlan mode: "L3""#
        );
    }

    #[test]
    fn previous_interface_is_the_link_below() {
        let named = |names: &[&str]| CniResult {
            interfaces: names
                .iter()
                .map(|name| Interface {
                    name: (*name).to_owned(),
                    ..Interface::default()
                })
                .collect(),
            ..CniResult::default()
        };
        let of = |master: &str, previous: Option<&CniResult>| {
            let config = Config {
                master: master.to_owned(),
                ..Config::default()
            };
            stated_master(&config, previous)
        };
        assert_eq!(of("", None).unwrap(), None);
        assert_eq!(of("", Some(&named(&["bond0"]))).unwrap().unwrap(), "bond0");
        assert_eq!(of("m", Some(&named(&[]))).unwrap().unwrap(), "m");
        for names in [&[][..], &[""], &["a", "b"]] {
            assert_eq!(
                of("", Some(&named(names))).unwrap_err().msg,
                "chained master failure. PrevResult lacks a single named interface"
            );
        }
    }
}
