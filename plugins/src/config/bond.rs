//! The configuration of bond.

use cni::types::Dns;
use serde::Deserialize;
use serde_json::Value;

use crate::call::Call;
use crate::config::IpamConfig;
use crate::error::{Result, bail, failure};

/// The modes; the kernel's number is the place.
pub(crate) const MODES: [&str; 7] = [
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
];

/// The modes that can move flows from one link to another.
pub(crate) const DYNAMIC_MODES: [u8; 2] = [5, 6];

/// The policies; the kernel's number is the place.
pub(crate) const HASH_POLICIES: [&str; 6] = [
    "layer2",
    "layer3+4",
    "layer2+3",
    "encap2+3",
    "encap3+4",
    "vlan+srcmac",
];

/// The smallest MTU of IPv4.
pub(crate) const LEAST_MTU: u32 = 68;

/// The configuration as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) mode: String,
    /// How often the links' carriers are looked at, in milliseconds: a number, or one in a string.
    pub(crate) miimon: Value,
    pub(crate) mtu: i64,
    #[serde(rename = "failovermac")]
    pub(crate) fail_over_mac: i64,
    #[serde(rename = "allslavesactive")]
    pub(crate) all_ports_active: Option<i64>,
    #[serde(rename = "tlbdynamiclb")]
    pub(crate) is_dynamic: Option<i64>,
    #[serde(rename = "xmithashpolicy")]
    pub(crate) hash_policy: Option<String>,
    /// Whether the links are in the container.
    #[serde(rename = "linksincontainer")]
    pub(crate) links_in_container: bool,
    pub(crate) links: Vec<Named>,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: Dns,
}

/// A link of the configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Named {
    pub(crate) name: String,
}

/// What the configuration says of the bond itself, in the kernel's numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bond {
    pub(crate) mode: u8,
    pub(crate) miimon: u32,
    pub(crate) mtu: Option<u32>,
    pub(crate) fail_over_mac: u8,
    pub(crate) all_ports_active: Option<u8>,
    pub(crate) is_dynamic: Option<u8>,
    pub(crate) hash_policy: Option<u8>,
}

impl Config {
    /// Checks the configuration.
    pub(crate) fn bond(&self) -> Result<Bond> {
        let mode = place(&MODES, "mode", &self.mode)?;
        if self.links.len() < 2 {
            bail!(
                "a bond needs two links or more, \"links\" has {}",
                self.links.len()
            );
        }
        if self.links.iter().any(|link| link.name.is_empty()) {
            bail!("an entry of \"links\" has no \"name\"");
        }
        let miimon = match &self.miimon {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        };
        // The kernel's number has a sign.
        let miimon = miimon.and_then(|number| i32::try_from(number).ok());
        let miimon = miimon.map(i32::cast_unsigned).ok_or_else(|| {
            failure!(
                "\"miimon\" is a number of milliseconds, such as \"100\", not {}",
                self.miimon
            )
        })?;
        if self.is_dynamic.is_some() && !DYNAMIC_MODES.contains(&mode) {
            bail!(
                "\"tlbDynamicLb\" is for the modes balance-tlb and balance-alb, not {}",
                self.mode
            );
        }
        let mtu = u32::try_from(self.mtu)
            .ok()
            .filter(|mtu| *mtu == 0 || *mtu >= LEAST_MTU)
            .ok_or_else(|| failure!("invalid MTU {}: the least is {LEAST_MTU}", self.mtu))?;
        let policy = |name: &String| place(&HASH_POLICIES, "xmitHashPolicy", name);
        let switch = |key, number: Option<i64>| number.map(|number| up_to(1, key, number));
        Ok(Bond {
            mode,
            miimon,
            mtu: Some(mtu).filter(|mtu| *mtu != 0),
            fail_over_mac: up_to(2, "failOverMac", self.fail_over_mac)?,
            all_ports_active: switch("allSlavesActive", self.all_ports_active).transpose()?,
            is_dynamic: switch("tlbDynamicLb", self.is_dynamic).transpose()?,
            hash_policy: self.hash_policy.as_ref().map(policy).transpose()?,
        })
    }
}

/// Returns the place of a name in a list.
fn place(names: &[&str], key: &str, name: &str) -> Result<u8> {
    let place = names.iter().position(|known| *known == name);
    place
        .and_then(|place| u8::try_from(place).ok())
        .ok_or_else(|| failure!("{key:?} is one of {}, not {name:?}", names.join(", ")))
}

/// Returns a number from 0 to the limit.
fn up_to(limit: u8, key: &str, number: i64) -> Result<u8> {
    u8::try_from(number)
        .ok()
        .filter(|number| *number <= limit)
        .ok_or_else(|| failure!("{key:?} is from 0 to {limit}, not {number}"))
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    config.bond().map(|_| ())
}
