//! The configuration of dhcp.

use serde::Deserialize;

use crate::call::Call;
use crate::error::Result;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) ipam: Ipam,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ipam {
    #[serde(rename = "daemonsocketpath")]
    pub(crate) socket: String,
    pub(crate) provide: Vec<Provide>,
    pub(crate) request: Vec<Request>,
    /// Whether servers must broadcast their replies.
    pub(crate) broadcast: bool,
    /// The metric of the routes; 0 is the kernel's default.
    pub(crate) priority: i64,
    /// Whether the server's gateway and default route are left out.
    #[serde(rename = "skipdefault")]
    pub(crate) skip_default: bool,
}

/// An option that the server gets.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Provide {
    pub(crate) option: String,
    pub(crate) value: String,
    /// The key of `CNI_ARGS` that has the value.
    pub(crate) fromarg: String,
}

/// An option that the server is to send.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    pub(crate) skipdefault: bool,
    pub(crate) option: String,
}

pub(crate) fn load(call: &Call) -> Result<Ipam> {
    let config: Config = call.config()?;
    Ok(config.ipam)
}
