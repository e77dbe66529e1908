//! The file `<cniDir>/.multus-rs/<containerID>.json`: what upstream's file has no place for, bound to it by a digest.
//! It holds complete configurations too, so that a damaged upstream file loses nothing.
//!
//! Fields that are not known are passed over, unlike in other files of ours: a daemon that was rolled back has to read what
//! a newer one wrote. What changes the meaning of known fields raises the schema.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cni::config::NetworkConfig;
use cni::env::ContainerId;
use cni::types::CniResult;
use cni::version::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{Delegate, PodRef, Progress, Requested, State, upstream};

const SCHEMA: u32 = 1;

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sidecar {
    schema: u32,
    sha256: String,
    /// Of the file that is about to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256_before: Option<String>,
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
    netns: Option<String>,
    pod: PodRef,
    delegates: Vec<Entry>,
    #[serde(default, skip_serializing_if = "super::is_false")]
    untold: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    ifname: String,
    progress: Progress,
    requested: Requested,
    capability_args: Map<String, Value>,
    config: String,
    /// In the form of results, routes alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    displaced: Option<CniResult>,
}

/// Writes the sidecar of `state` for an upstream file with this content, and for the one that this is to replace.
pub(super) fn encode(state: &State, upstream_file: &[u8], before: Option<&[u8]>) -> Vec<u8> {
    let sidecar = Sidecar {
        schema: SCHEMA,
        sha256: digest(upstream_file),
        sha256_before: before.map(digest),
        container_id: state.container_id.to_string(),
        ifname: state.ifname.to_string(),
        netns: state.netns.clone(),
        pod: state.pod.clone(),
        delegates: state.delegates.iter().map(entry).collect(),
        untold: state.untold,
    };
    serde_json::to_vec(&sidecar).expect("plain values always serialise")
}

impl Sidecar {
    /// Reads a sidecar of this schema.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let sidecar: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if sidecar.schema != SCHEMA {
            return Err(format!("schema {} is not {SCHEMA}", sidecar.schema));
        }
        Ok(sidecar)
    }

    /// Whether it was written for an upstream file with this content.
    pub(super) fn belongs_to(&self, id: &ContainerId, upstream_file: &[u8]) -> bool {
        let digest = digest(upstream_file);
        self.is_of(id) && (self.sha256 == digest || self.sha256_before.as_ref() == Some(&digest))
    }

    /// Whether it was written for this container.
    pub(super) fn is_of(&self, id: &ContainerId) -> bool {
        self.container_id == id.as_str()
    }

    /// The state that it holds, complete in itself.
    pub(super) fn into_state(self, id: &ContainerId) -> Result<State, String> {
        Ok(State {
            container_id: id.clone(),
            ifname: self.ifname.parse().map_err(text)?,
            netns: self.netns,
            pod: self.pod,
            delegates: self
                .delegates
                .into_iter()
                .map(delegate)
                .collect::<Result<_, _>>()?,
            untold: self.untold,
        })
    }
}

fn entry(delegate: &Delegate) -> Entry {
    Entry {
        name: delegate.name.clone(),
        ifname: delegate.ifname.to_string(),
        progress: delegate.progress,
        requested: delegate.requested.clone(),
        capability_args: delegate.capability_args.clone(),
        config: STANDARD.encode(delegate.config.bytes()),
        displaced: (!delegate.displaced.is_empty()).then(|| CniResult {
            cni_version: Version::LATEST.to_string(),
            routes: delegate.displaced.clone(),
            ..CniResult::default()
        }),
    }
}

fn delegate(entry: Entry) -> Result<Delegate, String> {
    let bytes = upstream::from_base64(&entry.config)?;
    Ok(Delegate {
        name: entry.name,
        ifname: entry.ifname.parse().map_err(text)?,
        config: NetworkConfig::parse(&bytes).map_err(text)?,
        requested: entry.requested,
        capability_args: entry.capability_args,
        args: None,
        progress: entry.progress,
        displaced: entry.displaced.map(|of| of.routes).unwrap_or_default(),
    })
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "used as a function of map_err"
)]
fn text(error: impl ToString) -> String {
    error.to_string()
}
