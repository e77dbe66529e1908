//! The host's addresses and default routes, for the VPN's address plan. It reads the network of this process' own namespace.

use std::net::IpAddr;

use anyhow::Context as _;
use nix::ifaddrs::getifaddrs;
use node::root::Root;
use vpn::plan::{Host, HostAddress};

/// More than a host's routing table.
const MAX: u64 = 16 << 20;

/// Reads the addresses, and the interfaces of the default routes in the main table.
pub(crate) fn read() -> anyhow::Result<Host> {
    let interfaces = getifaddrs().context("cannot list this host's addresses")?;
    let addresses = interfaces.filter_map(|entry| {
        let address = ip(entry.address.as_ref()?)?;
        let length = entry.netmask.as_ref().and_then(ip).map_or(0, length);
        Some(HostAddress {
            interface: entry.interface_name,
            address,
            length,
        })
    });
    let root = Root::open("/")?;
    // A kernel without IPv6 has no such file.
    let table = |path: &str| {
        let bytes = root.read(path, MAX).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(Host {
        addresses: addresses.collect(),
        default_ipv4: default_ipv4(&table("/proc/self/net/route")),
        default_ipv6: default_ipv6(&table("/proc/self/net/ipv6_route")),
    })
}

fn ip(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let ipv4 = address.as_sockaddr_in().map(|address| address.ip().into());
    ipv4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

/// Returns the length of a netmask's prefix.
fn length(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    u8::try_from(ones).expect("an address has at most 128 bits")
}

/// Returns the interface of the first default route with the lowest metric (proc(5): interface, destination, gateway, flags, …, metric
/// in the seventh column, mask in the eighth).
fn default_ipv4(table: &str) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_default = *columns.get(1)? == "00000000" && *columns.get(7)? == "00000000";
        let flags = u32::from_str_radix(columns.get(3)?, 16).ok()?;
        let metric: u32 = columns.get(6)?.parse().ok()?;
        (is_default && flags & UP != 0 && flags & REJECT == 0).then(|| (metric, columns[0]))
    });
    first(routes)
}

/// Returns the same of IPv6 (destination, its length, source, its length, gateway, metric, …, flags, interface).
fn default_ipv6(table: &str) -> Option<String> {
    let routes = table.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let interface = *columns.get(9)?;
        let is_default = columns[0].bytes().all(|byte| byte == b'0') && columns[1] == "00";
        let metric = u32::from_str_radix(columns[5], 16).ok()?;
        let flags = u32::from_str_radix(columns[8], 16).ok()?;
        (is_default && flags & UP != 0 && flags & REJECT == 0).then_some((metric, interface))
    });
    first(routes)
}

const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

fn first<'a>(routes: impl Iterator<Item = (u32, &'a str)>) -> Option<String> {
    // Of equal ones `min_by_key` returns the first.
    let best = routes.min_by_key(|(metric, _)| *metric);
    best.map(|(_, interface)| interface.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_route_is_that_of_the_lowest_metric() {
        let header = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n";
        let table = format!(
            "{header}lo\t00000000\t00000000\t0200\t0\t0\t1\t00000000\nwlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\neth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\neth1\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
        );
        assert_eq!(default_ipv4(&table).as_deref(), Some("eth0"));
        assert_eq!(default_ipv4(header), None);
        let any = "0".repeat(32);
        let line = |length: &str, metric: &str, flags: &str, interface: &str| {
            format!(
                "{any} {length} {any} 00 {any} {metric} 00000001 00000000 {flags} {interface}\n"
            )
        };
        let table = [
            line("00", "ffffffff", "00200200", "lo"),
            line("00", "00000400", "00000003", "eth1"),
            line("00", "00000064", "00000003", "eth0"),
            line("40", "00000001", "00000001", "eth2"),
        ]
        .concat();
        assert_eq!(default_ipv6(&table).as_deref(), Some("eth0"));
        assert_eq!(default_ipv6(""), None);
    }

    #[test]
    fn host_has_the_loopback_address() {
        let host = read().unwrap();
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        let found = host.addresses.iter().find(|own| own.address == loopback);
        assert_eq!(found.unwrap().length, 8);
    }
}
