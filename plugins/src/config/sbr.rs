//! The configuration of sbr.

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// A table that has its routes already: only rules are made.
    pub(crate) table: Option<u32>,
}
