//! Ports of the bridge: flags and VLANs of the host's end of a pair, and waiting until it forwards.

use std::time::Duration;

use crate::config::bridge::Plan;
use crate::error::{Context, Result, bail};
use crate::kernel::Netlink;
use crate::kernel::bridge_port::{VLAN_PVID, VLAN_UNTAGGED, Vlans};
use crate::kernel::link::{IF_OPER_UP, Link};

const IFLA_BR_VLAN_DEFAULT_PVID: u16 = 39;
/// How long the kernel may take to notice that both ends are up.
const CARRIER_LIMIT: Duration = Duration::from_millis(2550);
/// The first pause; each further one is twice as long.
const CARRIER_PAUSE: Duration = Duration::from_millis(1);

/// Sets what the configuration demands of the container's port beyond what a new port has.
pub(super) fn configure(host: &mut Netlink, bridge: &Link, name: &str, plan: &Plan) -> Result<()> {
    let vlans = plan.port_vlans();
    if !plan.config.hairpin_mode && !plan.config.port_isolation && vlans.is_empty() {
        return Ok(());
    }
    let link = host
        .link_by_name(name)
        .context(|| format!("failed to lookup {name:?}"))?;
    connect(host, bridge, &link)?;
    if plan.config.hairpin_mode {
        host.set_port_hairpin(link.index)
            .context(|| format!("failed to setup hairpin mode for {name}"))?;
    }
    if plan.config.port_isolation {
        host.set_port_isolated(link.index)
            .context(|| format!("failed to set isolated on for {name}"))?;
    }
    if !vlans.is_empty() {
        set_vlans(
            host,
            bridge,
            &link,
            &vlans,
            plan.config.preserve_default_vlan,
        )?;
    }
    Ok(())
}

/// Makes a link a port of the bridge. Old kernels (4.0 does) pass over the bridge of a link that they create, and leave it to this.
pub(super) fn connect(host: &mut Netlink, bridge: &Link, link: &Link) -> Result<()> {
    if link.master == Some(bridge.index) {
        return Ok(());
    }
    let (name, bridge_name) = (&link.name, &bridge.name);
    host.set_master(link.index, bridge.index)
        .context(|| format!("failed to connect {name:?} to bridge {bridge_name}"))
}

/// Gives a port its VLANs, and takes it out of the bridge's default VLAN unless it stays there.
pub(super) fn set_vlans(
    host: &mut Netlink,
    bridge: &Link,
    port: &Link,
    vlans: &[Vlans],
    preserve_default_vlan: bool,
) -> Result<()> {
    let name = &port.name;
    // The kernel puts a new port into the default VLAN like this, so that a port that is in use need not leave it for a moment.
    let stays = |id: u16| vlans.contains(&Vlans::one(id, VLAN_PVID | VLAN_UNTAGGED));
    let left = default_vlan(bridge).filter(|id| !preserve_default_vlan && !stays(*id));
    if let Some(default) = left {
        host.delete_port_vlans(port.index, &[Vlans::one(default, 0)])
            .context(|| format!("failed to remove default vlan on interface {name:?}"))?;
    }
    host.add_port_vlans(port.index, vlans)
        .context(|| format!("failed to setup vlan tag on interface {name:?}"))
}

/// Returns the VLAN that every new port of a bridge is in.
fn default_vlan(bridge: &Link) -> Option<u16> {
    let value = bridge.data(IFLA_BR_VLAN_DEFAULT_PVID)?;
    let id = u16::from_ne_bytes(value.try_into().ok()?);
    Some(id).filter(|id| *id != 0)
}

/// Waits until the port passes packets and returns it as it is then.
pub(super) fn wait_until_up(host: &mut Netlink, name: &str) -> Result<Link> {
    let mut pause = CARRIER_PAUSE;
    let mut waited = Duration::ZERO;
    loop {
        let link = look_up(host, name)?;
        if link.oper_state == IF_OPER_UP {
            return Ok(link);
        }
        if waited >= CARRIER_LIMIT {
            bail!(
                "bridge port in error state: {}",
                state_text(link.oper_state)
            );
        }
        std::thread::sleep(pause);
        waited += pause;
        pause *= 2;
    }
}

/// Returns the port of this name.
pub(super) fn look_up(host: &mut Netlink, name: &str) -> Result<Link> {
    crate::attachment::link_by_name(host, name)
}

/// Returns the name of an `IF_OPER_*` (RFC 2863).
fn state_text(state: u8) -> &'static str {
    match state {
        1 => "not-present",
        2 => "down",
        3 => "lower-layer-down",
        4 => "testing",
        5 => "dormant",
        IF_OPER_UP => "up",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Message;

    #[test]
    fn default_vlan_is_the_bridges() {
        let bridge = |id: u16| {
            let mut data = Message::new(0, 0, &[]);
            data.put_u16(IFLA_BR_VLAN_DEFAULT_PVID, id);
            Link {
                data: data.finish(0, 0)[16..].to_vec(),
                ..Link::default()
            }
        };
        assert_eq!(default_vlan(&bridge(5)), Some(5));
        assert_eq!(default_vlan(&bridge(0)), None);
        assert_eq!(default_vlan(&Link::default()), None);
    }
}
