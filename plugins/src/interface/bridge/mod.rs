//! bridge: an interface in the container whose other end is a port of a bridge on the host. The bridge may be the gateway.

mod check;
mod device;
mod plan;
mod port;

use std::io::Write;

use cni::CniResult;
use cni::types::Interface;

use crate::attachment::{Assignment, Container};
use crate::call::Call;
use crate::error::{Context, Result, bail, or_undo};
use crate::filter::spoofcheck;
use crate::interface::veth::{self, Pair};
use crate::ip::Cidr;
use crate::kernel::link::Link;
use crate::kernel::netns::Namespace;
use crate::kernel::{Netlink, sysctl};

use crate::config::bridge::Plan;
pub(crate) use check::check;

/// Attaches the container to the bridge, which is created when there is none.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let plan = Plan::load(call)?;
    plan.validate()?;
    let mac = plan.mac()?;
    let namespace = call.namespace()?;
    let mut host = Netlink::open()?;
    let bridge = device::ensure(&mut host, &plan)?;
    let pair = Pair {
        ifname: &call.ifname,
        mac: &mac,
        mtu: plan.mtu(),
        bridge: Some(bridge.index),
    };
    let name = pair.create(&mut host, &namespace)?;
    let mut addition = Addition {
        call,
        plan: &plan,
        bridge,
        name,
        host,
    };
    let result = addition.finish(namespace);
    if result.is_err() {
        veth::undo(&mut addition.host, &addition.name);
        if plan.config.mac_spoof_check {
            // The error that is reported is the first one.
            let _ = spoofcheck::tear_down(&reference(call));
        }
    }
    result
}

/// An ADD whose pair exists.
struct Addition<'a> {
    call: &'a Call,
    plan: &'a Plan,
    bridge: Link,
    /// The name of the host's end.
    name: String,
    /// A socket on the host.
    host: Netlink,
}

impl Addition<'_> {
    fn finish(&mut self, namespace: Namespace) -> Result<CniResult> {
        port::configure(&mut self.host, &self.bridge, &self.name, self.plan)?;
        let (call, config) = (self.call, &self.plan.config);
        let mut result = if config.ipam.is_set() {
            let ipam_result = config.ipam.add(call)?;
            or_undo(
                || self.attach_with_addresses(namespace, ipam_result),
                || {
                    // The error that is reported is the first one.
                    let _ = config.ipam.del(call);
                },
            )?
        } else {
            self.attach(namespace)?
        };
        result.dns = config.dns.clone().or(result.dns);
        Ok(result)
    }

    /// Attaches the container on layer 2.
    fn attach(&mut self, namespace: Namespace) -> Result<CniResult> {
        let mut result = CniResult {
            interfaces: self.interfaces(),
            ..CniResult::default()
        };
        let mut container = Container::enter(namespace, || Ok(()))?;
        let ifname = &self.call.ifname;
        let link = container
            .link(ifname)
            .context(|| "failed to retrieve link".to_owned())?;
        self.check_sender(&link)?;
        if !self.plan.config.disable_container_interface {
            container
                .netlink
                .set_up(link.index)
                .context(|| format!("failed to set {ifname:?} up"))?;
        }
        self.complete(&mut result, &link)?;
        Ok(result)
    }

    /// Attaches the container and gives it the addresses of the IPAM plugin.
    fn attach_with_addresses(
        &mut self,
        namespace: Namespace,
        ipam_result: CniResult,
    ) -> Result<CniResult> {
        if ipam_result.ips.is_empty() {
            bail!("IPAM plugin returned missing IP config");
        }
        let mut result = CniResult {
            interfaces: self.interfaces(),
            ..ipam_result
        };
        let gateways = self.plan.complete(&mut result)?;
        let ifname = self.call.ifname.as_str();
        let assignment = Assignment::of(ifname, &result)?;
        let mut container = Container::enter(namespace, || {
            for (name, value) in parameters(ifname, self.plan.config.enable_dad) {
                // Those that this kernel lacks are passed over.
                let _ = sysctl::write(&name, value);
            }
            assignment.prepare()
        })?;
        let link = container
            .link(ifname)
            .context(|| format!("failed to lookup {ifname:?}"))?;
        self.check_sender(&link)?;
        container.assign(&link, &assignment)?;
        self.set_up_gateway(&gateways, &mut result)?;
        self.complete(&mut result, &link)?;
        let masquerade = &self.plan.config.masquerade;
        masquerade.set_up(self.call, &result.ips)?;
        Ok(result)
    }

    /// Drops what the container sends under another hardware address, if the configuration demands it.
    fn check_sender(&self, link: &Link) -> Result<()> {
        if !self.plan.config.mac_spoof_check {
            return Ok(());
        }
        spoofcheck::set_up(&self.name, &link.mac, &reference(self.call))
    }

    /// Gives the gateways' addresses to the bridge, or to the interface of its VLAN, and lets the host forward.
    fn set_up_gateway(&mut self, gateways: &[Cidr], result: &mut CniResult) -> Result<()> {
        let config = &self.plan.config;
        let mut vlan_link = None;
        if let Some(vlan) = self.plan.vlan.filter(|_| !gateways.is_empty()) {
            let keeps_default = config.preserve_default_vlan;
            let link =
                device::ensure_vlan_interface(&mut self.host, &self.bridge, vlan, keeps_default)
                    .context(|| "failed to create vlan interface".to_owned())?;
            result.interfaces.push(interface_of(&link));
            vlan_link = Some(link);
        }
        for gateway in gateways {
            let link = vlan_link.as_ref().unwrap_or(&self.bridge);
            let what = if vlan_link.is_some() {
                "failed to set vlan interface for bridge with addr"
            } else {
                "failed to set bridge addr"
            };
            device::ensure_address(&mut self.host, link, *gateway, config.force_address)
                .context(|| what.to_owned())?;
        }
        veth::enable_forwarding(gateways.iter().map(|gateway| gateway.address))
            .context(|| "failed to enable forwarding".to_owned())
    }

    /// Returns the interfaces of the result: bridge, host's end and container's end, whose hardware addresses are not known yet.
    fn interfaces(&self) -> Vec<Interface> {
        let named = |name: &str, sandbox: &str| Interface {
            name: name.to_owned(),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        };
        vec![
            named(&self.bridge.name, ""),
            named(&self.name, ""),
            named(&self.call.ifname, &self.call.netns),
        ]
    }

    /// Waits for the port and completes the result with hardware addresses. Those of the bridge and its port may have changed since
    /// they were created.
    fn complete(&mut self, result: &mut CniResult, link: &Link) -> Result<()> {
        let port = if self.plan.config.disable_container_interface {
            port::look_up(&mut self.host, &self.name)?
        } else {
            port::wait_until_up(&mut self.host, &self.name)?
        };
        port::connect(&mut self.host, &self.bridge, &port)?;
        let bridge = self
            .host
            .link_by_index(self.bridge.index)
            .context(|| format!("could not lookup {:?}", self.bridge.name))?;
        let macs = [&bridge, &port, link].map(Link::mac_text);
        for (interface, mac) in result.interfaces.iter_mut().zip(macs) {
            interface.mac = mac;
        }
        Ok(())
    }
}

/// Returns the parameters of the container's interface: neighbours learn at once that the address has moved here, and duplicate
/// address detection runs only where the configuration demands it.
fn parameters(ifname: &str, enable_dad: bool) -> Vec<(String, &'static str)> {
    let ipv6 = |name: &str| format!("net/ipv6/conf/{ifname}/{name}");
    let mut parameters = vec![(format!("net/ipv4/conf/{ifname}/arp_notify"), "1")];
    if enable_dad {
        parameters.push((ipv6("enhanced_dad"), "1"));
        parameters.push((ipv6("accept_dad"), "1"));
    } else {
        parameters.push((ipv6("accept_dad"), "0"));
    }
    parameters
}

fn interface_of(link: &Link) -> Interface {
    Interface {
        name: link.name.clone(),
        mac: link.mac_text(),
        ..Interface::default()
    }
}

/// Returns the name of the attachment in the rules of the check against spoofing.
fn reference(call: &Call) -> String {
    format!("{}-{}", call.container_id, call.ifname)
}

/// Deletes the pair and gives the addresses back. The bridge stays, since it may be another container's. Without a network namespace,
/// rules on the host are still found by the names of the attachment.
pub(crate) fn del(call: &Call) -> Result<()> {
    let plan = Plan::load(call)?;
    let config = &plan.config;
    let addresses = config.masquerade.remove_pair(call)?;
    let released = config.ipam.del(call);
    if config.mac_spoof_check
        && let Err(error) = spoofcheck::tear_down(&reference(call))
    {
        // Rules of a link that no longer exists stop nothing, so they do not keep the pod from being deleted.
        let _ = writeln!(std::io::stderr(), "{error}");
    }
    veth::combine([
        released,
        config.masquerade.tear_down(call, addresses.as_deref()),
    ])
}

/// Fails when no ADD could be served: by the configuration, or by the IPAM plugin.
pub(crate) fn status(call: &Call) -> Result<()> {
    let plan = Plan::load(call)?;
    plan.validate()?;
    plan.config.ipam.status(call)
}

/// Ends masquerading for attachments that no longer exist, as the IPAM plugin releases their addresses.
pub(crate) fn gc(call: &Call) -> Result<()> {
    let plan = Plan::load(call)?;
    let config = &plan.config;
    veth::combine([config.ipam.gc(call), config.masquerade.gc(call)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detection_of_duplicates_is_off_unless_demanded() {
        let find = |enable_dad| {
            let parameters = parameters("eth0", enable_dad);
            let found = parameters
                .iter()
                .find(|(name, _)| name == "net/ipv6/conf/eth0/accept_dad");
            found.map(|(_, value)| *value)
        };
        assert_eq!(find(false), Some("0"));
        assert_eq!(find(true), Some("1"));
    }
}
