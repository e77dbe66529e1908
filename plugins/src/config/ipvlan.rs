//! The configuration of ipvlan.

use cni::types::Dns;
use serde::Deserialize;

use crate::call::Call;
use crate::config::{IpamConfig, Modes};
use crate::error::Result;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// The link below; when empty, the interface of the previous result or the link of the default route.
    pub(crate) master: String,
    /// `l2` when empty.
    pub(crate) mode: String,
    pub(crate) mtu: i64,
    /// Whether `master` is in the container.
    #[serde(rename = "linkincontainer")]
    pub(crate) link_in_container: bool,
    pub(crate) ipam: IpamConfig,
    pub(crate) dns: Dns,
}

pub(crate) const MODES: Modes = Modes {
    kind: "ipvlan",
    all: &[("l2", 0), ("l3", 1), ("l3s", 2)],
};

pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    MODES.parse(&config.mode).map(|_| ())
}
