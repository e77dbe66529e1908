//! The configuration of vlan.

use cni::types::Dns;
use serde::Deserialize;

use crate::call::Call;
use crate::config::IpamConfig;
use crate::error::{Result, bail, failure};

/// The highest id; 4095 is reserved.
pub(crate) const MAX_ID: i64 = 4094;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// The link below.
    pub(crate) master: String,
    #[serde(rename = "vlanid")]
    pub(crate) vlan_id: i64,
    pub(crate) mtu: i64,
    /// Whether `master` is in the container.
    #[serde(rename = "linkincontainer")]
    pub(crate) link_in_container: bool,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: Dns,
}

impl Config {
    /// Returns the id, when the keys that need no link are right.
    pub(crate) fn id(&self) -> Result<u16> {
        if self.master.is_empty() {
            bail!(
                "\"master\" field is required. It specifies the host interface name to create the VLAN for"
            );
        }
        self.allowed_id().ok_or_else(|| {
            failure!(
                "invalid VLAN ID {} (must be between 0 and 4095 inclusive)",
                self.vlan_id
            )
        })
    }

    fn allowed_id(&self) -> Option<u16> {
        let id = u16::try_from(self.vlan_id).ok();
        id.filter(|_| self.vlan_id <= MAX_ID)
    }
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    // The text of the plugin is the reference's, whose number it refuses.
    if !config.master.is_empty() && config.allowed_id().is_none() {
        bail!(
            "invalid VLAN ID {} (must be between 0 and {MAX_ID})",
            config.vlan_id
        );
    }
    config.id().map(|_| ())
}
