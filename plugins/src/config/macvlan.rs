//! The configuration of macvlan.

use cni::types::Dns;
use serde::Deserialize;

use crate::call::Call;
use crate::config::{IpamConfig, Mac, Modes, parse_requested_mac};
use crate::error::{Result, bail};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// The link below; the one of the default route when empty.
    pub(crate) master: String,
    /// How siblings reach each other; `bridge` when empty.
    pub(crate) mode: String,
    pub(crate) mtu: i64,
    pub(crate) mac: String,
    /// Whether `master` is in the container.
    #[serde(rename = "linkincontainer")]
    pub(crate) link_in_container: bool,
    /// The length of the queue for broadcasts; 0 is the kernel's default.
    pub(crate) bcqueuelen: u32,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: Dns,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: Mac,
}

pub(crate) const MODES: Modes = Modes {
    kind: "macvlan",
    all: &[("bridge", 4), ("private", 1), ("vepa", 2), ("passthru", 8)],
};

impl Config {
    /// Takes the hardware address of the runtime, which comes before that of `CNI_ARGS`, and that before the configuration's.
    pub(crate) fn choose_mac(&mut self, call: &Call) -> Result<()> {
        if let Some(mac) = std::mem::take(&mut self.runtime).or_args(call)? {
            self.mac = mac;
        }
        Ok(())
    }

    /// Returns the hardware address; empty lets the kernel choose one.
    pub(crate) fn mac_bytes(&self) -> Result<Vec<u8>> {
        if self.mac.is_empty() {
            return Ok(Vec::new());
        }
        parse_requested_mac(&self.mac)
    }
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let mut config: Config = call.config()?;
    if config.mtu < 0 {
        bail!("invalid MTU {}", config.mtu);
    }
    config.choose_mac(call)?;
    MODES.parse(&config.mode)?;
    config.mac_bytes().map(|_| ())
}
