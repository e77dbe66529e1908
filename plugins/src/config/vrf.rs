//! The configuration of vrf.

use serde::Deserialize;

use crate::call::Call;
use crate::error::{Result, bail};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    #[serde(rename = "vrfname")]
    pub(crate) name: String,
    /// The routing table; 0 for one that is free.
    pub(crate) table: u32,
}

impl Config {
    /// Reads the configuration of a call.
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let config: Self = call.config()?;
        if config.name.is_empty() {
            bail!("configuration is expected to have a valid vrf name");
        }
        Ok(config)
    }
}
