//! host-local: addresses of ranges, handed out only on this node and noted in files.

mod allocation;
mod lease;
mod store;

use std::collections::HashSet;
use std::net::IpAddr;

use cni::CniResult;
use cni::types::{Dns, IpConfig};

use self::allocation::candidates;
use self::lease::{Holder, Lease};
use self::store::Store;
use crate::call::Call;
use crate::config::host_local::Config;
use crate::config::range::{Range, RangeSet};
use crate::error::{Context, Result, bail, failure, join_failures};
use crate::ip::Cidr;

/// Reserves one address of each set of ranges.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config = Config::load(call)?;
    let dns = read_resolv_conf(&config.resolv_conf)?;
    let store = Store::open(&config.data_dir, &call.network)?;
    let mut reservation = Reservation {
        holder: Holder::from_call(call),
        store: &store,
        leases: None,
        reserved: Vec::new(),
    };
    match reservation.run(&config) {
        Ok(ips) => Ok(CniResult {
            ips,
            routes: config.routes,
            dns,
            ..CniResult::default()
        }),
        Err(error) => {
            for address in reservation.reserved {
                // The error that is reported is the first one.
                let _ = store.release(address);
            }
            Err(error)
        }
    }
}

/// The addresses that one ADD reserves.
struct Reservation<'a> {
    holder: Holder<'a>,
    store: &'a Store,
    /// The leases of others, read when the first address is chosen: those that a configuration names need no choice.
    leases: Option<Vec<Lease>>,
    reserved: Vec<IpAddr>,
}

impl Reservation<'_> {
    fn run(&mut self, config: &Config) -> Result<Vec<IpConfig>> {
        let mut requested = config.requested.clone();
        let mut ips = Vec::new();
        for (index, set) in config.sets.iter().enumerate() {
            let found = take_requested(&mut requested, set);
            let (address, range) = match found {
                Some((address, range)) => self.reserve_requested(set, address, range),
                None => self.reserve_any(index, set),
            }
            .context(|| format!("failed to allocate for range {index}"))?;
            self.store.set_last_reserved(index, address)?;
            ips.push(IpConfig {
                interface: None,
                address: Cidr::new(address, range.subnet.length).to_string(),
                gateway: range.gateway.to_string(),
            });
        }
        if requested.is_empty() {
            Ok(ips)
        } else {
            let texts: Vec<_> = requested.iter().map(ToString::to_string).collect();
            Err(failure!(
                "failed to allocate all requested IPs: {}",
                texts.join(" ")
            ))
        }
    }

    fn reserve_requested<'a>(
        &mut self,
        set: &RangeSet,
        address: IpAddr,
        range: &'a Range,
    ) -> Result<(IpAddr, &'a Range)> {
        if address == range.gateway {
            bail!("requested ip {address} is subnet's gateway");
        }
        if !self.reserve(address)? {
            bail!("requested IP address {address} is not available in range set {set}");
        }
        Ok((address, range))
    }

    fn reserve_any<'a>(&mut self, index: usize, set: &'a RangeSet) -> Result<(IpAddr, &'a Range)> {
        let leases = match self.leases.take() {
            Some(leases) => leases,
            None => self.store.leases()?,
        };
        let leases = self.leases.insert(leases);
        let own = leases
            .iter()
            .filter(|lease| self.holder.has(lease))
            .find(|lease| set.range_of(lease.address).is_some());
        if let Some(lease) = own {
            bail!(
                "{} has been allocated to {}, duplicate allocation is not allowed",
                lease.address,
                self.holder.container_id
            );
        }
        let taken: HashSet<_> = leases
            .iter()
            .filter(|lease| !lease.is_abandoned())
            .map(|lease| lease.address)
            .collect();
        for (address, range) in candidates(set, self.store.last_reserved(index)) {
            if !taken.contains(&address) && self.reserve(address)? {
                return Ok((address, range));
            }
        }
        Err(failure!("no IP addresses available in range set: {set}"))
    }

    fn reserve(&mut self, address: IpAddr) -> Result<bool> {
        let is_reserved = self.store.reserve(address, &self.holder.text())?;
        if is_reserved {
            self.reserved.push(address);
        }
        Ok(is_reserved)
    }
}

/// Takes the first requested address that a set has out of the list, with all of its repetitions.
fn take_requested<'a>(
    requested: &mut Vec<IpAddr>,
    set: &'a RangeSet,
) -> Option<(IpAddr, &'a Range)> {
    let found = requested
        .iter()
        .find_map(|address| set.range_of(*address).map(|range| (*address, range)))?;
    requested.retain(|address| *address != found.0);
    Some(found)
}

/// Gives the addresses of the attachment back.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let Some(store) = Store::open_if_present(&config.data_dir, &call.network)? else {
        return Ok(());
    };
    let leases = store.leases()?;
    let holder = Holder::from_call(call);
    let abandoned = leases.iter().filter(|lease| lease.is_abandoned());
    release(&store, holder.leases(&leases).into_iter().chain(abandoned))
}

/// Fails unless the attachment has an address.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let leases = match Store::open_if_present(&config.data_dir, &call.network)? {
        Some(store) => store.leases()?,
        None => Vec::new(),
    };
    let holder = Holder::from_call(call);
    if holder.leases(&leases).is_empty() {
        bail!(
            "host-local: Failed to find address added by container {}",
            call.container_id
        );
    }
    Ok(())
}

/// Fails when the configuration is wrong. Ranges without a free address are not a reason: the node would take no pod at all then, not
/// even those of other networks.
pub(crate) fn status(call: &Call) -> Result<()> {
    Config::load(call).map(|_| ())
}

/// Gives the addresses back that none of the valid attachments has.
pub(crate) fn gc(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    let valid = call.require_valid_attachments()?;
    let Some(store) = Store::open_if_present(&config.data_dir, &call.network)? else {
        return Ok(());
    };
    let is_valid = |lease: &Lease| {
        valid.iter().any(|attachment| {
            let holder = Holder {
                container_id: &attachment.container_id,
                ifname: &attachment.ifname,
            };
            holder.has(lease)
        })
    };
    let leases = store.leases()?;
    let is_known = |lease: &&Lease| lease.text.is_some();
    let invalid = leases
        .iter()
        .filter(is_known)
        .filter(|lease| !is_valid(lease));
    release(&store, invalid)
}

/// Removes leases; a failure does not keep the others.
fn release<'a>(store: &Store, leases: impl Iterator<Item = &'a Lease>) -> Result<()> {
    let errors: Vec<_> = leases
        .filter_map(|lease| store.release(lease.address).err())
        .map(|error| error.msg)
        .collect();
    join_failures(&errors, ";")
}

pub(super) fn read_resolv_conf(path: &str) -> Result<Dns> {
    if path.is_empty() {
        return Ok(Dns::default());
    }
    let bytes = std::fs::read(path).context(|| format!("open {path}"))?;
    Ok(parse_resolv_conf(&String::from_utf8_lossy(&bytes)))
}

/// Reads a file in the format of resolv.conf(5); lists that are repeated add up.
fn parse_resolv_conf(text: &str) -> Dns {
    let mut dns = Dns::default();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace().map(ToOwned::to_owned);
        let keyword = words.next().unwrap_or_default();
        match keyword.as_str() {
            "nameserver" => dns.nameservers.extend(words.next()),
            "domain" => dns.domain = words.next().unwrap_or(dns.domain),
            "search" => dns.search.extend(words),
            "options" => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}
