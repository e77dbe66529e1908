//! portmap: forwards ports of the host to the container.

mod iptables;
mod nftables;

use std::net::IpAddr;

use cni::CniResult;

use crate::attachment::{Container, cidr, interface_of};
use crate::call::Call;
use crate::config::portmap::{Config, Mapping, port_number};
use crate::error::{Context, Result, failure, or_undo, warn};
use crate::filter::Backend;
use crate::ip::{self, Cidr};
use crate::kernel::{Netlink, sysctl};

impl Config {
    /// Runs `work` with the chosen backend, or with the one that works here when the configuration names none.
    fn with<T>(&self, backend: Backend, work: impl Fn(Backend) -> Result<T>) -> Result<T> {
        if self.backend.is_some() {
            work(backend)
        } else {
            backend.or_other(work)
        }
    }

    /// Chooses the backend, or `None` when there is nothing to choose it for. Options for the other one are an error.
    fn backend(&self) -> Result<Option<Backend>> {
        let options = self.options();
        if self.backend.is_none() && self.mappings().is_empty() && options.is_empty() {
            return Ok(None);
        }
        let name = match self.backend.as_deref() {
            Some(name) => name,
            // A wrong guess shows before anything is changed, but options decide at once.
            None if options.is_empty() => return Ok(Some(Backend::likely_here())),
            None => match Backend::default_here() {
                Backend::Iptables => "iptables",
                Backend::Nftables => "nftables",
            },
        };
        self.named_backend(name).map(Some)
    }
}

/// To which of the host's addresses a port is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    /// All addresses of the family.
    Any,
    Address(IpAddr),
    /// An address of the other family.
    OtherFamily,
}

impl Mapping {
    /// Returns how the port is bound in the family of the container's address. A text that is not an address counts as IPv6, as for the
    /// reference, where iptables refuses it.
    fn binding(&self, container: IpAddr) -> Result<Binding> {
        if self.host_ip.is_empty() {
            return Ok(Binding::Any);
        }
        match ip::parse(&self.host_ip) {
            Ok(address) if address.is_ipv4() != container.is_ipv4() => Ok(Binding::OtherFamily),
            Ok(address) if address.is_unspecified() => Ok(Binding::Any),
            Ok(address) => Ok(Binding::Address(address)),
            Err(_) if container.is_ipv4() => Ok(Binding::OtherFamily),
            Err(error) => Err(error).context(|| "invalid hostIP".to_owned()),
        }
    }
}

/// The container whose ports are forwarded.
struct Target<'a> {
    config: &'a Config,
    network: &'a str,
    container_id: &'a str,
    ifname: &'a str,
}

impl<'a> Target<'a> {
    fn of(config: &'a Config, call: &'a Call) -> Self {
        Self {
            config,
            network: &call.network,
            container_id: &call.container_id,
            ifname: &call.ifname,
        }
    }
}

#[cfg(test)]
impl<'a> Target<'a> {
    fn for_test(config: &'a Config) -> Self {
        Self {
            config,
            network: "net1",
            container_id: "cid1",
            ifname: "eth0",
        }
    }
}

/// Returns the addresses of the attachment for DEL: those of the previous result, and those of its interface. There are none when the
/// container is gone, with all of its attachments, or its namespace cannot be entered.
fn own_addresses(call: &Call) -> Result<Option<Vec<IpAddr>>> {
    let Ok(Some(mut container)) = Container::open_if_present(&call.netns) else {
        return Ok(None);
    };
    let listed = call.prev_result().ok().flatten().unwrap_or_default();
    let listed = listed.ips.iter().filter_map(|config| cidr(config).ok());
    let mut addresses: Vec<_> = listed.map(|cidr| cidr.address).collect();
    if let Ok(link) = container.netlink.link_by_name(&call.ifname) {
        let present = container.netlink.addresses(link.index);
        let present = present.context(|| format!("failed to list addresses of {:?}", link.name))?;
        addresses.extend(present.iter().map(|address| address.cidr.address));
    }
    Ok(Some(addresses))
}

/// Returns the first address of each family that belongs to the container's interface, or to none.
fn container_addresses(result: &CniResult, ifname: &str) -> Result<Vec<Cidr>> {
    let mut addresses: Vec<Cidr> = Vec::new();
    for config in &result.ips {
        let is_others = interface_of(config, result)
            .is_some_and(|interface| interface.name != ifname || interface.sandbox.is_empty());
        let address = cidr(config)?;
        let is_known = addresses
            .iter()
            .any(|known| known.address.is_ipv4() == address.address.is_ipv4());
        if !is_others && !is_known {
            addresses.push(address);
        }
    }
    addresses.sort_by_key(|address| address.address.is_ipv6());
    Ok(addresses)
}

/// Forwards the ports to the container's addresses.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let what = || "failed to parse config".to_owned();
    let config = Config::load(call).context(what)?;
    let backend = config.backend().context(what)?;
    config.check_ports().context(what)?;
    let result = call
        .prev_result()
        .context(what)?
        .ok_or_else(|| failure!("must be called as chained plugin"))?;
    let Some(backend) = backend.filter(|_| !config.mappings().is_empty()) else {
        return Ok(result);
    };
    let target = Target::of(&config, call);
    let addresses = container_addresses(&result, &call.ifname)?;
    config.with(backend, |backend| {
        or_undo(
            || {
                addresses
                    .iter()
                    .try_for_each(|address| forward(&target, backend, *address))
            },
            || {
                let addresses: Vec<_> = addresses.iter().map(|cidr| cidr.address).collect();
                // The error that is reported is the first one.
                let _ = stop(&target, backend, Some(&addresses));
            },
        )
    })?;
    Ok(result)
}

fn forward(target: &Target<'_>, backend: Backend, container: Cidr) -> Result<()> {
    match backend {
        Backend::Iptables => iptables::forward(target, container)?,
        Backend::Nftables => nftables::forward(target, container)?,
    }
    forget_connections(target.config, container.address);
    if target.config.snat() && container.address.is_ipv4() {
        allow_loopback_sources(container.address)
            .context(|| "unable to enable route_localnet".to_owned())?;
    }
    Ok(())
}

/// Forgets UDP connections to the forwarded ports: a client that goes on sending would never meet the new rules. They end by
/// themselves, so a failure is only a warning.
fn forget_connections(config: &Config, container: IpAddr) {
    let ports: Vec<_> = config
        .mappings()
        .iter()
        .filter(|mapping| mapping.protocol.eq_ignore_ascii_case("udp"))
        .map(|mapping| port_number(mapping.host_port))
        .collect();
    if ports.is_empty() {
        return;
    }
    let outcome = Netlink::open_netfilter()
        .and_then(|mut netlink| netlink.forget_udp_connections(container.is_ipv4(), &ports));
    if let Err(error) = outcome {
        warn(&format!(
            "failed to delete stale UDP conntrack entries for {container}: {error}"
        ));
    }
}

/// Lets packets from 127.0.0.1 leave through the link that leads to the container.
fn allow_loopback_sources(container: IpAddr) -> Result<()> {
    let link = Netlink::open().ok().and_then(|mut netlink| {
        let index = netlink.route_to(container).ok()?.link.unwrap_or_default();
        netlink.link_by_index(index).ok()
    });
    // Without a route the container is not reached by this host at all.
    let Some(link) = link else {
        return Ok(());
    };
    let parameter = format!("net/ipv4/conf/{}/route_localnet", link.name);
    sysctl::write(&parameter, "1").context(|| format!("failed to set {parameter}"))
}

/// Deletes the rules of the attachment.
pub(crate) fn del(call: &Call) -> Result<()> {
    let what = || "failed to parse config".to_owned();
    let config = Config::load(call).context(what)?;
    let backend = config.backend().context(what)?;
    let Some(backend) = backend.filter(|_| !config.mappings().is_empty()) else {
        return Ok(());
    };
    let target = Target::of(&config, call);
    let addresses = own_addresses(call)?;
    let addresses = addresses.as_deref();
    config.with(backend, |backend| stop(&target, backend, addresses))?;
    if config.backend.is_none() && backend == Backend::Iptables {
        // ADD may have run before the node had iptables.
        nftables::stop(&target, addresses)?;
    }
    Ok(())
}

/// Deletes the rules of the network's containers that are gone. Those of nftables do not all say of which network they are, so they stay
/// until their DEL.
pub(crate) fn gc(call: &Call) -> Result<()> {
    let Some(valid) = call.valid_attachments()? else {
        return Ok(());
    };
    let valid: Vec<_> = valid
        .iter()
        .map(|attachment| attachment.container_id.as_str())
        .collect();
    iptables::gc(&call.network, &valid)
}

/// Deletes the rules of the attachment with these addresses; without any, those of the container.
fn stop(target: &Target<'_>, backend: Backend, addresses: Option<&[IpAddr]>) -> Result<()> {
    match backend {
        Backend::Iptables => iptables::stop(target, addresses),
        Backend::Nftables => nftables::stop(target, addresses),
    }
}

/// Fails unless the rules of the container are there.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let backend = config.backend()?;
    config.check_ports()?;
    let result = call
        .prev_result()?
        .ok_or_else(|| failure!("Required prevResult missing"))?;
    let Some(backend) = backend.filter(|_| !config.mappings().is_empty()) else {
        return Ok(());
    };
    let target = Target::of(&config, call);
    let addresses = container_addresses(&result, &call.ifname)?;
    config.with(backend, |backend| {
        addresses.iter().try_for_each(|address| match backend {
            Backend::Iptables => iptables::check(&target, *address),
            Backend::Nftables => nftables::check(&target, *address),
        })
    })
}

#[cfg(test)]
mod tests {
    use cni::types::{Interface, IpConfig};

    use super::*;

    fn config(json: serde_json::Value) -> Config {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn options_of_the_other_backend_are_refused() {
        let check = |json, expected: &str| {
            let error = config(json).backend().unwrap_err();
            assert_eq!(error.msg, expected);
        };
        check(
            serde_json::json!({"backend": "iptables", "conditionsv4": ["ip", "saddr", "1.2.3.4"]}),
            "iptables backend was requested but configuration contains nftables-specific options [conditionsV4]",
        );
        check(
            serde_json::json!({"backend": "nftables", "externalsetmarkchain": "A", "conditionsv6": ["!", "-s", "::1"]}),
            "nftables backend was requested but configuration contains iptables-specific options [externalSetMarkChain conditionsV6]",
        );
        check(
            serde_json::json!({"backend": "ipchains"}),
            "unrecognized backend \"ipchains\"",
        );
        let fitting = serde_json::json!({"backend": "nftables", "conditionsv4": ["iif", "lo"]});
        assert_eq!(config(fitting).backend(), Ok(Some(Backend::Nftables)));
        assert_eq!(config(serde_json::json!({})).backend(), Ok(None));
    }

    #[test]
    fn addresses_are_the_first_of_each_family_in_the_sandbox() {
        let interface = |name: &str, sandbox: &str| Interface {
            name: name.to_owned(),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        };
        let address = |interface: Option<i64>, address: &str| IpConfig {
            interface,
            address: address.to_owned(),
            gateway: String::new(),
        };
        let result = CniResult {
            interfaces: vec![
                interface("eth0", ""),
                interface("eth0", "/ns"),
                interface("eth1", "/ns"),
            ],
            ips: vec![
                address(Some(0), "10.0.0.1/24"),
                address(Some(2), "10.0.0.2/24"),
                address(Some(1), "fd00::3/64"),
                address(Some(7), "10.0.0.4/24"),
                address(None, "10.0.0.5/24"),
            ],
            ..CniResult::default()
        };
        let addresses = container_addresses(&result, "eth0").unwrap();
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.4/24", "fd00::3/64"]);
    }

    #[test]
    fn ports_outside_the_range_are_refused() {
        for (port, is_port) in [
            (0, false),
            (-1, false),
            (1, true),
            (65535, true),
            (65536, false),
        ] {
            let json = serde_json::json!({"runtimeconfig": {"portmappings": [{"hostport": port, "containerport": 80}]}});
            assert_eq!(config(json).check_ports().is_ok(), is_port, "{port}");
        }
    }

    #[test]
    fn binding_depends_on_the_family_of_the_container() {
        let v4 = IpAddr::from([10, 0, 0, 1]);
        let v6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
        let check = |host_ip: &str, container, expected| {
            let mapping = Mapping {
                host_ip: host_ip.to_owned(),
                ..Mapping::default()
            };
            assert_eq!(mapping.binding(container), Ok(expected), "{host_ip}");
        };
        check("", v4, Binding::Any);
        check("0.0.0.0", v4, Binding::Any);
        check("0.0.0.0", v6, Binding::OtherFamily);
        check("::", v6, Binding::Any);
        check("::", v4, Binding::OtherFamily);
        check("10.0.0.1", v4, Binding::Address(v4));
        check("fd00::1", v6, Binding::Address(v6));
        check("localhost", v4, Binding::OtherFamily);
    }
}
