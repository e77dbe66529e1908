//! The configuration of tap.

use cni::types::Dns;
use serde::Deserialize;

use crate::call::Call;
use crate::config::{IpamConfig, Mac, parse_requested_mac};
use crate::error::{Result, failure};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    #[serde(rename = "multiqueue")]
    pub(crate) multi_queue: bool,
    pub(crate) mtu: i64,
    pub(crate) mac: String,
    /// The ids of those who may attach to the device.
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
    #[serde(rename = "selinuxcontext")]
    pub(crate) selinux_context: String,
    /// The bridge in the container that the device becomes a port of.
    pub(crate) bridge: String,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: Dns,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: Mac,
}

impl Config {
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let mut config: Self = call.config()?;
        if let Some(mac) = std::mem::take(&mut config.runtime).or_args(call)? {
            config.mac = mac;
        }
        Ok(config)
    }

    /// Returns the hardware address; without one, the kernel chooses.
    pub(crate) fn parse_mac(&self) -> Result<Option<Vec<u8>>> {
        if self.mac.is_empty() {
            return Ok(None);
        }
        parse_requested_mac(&self.mac).map(Some)
    }

    /// Returns the MTU; without one, the device has the kernel's.
    pub(crate) fn parse_mtu(&self) -> Result<Option<u32>> {
        match u32::try_from(self.mtu) {
            Ok(0) => Ok(None),
            Ok(mtu) => Ok(Some(mtu)),
            Err(_) => Err(failure!("invalid MTU {}", self.mtu)),
        }
    }
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    config.parse_mac()?;
    config.parse_mtu().map(|_| ())
}
