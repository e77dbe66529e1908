//! The configuration of dummy.

use serde::Deserialize;

use crate::call::Call;
use crate::config::IpamConfig;
use crate::error::{Result, bail};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) ipam: IpamConfig,
}

/// Reads the configuration. Without addresses, the interface would be of no use.
pub(crate) fn load(call: &Call) -> Result<Config> {
    let config: Config = call.config()?;
    if !config.ipam.is_set() {
        bail!("dummy interface requires an IPAM configuration");
    }
    Ok(config)
}
