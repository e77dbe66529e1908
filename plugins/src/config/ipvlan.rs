//! The configuration of ipvlan.

use cni::types::Dns;
use serde::Deserialize;

use crate::call::Call;
use crate::config::IpamConfig;
use crate::error::{Failure, Result};

/// The configuration.
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

/// The modes, with the kernel's numbers (`linux/if_link.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    L2 = 0,
    L3 = 1,
    L3s = 2,
}

impl Mode {
    const ALL: [(Self, &str); 3] = [(Self::L2, "l2"), (Self::L3, "l3"), (Self::L3s, "l3s")];

    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::L2);
        }
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(mode, _)| *mode)
            .ok_or_else(|| Failure::internal(format!("unknown ipvlan mode: {text:?}")))
    }

    pub(crate) fn name(number: u16) -> String {
        Self::ALL
            .iter()
            .find(|(mode, _)| *mode as u16 == number)
            .map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
    }
}

/// Fails for a configuration that the plugin refuses before it touches anything.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    Mode::parse(&config.mode).map(|_| ())
}
