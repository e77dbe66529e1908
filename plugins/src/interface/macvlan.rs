//! macvlan: an interface with a hardware address of its own on a link of the host, or of the container.

use cni::types::Interface;
use cni::{CniError, CniResult};

use super::parent::Parents;
use super::single;
use crate::attachment::Container;
use crate::call::Call;
use crate::config::macvlan::{Config, MODES};
use crate::error::{Context, Result, bail};
use crate::kernel::link::{Link, NewLink};

const KIND: &str = "macvlan";
const IFLA_MACVLAN_MODE: u16 = 1;
const IFLA_MACVLAN_BC_QUEUE_LEN: u16 = 7;

/// Reads the configuration, and finds the link below.
fn load(call: &Call, parents: &mut Parents, mut config: Config) -> Result<(Config, Link)> {
    let parent = if config.master.is_empty() {
        parents.link_of_default_route()?
    } else {
        parents.link(&config.master)?
    };
    if config.mtu < 0 || config.mtu > i64::from(parent.mtu) {
        bail!(
            "invalid MTU {}, must be [0, master MTU({})]",
            config.mtu,
            parent.mtu
        );
    }
    config.choose_mac(call)?;
    Ok((config, parent))
}

/// Creates the interface and gives it the addresses of the IPAM plugin.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config: Config = call.config()?;
    let mut parents = Parents::open(call, config.link_in_container)?;
    let (config, parent) = load(call, &mut parents, config)?;
    let (mode, mac) = (MODES.parse(&config.mode)?, config.mac_bytes()?);
    let link = parents.create(&parent, KIND, call, |name, netns| {
        let link = NewLink {
            name,
            kind: KIND,
            parent: Some(parent.index),
            mtu: u32::try_from(config.mtu).ok().filter(|mtu| *mtu != 0),
            mac: &mac,
            netns: Some(netns),
            ..NewLink::default()
        };
        link.message(|data| {
            data.put_u32(IFLA_MACVLAN_MODE, mode.into());
            if config.bcqueuelen > 0 {
                data.put_u32(IFLA_MACVLAN_BC_QUEUE_LEN, config.bcqueuelen);
            }
        })
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
    if !config.ipam.is_set() {
        let ifname = &call.ifname;
        let link = container.link(ifname)?;
        container
            .netlink
            .set_up(link.index)
            .context(|| format!("failed to set {ifname:?} UP"))?;
        return Ok(single::without_addresses(interface, &config.dns));
    }
    config.ipam.add_for_interface(call, |addresses| {
        single::configure(
            call,
            container,
            interface,
            &config.dns,
            &single::NOTIFY,
            addresses,
        )
    })
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
    let (config, _) = load(call, &mut parents, config)?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "").map_err(begin_small)?;
    let (interface, link) =
        single::expected_link(&mut parents.container, call, &result, "").map_err(begin_small)?;
    single::check_kind(&link, KIND).map_err(begin_small)?;
    let expected = u32::from(MODES.parse(&config.mode)?);
    let mode = link
        .data(IFLA_MACVLAN_MODE)
        .and_then(|value| value.try_into().ok())
        .map_or(0, u32::from_ne_bytes);
    if mode != expected {
        bail!(
            "container macvlan mode {} does not match expected value: {}",
            MODES.name(mode),
            MODES.name(expected)
        );
    }
    single::check_mac(interface, &link, "").map_err(begin_small)?;
    single::check_addresses_and_routes(&mut parents.container, call, &result)
}

/// Returns the error as the reference's macvlan prints it: its texts begin with a small letter.
fn begin_small(mut error: CniError) -> CniError {
    if let Some(first) = error.msg.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    error
}
