//! ptp: a pair of links between host and container. The container reaches even its neighbours through the host.

use std::net::IpAddr;

use cni::CniResult;
use cni::types::Interface;

use super::single;
use crate::attachment::{Assignment, Container, cidr};
use crate::call::Call;
use crate::config::ptp::Config;
use crate::error::{Context, Result, bail, failure, or_undo};
use crate::interface::veth::{self, Pair};
use crate::ip::{self, Cidr};
use crate::kernel::link::Link;
use crate::kernel::netns::Namespace;
use crate::kernel::route::{
    AddRoute, RT_SCOPE_HOST, RT_SCOPE_LINK, RT_SCOPE_NOWHERE, RTPROT_UNSPEC, Route,
};
use crate::kernel::{Errno, Netlink};

/// The index of the container's end among the interfaces of the result.
const CONTAINER: i64 = 1;

/// An address of the container and the host's address on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    cidr: Cidr,
    gateway: IpAddr,
}

impl Address {
    /// Reads the addresses of a result; the host's end takes the gateways.
    fn all(result: &CniResult) -> Result<Vec<Self>> {
        if result.ips.is_empty() {
            bail!("IPAM plugin returned missing IP config");
        }
        let read = |config| {
            let cidr = cidr(config)?;
            if config.gateway.is_empty() {
                bail!(
                    "IPAM plugin returned no gateway for {cidr}: ptp gives it to the host's end of the link"
                );
            }
            let gateway = ip::parse(&config.gateway).context(|| "invalid gateway".to_owned())?;
            Ok(Self { cidr, gateway })
        };
        result.ips.iter().map(read).collect()
    }

    /// The route that the kernel makes for the address: the network is on the link.
    fn kernels_route(&self, link: u32) -> Route {
        Route {
            scope: RT_SCOPE_NOWHERE,
            protocol: RTPROT_UNSPEC,
            ..Route::new(self.cidr.network(), link)
        }
    }

    /// The container's routes: the gateway is on the link, and the rest of the network behind it. A veth link cannot be
    /// point-to-point, so this makes it one.
    fn container_routes(&self, link: u32) -> [Route; 2] {
        let source = Some(self.cidr.address);
        let to_gateway = Route {
            scope: RT_SCOPE_LINK,
            source,
            ..Route::new(Cidr::host(self.gateway), link)
        };
        let to_network = Route {
            gateway: Some(self.gateway),
            source,
            ..Route::new(self.cidr.network(), link)
        };
        [to_gateway, to_network]
    }

    /// The host's route to the container.
    fn host_route(&self, link: u32) -> Route {
        Route {
            scope: RT_SCOPE_HOST,
            ..Route::new(Cidr::host(self.cidr.address), link)
        }
    }
}

/// Creates the pair, with the addresses of the IPAM plugin on the container's end and their gateways on the host's.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config: Config = call.config()?;
    let result = config.ipam.add(call)?;
    or_undo(
        || attach(call, &config, result),
        || {
            // The error that is reported is the first one.
            let _ = config.ipam.del(call);
        },
    )
}

fn attach(call: &Call, config: &Config, ipam_result: CniResult) -> Result<CniResult> {
    let addresses = Address::all(&ipam_result)?;
    veth::enable_forwarding(addresses.iter().map(|address| address.cidr.address))
        .context(|| "Could not enable IP forwarding".to_owned())?;
    let namespace = call.namespace()?;
    let mut host = Netlink::open()?;
    let pair = Pair {
        ifname: &call.ifname,
        mtu: u32::try_from(config.mtu).ok().filter(|mtu| *mtu != 0),
        ..Pair::default()
    };
    let name = pair.create(&mut host, &namespace)?;
    let mut result = ipam_result;
    for config in &mut result.ips {
        config.interface = Some(CONTAINER);
    }
    result.interfaces = vec![
        Interface {
            name: name.clone(),
            ..Interface::default()
        },
        Interface {
            name: call.ifname.clone(),
            sandbox: call.netns.clone(),
            ..Interface::default()
        },
    ];
    let configured = configure(namespace, &mut host, &addresses, &mut result)
        .and_then(|()| config.masquerade.set_up(call, &result.ips));
    if configured.is_err() {
        veth::undo(&mut host, &name);
    }
    configured?;
    result.dns = config.dns.clone().or(result.dns);
    Ok(result)
}

/// Configures both ends and completes the result with their hardware addresses.
fn configure(
    namespace: Namespace,
    host: &mut Netlink,
    addresses: &[Address],
    result: &mut CniResult,
) -> Result<()> {
    let (name, ifname) = (&result.interfaces[0].name, &result.interfaces[1].name);
    let ours = host
        .link_by_name(name)
        .context(|| format!("failed to lookup {name:?}"))?;
    let assignment = Assignment::of(ifname, result)?;
    let mut container = Container::enter(namespace, || assignment.prepare())?;
    let theirs = container
        .link(ifname)
        .context(|| format!("failed to look up {ifname:?}"))?;
    container.assign(&theirs, &assignment)?;
    for address in addresses {
        set_container_routes(&mut container.netlink, &theirs, address)?;
    }
    for address in addresses {
        set_host_address(host, &ours, address)?;
    }
    let macs = [ours.mac_text(), theirs.mac_text()];
    for (interface, mac) in result.interfaces.iter_mut().zip(macs) {
        interface.mac = mac;
    }
    Ok(())
}

fn set_container_routes(netlink: &mut Netlink, link: &Link, address: &Address) -> Result<()> {
    let route = address.kernels_route(link.index);
    match netlink.delete_route(&route) {
        // An address without neighbours has no such route.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => {
            bail!("failed to delete route {}: {error}", route.destination);
        }
    }
    for route in address.container_routes(link.index) {
        netlink
            .add_route(&route, AddRoute::New)
            .context(|| format!("failed to add route {}", route.destination))?;
    }
    Ok(())
}

fn set_host_address(host: &mut Netlink, link: &Link, address: &Address) -> Result<()> {
    // The pod's first packet finds its gateway at once: detection takes up to two seconds.
    host.add_address_of_one_end(link.index, Cidr::host(address.gateway))
        .context(|| format!("failed to add IP addr ({}) to veth", address.gateway))?;
    match host.add_route(&address.host_route(link.index), AddRoute::New) {
        // The container's address and the gateway may be the same.
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(failure!("failed to add route on host: {error}")),
    }
}

/// Deletes the pair and gives the addresses back.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let addresses = config.masquerade.remove_pair(call)?;
    veth::combine([
        config.ipam.del(call),
        config.masquerade.tear_down(call, addresses.as_deref()),
    ])
}

/// Compares the container's end with the previous result.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let mut container = Container::open(&call.netns)?;
    config.ipam.require()?;
    config.ipam.check(call)?;
    let result = single::expected_result(call, "ptp: ")?;
    let interface = single::expected_interface(&result, call)?;
    let name = &interface.name;
    let link = container
        .netlink
        .link_by_name(name)
        .map_err(|_| failure!("ptp: Container Interface name in prevResult: {name} not found"))?;
    if !veth::is_veth(&link) {
        bail!("Error: Container interface {name} not of type veth/p2p");
    }
    single::check_mac(interface, &link, "ptp: ")?;
    single::check_addresses_and_routes(&mut container, call, &result)
}

/// Fails when the IPAM plugin could serve no ADD.
pub(crate) fn status(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    config.ipam.require_status(call)
}

/// Ends masquerading for attachments that no longer exist, as the IPAM plugin releases their addresses.
pub(crate) fn gc(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    veth::combine([config.ipam.gc(call), config.masquerade.gc(call)])
}

#[cfg(test)]
mod tests {
    use cni::types::IpConfig;

    use super::*;

    fn result(address: &str, gateway: &str) -> CniResult {
        CniResult {
            ips: vec![IpConfig {
                address: address.to_owned(),
                gateway: gateway.to_owned(),
                ..IpConfig::default()
            }],
            ..CniResult::default()
        }
    }

    #[test]
    fn network_is_behind_the_gateway() {
        let addresses = Address::all(&result("10.1.2.3/24", "10.1.2.1")).unwrap();
        let [to_gateway, to_network] = addresses[0].container_routes(2);
        assert_eq!(to_gateway.destination.to_string(), "10.1.2.1/32");
        assert_eq!(to_gateway.gateway, None);
        assert_eq!(to_network.destination.to_string(), "10.1.2.0/24");
        assert_eq!(to_network.gateway, Some("10.1.2.1".parse().unwrap()));
        assert_eq!(to_network.source, Some("10.1.2.3".parse().unwrap()));
        let route = addresses[0].host_route(9);
        assert_eq!(route.destination.to_string(), "10.1.2.3/32");
    }

    #[test]
    fn address_without_gateway_is_refused() {
        let error = Address::all(&result("10.1.2.3/24", "")).unwrap_err();
        assert!(
            error.msg.contains("no gateway for 10.1.2.3/24"),
            "{}",
            error.msg
        );
        let error = Address::all(&CniResult::default()).unwrap_err();
        assert_eq!(error.msg, "IPAM plugin returned missing IP config");
    }
}
