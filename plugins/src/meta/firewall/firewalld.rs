//! The firewalld backend: the addresses become sources of a zone.

use super::dbus::{Bus, Call, Reply};
use crate::error::{Result, bail, internal};
use crate::ip::Cidr;

const NAME: &str = "org.fedoraproject.FirewallD1";
const PATH: &str = "/org/fedoraproject/FirewallD1";
const ZONE_INTERFACE: &str = "org.fedoraproject.FirewallD1.zone";
/// The error for a source that the zone has already.
const ALREADY_SET: &str = "ZONE_ALREADY_SET";

pub(super) struct Firewalld<'a> {
    bus: Bus,
    zone: &'a str,
}

impl<'a> Firewalld<'a> {
    /// Connects to the system's bus.
    pub(super) fn connect(zone: &'a str) -> Result<Self> {
        let bus = Bus::connect_system().map_err(internal)?;
        Ok(Self { bus, zone })
    }

    /// Connects, unless firewalld is not on the bus.
    pub(super) fn connect_if_running(zone: &'a str) -> Option<Self> {
        let mut firewalld = Self::connect(zone).ok()?;
        let query = Call::to_bus("GetNameOwner", &[NAME]);
        firewalld.bus.call(&query).ok()?;
        Some(firewalld)
    }

    pub(super) fn add(&mut self, addresses: &[Cidr]) -> Result<()> {
        for address in addresses {
            match self.call("addSource", *address) {
                Err(error) if !error.contains(ALREADY_SET) => {
                    bail!(
                        "failed to add the address {address} to {} zone: {error}",
                        self.zone
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the addresses from the zone; those that it has not are errors that say nothing.
    pub(super) fn del(&mut self, addresses: &[Cidr]) {
        for address in addresses {
            let _ = self.call("removeSource", *address);
        }
    }

    pub(super) fn check(&mut self, addresses: &[Cidr]) -> Result<()> {
        for address in addresses {
            let is_there = self
                .call("querySource", *address)
                .is_ok_and(|reply| reply.is_true());
            if !is_there {
                bail!("failed to find the address {address} in {} zone", self.zone);
            }
        }
        Ok(())
    }

    fn call(&mut self, method: &str, address: Cidr) -> std::result::Result<Reply, String> {
        self.bus.call(&Call {
            destination: NAME,
            path: PATH,
            interface: ZONE_INTERFACE,
            method,
            arguments: &[self.zone, &address.to_string()],
        })
    }
}
