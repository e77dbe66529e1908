//! The configuration of host-device.

use cni::types::Dns;
use serde::Deserialize;

use crate::call::Call;
use crate::config::{IpamConfig, parse_mac};
use crate::error::{Result, failure};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// The link's name on the host.
    pub(crate) device: String,
    pub(crate) hwaddr: String,
    /// The device's directory below `/sys/devices`.
    pub(crate) kernelpath: String,
    #[serde(rename = "pcibusid")]
    pub(crate) pci_address: String,
    /// Whether user space has the device; found out where the PCI address is known.
    #[serde(rename = "dpdkmode")]
    pub(crate) dpdk_mode: bool,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: Dns,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: RuntimeConfig,
    /// The name on the auxiliary bus, where the runtime's device is there.
    #[serde(skip)]
    pub(crate) auxiliary: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RuntimeConfig {
    /// A PCI address, or the name of an auxiliary device.
    #[serde(rename = "deviceid")]
    pub(crate) device_id: String,
}

impl Config {
    /// Returns the hardware address.
    pub(crate) fn parse_hwaddr(&self) -> Result<Vec<u8>> {
        parse_mac(&self.hwaddr).ok_or_else(|| {
            failure!(
                "failed to parse MAC address {0:?}: address {0}: invalid MAC address",
                self.hwaddr
            )
        })
    }

    /// Fails when the device's directory is elsewhere.
    pub(crate) fn check_kernelpath(&self) -> Result<()> {
        if self.kernelpath.starts_with("/sys/devices/") {
            return Ok(());
        }
        Err(failure!(
            "kernel device path {:?} must be absolute and begin with /sys/devices/",
            self.kernelpath
        ))
    }
}

pub(crate) fn check(call: &Call) -> Result<()> {
    // The runtime may name the device: a configuration without one is not wrong.
    let config: Config = call.config()?;
    if !config.device.is_empty() {
        return Ok(());
    }
    if !config.hwaddr.is_empty() {
        return config.parse_hwaddr().map(|_| ());
    }
    if config.kernelpath.is_empty() {
        return Ok(());
    }
    config.check_kernelpath()
}
