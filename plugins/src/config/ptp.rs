//! The configuration of ptp.

use serde::Deserialize;

use crate::call::Call;
use crate::config::{DnsConfig, IpamConfig, Masquerade};
use crate::error::Result;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) mtu: i64,
    #[serde(flatten)]
    pub(crate) masquerade: Masquerade,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: DnsConfig,
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    config.ipam.require()?;
    config.masquerade.check()
}
