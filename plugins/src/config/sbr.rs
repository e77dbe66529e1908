//! The configuration of sbr.

use serde::Deserialize;

use crate::call::Call;
use crate::error::Result;

/// The configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// A table that has its routes already: only rules are made.
    pub(crate) table: Option<u32>,
}

/// Fails for a configuration that the plugin refuses before it touches anything.
pub(crate) fn check(call: &Call) -> Result<()> {
    call.config::<Config>().map(|_| ())
}
