//! vlan: an interface that sends and receives the packets of one VLAN on a link of the host, or of the container.

use cni::CniResult;
use cni::types::Interface;

use super::parent::Parents;
use super::single;
use crate::attachment::Container;
use crate::call::Call;
use crate::config::vlan::Config;
use crate::error::{Context, Result, bail, failure};
use crate::kernel::Message;
use crate::kernel::link::{Link, NewLink};

const KIND: &str = "vlan";
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_FLAGS: u16 = 2;

impl Config {
    /// Returns the MTU, or `None` for that of the link below.
    fn mtu(&self, parent: &Link) -> Result<Option<u32>> {
        u32::try_from(self.mtu)
            .ok()
            .filter(|mtu| *mtu <= parent.mtu)
            .map(|mtu| Some(mtu).filter(|mtu| *mtu != 0))
            .ok_or_else(|| {
                failure!(
                    "invalid MTU {}, must be [0, master MTU({})]",
                    self.mtu,
                    parent.mtu
                )
            })
    }
}

/// Returns the request that creates the interface.
fn request(name: &str, parent: u32, id: u16, mtu: Option<u32>, netns: u32) -> Message {
    let link = NewLink {
        name,
        kind: KIND,
        parent: Some(parent),
        mtu,
        netns: Some(netns),
        ..NewLink::default()
    };
    link.message(|data| {
        // The flags and the mask of those to change: none.
        data.put_u16(IFLA_VLAN_ID, id).put(IFLA_VLAN_FLAGS, &[0; 8]);
    })
}

/// Creates the interface and gives it the addresses of the IPAM plugin.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config: Config = call.config()?;
    let id = config.id()?;
    let mut parents = Parents::open(call, config.link_in_container)?;
    let parent = parents.link(&config.master)?;
    let mtu = config.mtu(&parent)?;
    let link = parents.create(&parent, KIND, call, |name, netns| {
        request(name, parent.index, id, mtu, netns)
    })?;
    let interface = single::made_interface(call, link.mac_text());
    single::or_delete(call, || {
        configure(call, &config, interface, &mut parents.container)
    })
}

fn configure(
    call: &Call,
    config: &Config,
    interface: Interface,
    container: &mut Container,
) -> Result<CniResult> {
    let addresses = config
        .ipam
        .add(call)
        .context(|| "failed to execute IPAM delegate".to_owned())?;
    config.ipam.use_for_interface(call, addresses, |addresses| {
        single::configure(call, container, interface, &config.dns, &[], addresses)
    })
}

/// Gives the addresses back and deletes the interface. The link below may be away.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    single::delete(call, &config.ipam, KIND)
}

/// Compares the interface with the previous result.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let mut parents = Parents::open(call, config.link_in_container)?;
    config.ipam.require()?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "vlan: ")?;
    let (interface, link) = single::expected_link(&mut parents.container, call, &result, "vlan: ")?;
    let master = &config.master;
    parents
        .link(master)
        .context(|| format!("failed to lookup master {master:?}"))?;
    single::check_kind(&link, KIND)?;
    single::check_mac(interface, &link, "vlan: ")?;
    check_values(&config, &link)?;
    single::check_addresses_and_routes(&mut parents.container, call, &result)
}

/// Fails when the link has another id or MTU than the configuration.
fn check_values(config: &Config, link: &Link) -> Result<()> {
    let id = link
        .data(IFLA_VLAN_ID)
        .and_then(|value| value.try_into().ok())
        .map_or(0, u16::from_ne_bytes);
    if config.vlan_id != i64::from(id) {
        bail!(
            "Error: Tuning link {} configured promisc is {}, current value is {id}",
            link.name,
            config.vlan_id
        );
    }
    if config.mtu != 0 && config.mtu != i64::from(link.mtu) {
        bail!(
            "Error: Tuning configured MTU of {} is {}, current value is {}",
            link.name,
            config.mtu,
            link.mtu
        );
    }
    Ok(())
}

/// Fails when the IPAM plugin could serve no ADD.
pub(crate) fn status(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    config.ipam.require_status(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::link::requests::check_new_link;

    #[test]
    fn request_has_the_attributes_of_the_reference() {
        check_new_link(
            request("veth03855183", 3, 5, None, 3),
            "08000500 03000000  11000300 766574683033383535313833 00000000  08001c00 03000000
             24001200 08000100 766c616e 18000200 06000100 05000000 0c000200 0000000000000000",
        );
        check_new_link(
            request("vethadb15793", 3, 4094, Some(1400), 3),
            "08000500 03000000  11000300 766574686164623135373933 00000000  08000400 78050000  08001c00 03000000
             24001200 08000100 766c616e 18000200 06000100 fe0f0000 0c000200 0000000000000000",
        );
    }

    fn config(vlan_id: i64, mtu: i64) -> Config {
        Config {
            master: "eth0".to_owned(),
            vlan_id,
            mtu,
            ..Config::default()
        }
    }

    #[test]
    fn ids_up_to_4094_are_allowed() {
        assert_eq!(config(0, 0).id().unwrap(), 0);
        assert_eq!(config(4094, 0).id().unwrap(), 4094);
        for id in [-1, 4095, 65537] {
            assert_eq!(
                config(id, 0).id().unwrap_err().msg,
                format!("invalid VLAN ID {id} (must be between 0 and 4095 inclusive)")
            );
        }
        let without_master = Config::default().id().unwrap_err();
        assert!(
            without_master
                .msg
                .starts_with("\"master\" field is required.")
        );
    }

    #[test]
    fn mtu_is_at_most_that_of_the_link_below() {
        let parent = Link {
            mtu: 1500,
            ..Link::default()
        };
        assert_eq!(config(1, 0).mtu(&parent).unwrap(), None);
        assert_eq!(config(1, 1500).mtu(&parent).unwrap(), Some(1500));
        for mtu in [-1, 1501] {
            assert_eq!(
                config(1, mtu).mtu(&parent).unwrap_err().msg,
                format!("invalid MTU {mtu}, must be [0, master MTU(1500)]")
            );
        }
    }

    #[test]
    fn other_values_fail_the_check() {
        let link = Link {
            name: "net1".to_owned(),
            mtu: 1400,
            // Id 5, then the protocol.
            data: vec![6, 0, 1, 0, 5, 0, 0, 0, 6, 0, 5, 0, 0x81, 0, 0, 0],
            ..Link::default()
        };
        assert_eq!(check_values(&config(5, 0), &link), Ok(()));
        assert_eq!(check_values(&config(5, 1400), &link), Ok(()));
        assert_eq!(
            check_values(&config(6, 0), &link).unwrap_err().msg,
            "Error: Tuning link net1 configured promisc is 6, current value is 5"
        );
        assert_eq!(
            check_values(&config(5, 1500), &link).unwrap_err().msg,
            "Error: Tuning configured MTU of net1 is 1500, current value is 1400"
        );
    }
}
