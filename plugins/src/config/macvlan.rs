//! The configuration of macvlan.

use cni::types::Dns;
use serde::Deserialize;

use crate::call::Call;
use crate::config::{IpamConfig, parse_mac};
use crate::error::{Failure, Result};

/// The configuration.
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
    pub(crate) runtime: RuntimeConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RuntimeConfig {
    pub(crate) mac: String,
}

/// The modes, with the kernel's numbers (`linux/if_link.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Private = 1,
    Vepa = 2,
    Bridge = 4,
    Passthru = 8,
}

impl Mode {
    const ALL: [(Self, &str); 4] = [
        (Self::Bridge, "bridge"),
        (Self::Private, "private"),
        (Self::Vepa, "vepa"),
        (Self::Passthru, "passthru"),
    ];

    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::Bridge);
        }
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(mode, _)| *mode)
            .ok_or_else(|| Failure::internal(format!("unknown macvlan mode: {text:?}")))
    }

    pub(crate) fn name(number: u32) -> String {
        Self::ALL
            .iter()
            .find(|(mode, _)| *mode as u32 == number)
            .map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
    }
}

impl Config {
    /// Takes the hardware address of the runtime, which comes before that of `CNI_ARGS`, and that before the configuration's.
    pub(crate) fn choose_mac(&mut self, call: &Call) -> Result<()> {
        let args = call.known_args(&["MAC"])?;
        let of_args = args.get("MAC").unwrap_or_default().to_owned();
        for mac in [of_args, std::mem::take(&mut self.runtime.mac)] {
            if !mac.is_empty() {
                self.mac = mac;
            }
        }
        Ok(())
    }

    /// Returns the hardware address; empty lets the kernel choose one.
    pub(crate) fn mac_bytes(&self) -> Result<Vec<u8>> {
        let text = &self.mac;
        if text.is_empty() {
            return Ok(Vec::new());
        }
        parse_mac(text).ok_or_else(|| {
            Failure::internal(format!(
                "invalid args {text} for MAC addr: address {text}: invalid MAC address"
            ))
        })
    }
}

/// Fails for a configuration that the plugin refuses before it touches anything.
pub(crate) fn check(call: &Call) -> Result<()> {
    let mut config: Config = call.config()?;
    if config.mtu < 0 {
        return Err(Failure::internal(format!("invalid MTU {}", config.mtu)));
    }
    config.choose_mac(call)?;
    Mode::parse(&config.mode)?;
    config.mac_bytes().map(|_| ())
}
