//! The files by which the commands of one node know of each other: the state of the VPN that `vpn run` writes, and its record.

use serde::{Deserialize, Serialize};

use crate::{
    Facts, Prefix,
    peers::{Assignment, Other},
    provider::Selection,
    routes::Remembered,
};

/// The directory of what ends with a boot; root's alone.
pub const RUN_DIR: &str = "/run/multus-vpn";
/// The directory of what outlives a boot; root's alone.
pub const LIB_DIR: &str = "/var/lib/multus-vpn";
/// The file of the state, in [`RUN_DIR`].
pub const STATE: &str = "state.json";
/// The file with the hook's note, in [`RUN_DIR`].
pub const NOTE: &str = "flannel.json";
/// The file of the record, in [`LIB_DIR`].
pub const RECORD: &str = "record.json";
/// flannel's configuration, in [`LIB_DIR`].
pub const NET_CONF: &str = "net-conf.json";

/// The version of these files.
const SCHEMA: u32 = 1;

/// The facts that must outlive a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// The version of the file.
    schema: u32,
    /// The VPN that all else is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub selection: Selection,
    /// This program brought the VPN up, so it takes it down.
    pub brought_up: bool,
    /// This program keeps the sources of packets to pods.
    pub kept_sources: bool,
    /// This program had the routes of other nodes installed.
    pub accepted_routes: bool,
    pub routes: Remembered,
    /// The other nodes, and what their subnets gave to peers of this node's interface.
    #[serde(default, skip_serializing_if = "is_default")]
    pub others: Vec<Other>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub assigned: Vec<Assignment>,
}

/// Returns whether a record needs no such field, so that releases that do not know it read it as well.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for Record {
    fn default() -> Self {
        Self::of(Selection::default())
    }
}

impl Record {
    /// Returns the record of a VPN to which nothing was done.
    pub fn of(selection: Selection) -> Self {
        Self {
            schema: SCHEMA,
            selection,
            brought_up: false,
            kept_sources: false,
            accepted_routes: false,
            routes: Remembered::default(),
            others: Vec::new(),
            assigned: Vec::new(),
        }
    }
}

/// The VPN at the last look of `vpn run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The version of the file.
    schema: u32,
    /// The VPN.
    #[serde(default)]
    pub selection: Selection,
    /// The interface and addresses, while the VPN runs.
    pub node: Option<Facts>,
    /// The problem that keeps the VPN from running, with its cure.
    pub problem: Option<String>,
    /// Findings that deserve attention although the VPN runs.
    pub notes: Vec<String>,
    /// The routes of this node's pods that are advertised.
    pub advertised: Vec<Prefix>,
    /// Those of them that are not approved.
    pub pending: Vec<Prefix>,
    /// The ranges of the LAN that have a rule.
    pub lan: Vec<Prefix>,
    /// The subnets of other nodes' pods that have a route of this program.
    #[serde(default)]
    pub pods: Vec<Prefix>,
    /// This node's public key, for the other nodes.
    #[serde(default)]
    pub key: Option<String>,
}

impl State {
    /// Returns the state of a VPN that runs.
    pub fn running(facts: &Facts) -> Self {
        Self {
            schema: SCHEMA,
            node: Some(facts.clone()),
            ..Self::default()
        }
    }

    /// Returns the state of a VPN that does not run.
    pub fn missing(problem: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA,
            problem: Some(problem.into()),
            ..Self::default()
        }
    }
}

/// A file of this node that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not in the form that this program writes.
    #[error("cannot read {name}: {source}")]
    Form {
        /// The file.
        name: &'static str,
        /// The place and the cause.
        source: serde_json::Error,
    },
    /// A newer release wrote it.
    #[error(
        "{name} has schema {schema}, and this release knows {SCHEMA}: use the newer multus-distro"
    )]
    Newer {
        /// The file.
        name: &'static str,
        /// Its version.
        schema: u32,
    },
}

pub fn read_record(bytes: &[u8]) -> Result<Record, FileError> {
    parse(RECORD, bytes)
}

pub fn read_state(bytes: &[u8]) -> Result<State, FileError> {
    parse(STATE, bytes)
}

fn parse<T: for<'a> Deserialize<'a>>(name: &'static str, bytes: &[u8]) -> Result<T, FileError> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let form = |source| FileError::Form { name, source };
    let Version { schema } = serde_json::from_slice(bytes).map_err(form)?;
    if schema != SCHEMA {
        return Err(FileError::Newer { name, schema });
    }
    serde_json::from_slice(bytes).map_err(form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addresses;

    #[test]
    fn files_are_read_as_they_are_written() {
        let facts = Facts {
            interface: "ts7".to_owned(),
            addresses: Addresses {
                ipv4: Some([100, 64, 0, 2].into()),
                ipv6: None,
            },
            dns_name: Some("a.example".to_owned()),
            mtu: 1280,
            ranges: Vec::new(),
        };
        let mut state = State::running(&facts);
        state.pending = vec!["10.42.1.0/24".parse().unwrap()];
        let read = read_state(&serde_json::to_vec(&state).unwrap()).unwrap();
        assert_eq!(read, state);
        assert_eq!(read.node, Some(facts));
        let record = Record {
            brought_up: true,
            ..Record::default()
        };
        let bytes = serde_json::to_vec(&record).unwrap();
        assert_eq!(read_record(&bytes).unwrap(), record);
    }

    #[test]
    fn files_of_a_newer_release_are_refused() {
        let error = read_record(br#"{"schema": 2, "new": true}"#).unwrap_err();
        assert!(error.to_string().contains("use the newer"), "{error}");
        assert!(read_state(b"{").is_err());
    }
}
