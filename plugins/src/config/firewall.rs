//! The configuration of firewall.

use serde::Deserialize;

use crate::call::Call;
use crate::error::{Result, failure};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// `iptables` or `firewalld`; otherwise firewalld, when it runs.
    pub(crate) backend: String,
    /// The chain of the administrator, through which packets go before the rules of containers.
    #[serde(rename = "iptablesadminchainname")]
    pub(crate) admin_chain: String,
    /// The zone of firewalld that gets the addresses.
    #[serde(rename = "firewalldzone")]
    pub(crate) zone: String,
    /// Which connections to the container are let through.
    #[serde(rename = "ingresspolicy")]
    pub(crate) ingress_policy: String,
}

impl Config {
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let mut config: Self = call.config()?;
        if config.admin_chain.is_empty() {
            "CNI-ADMIN".clone_into(&mut config.admin_chain);
        }
        if config.zone.is_empty() {
            "trusted".clone_into(&mut config.zone);
        }
        Ok(config)
    }
}

/// Which connections to the container are let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// All.
    Open,
    /// Those from the same bridge.
    SameBridge,
    /// Those from no bridge.
    Isolated,
}

impl Policy {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "" | "open" => Ok(Self::Open),
            "same-bridge" => Ok(Self::SameBridge),
            "isolated" => Ok(Self::Isolated),
            _ => Err(failure!("unknown ingress policy: {text:?}")),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::SameBridge => "same-bridge",
            Self::Isolated => "isolated",
        }
    }
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let config = Config::load(call)?;
    Policy::parse(&config.ingress_policy).map(|_| ())
}
