//! The sidecar `<cniDir>/.multus-rs/<containerID>.json`: what upstream's file has no place for, bound to that file by a digest.
//! It holds complete configurations, too, so that damage to upstream's file loses nothing.
//!
//! Unknown fields are ignored, unlike in other files of ours: a daemon that was rolled back has to read what a newer one wrote. A change to
//! the meaning of known fields raises the schema.

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

/// Stands for the boot id in a record of an earlier boot that is written again.
const EARLIER_BOOT: &str = "";
/// The unit that every disk writes atomically, in bytes.
const SECTOR: usize = 512;
/// The beginning of an entry, up to the word for its progress.
const BEFORE_WORD: &str = "{\"progress\":\"";
/// The beginning of the field that says that a status is pending, up to its word.
const BEFORE_PENDING: &str = ",\"untold\":";
/// The words of a field that changes have the same length, so one can replace the other in a file that is on disk already.
const PENDING: &str = "true ";
const NOT_PENDING: &str = "false";
const PLANNED: &str = "planned";
const STARTED: &str = "started";

/// The file's content; the delegates come last.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sidecar {
    schema: u32,
    /// The boot of the kernel in which this was written. A power cut may take later progress, so in another boot everything planned counts
    /// as started. In a record without one, every step was synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    /// The process of the daemon that wrote this; its plugins may outlive it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) daemon: Option<String>,
    sha256: String,
    /// The digest of the upstream file that is about to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256_before: Option<String>,
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
    netns: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netns_process: Option<u64>,
    pod: PodRef,
    #[serde(rename = "untold", default, skip_serializing)]
    status_pending: bool,
    /// Is valid only in the boot in which it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failing_since: Option<u64>,
    #[serde(skip_serializing)]
    delegates: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// Comes first, so that its position in the file is known.
    progress: Progress,
    name: String,
    ifname: String,
    requested: Requested,
    capability_args: Map<String, Value>,
    config: String,
    /// The displaced routes, in the form of a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    displaced: Option<CniResult>,
}

/// An encoded sidecar.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    /// The offset of the word for each delegate's progress.
    words: Vec<usize>,
}

impl Encoded {
    /// Returns what changes in the file when a planned delegate is started: the new bytes, all in one sector, and their offset.
    pub(super) fn start(&self, delegate: usize) -> Option<(&'static [u8], u64)> {
        let at = *self.words.get(delegate)?;
        let word = self.bytes.get(at..at + PLANNED.len())?;
        (word == PLANNED.as_bytes()).then_some((STARTED.as_bytes(), at as u64))
    }
}

/// Encodes the sidecar of `state` for an upstream file with this content, and for the one that it is to replace.
pub(super) fn encode(
    state: &State,
    upstream_file: &[u8],
    before: Option<&[u8]>,
    boot: Option<&str>,
    daemon: Option<&str>,
) -> Encoded {
    let boot = if state.rebooted {
        Some(EARLIER_BOOT)
    } else {
        boot
    };
    let sidecar = Sidecar {
        schema: SCHEMA,
        boot: boot.map(str::to_owned),
        daemon: daemon.map(str::to_owned),
        sha256: digest(upstream_file),
        sha256_before: before.map(digest),
        container_id: state.container_id.to_string(),
        ifname: state.ifname.to_string(),
        netns: state.netns.clone(),
        netns_process: state.netns_process,
        pod: state.pod.clone(),
        status_pending: state.status_pending,
        failing_since: state.failing_since,
        delegates: Vec::new(),
    };
    let mut bytes = json(&sidecar);
    bytes.pop();
    if state.status_pending {
        blanks_until_in_one_sector(&mut bytes, BEFORE_PENDING.len(), PENDING.len());
        bytes.extend(BEFORE_PENDING.bytes().chain(PENDING.bytes()));
    }
    bytes.extend(b",\"delegates\":[");
    let mut words = Vec::with_capacity(state.delegates.len());
    for (index, delegate) in state.delegates.iter().enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        blanks_until_in_one_sector(&mut bytes, BEFORE_WORD.len(), PLANNED.len());
        words.push(bytes.len() + BEFORE_WORD.len());
        bytes.extend(json(&entry(delegate)));
    }
    bytes.extend(b"]}");
    Encoded { bytes, words }
}

/// Appends blanks until a word of `length` bytes lies in one sector when `before` bytes precede it.
fn blanks_until_in_one_sector(bytes: &mut Vec<u8>, before: usize, length: usize) {
    let is_split = |at: usize| at / SECTOR != (at + length - 1) / SECTOR;
    while is_split(bytes.len() + before) {
        bytes.push(b' ');
    }
}

/// Returns what changes in a file once its status is not pending any more: the new bytes, all in one sector, and their offset. No other place of
/// the file has these bytes, since quotes in a JSON string are escaped.
pub(super) fn not_pending(file: &[u8]) -> Option<(&'static [u8], u64)> {
    let field = [BEFORE_PENDING, PENDING].concat();
    let at = file
        .windows(field.len())
        .position(|window| window == field.as_bytes())?;
    Some((NOT_PENDING.as_bytes(), (at + BEFORE_PENDING.len()) as u64))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain values always serialise")
}

impl Sidecar {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let sidecar: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if sidecar.schema != SCHEMA {
            return Err(format!("schema {} is not {SCHEMA}", sidecar.schema));
        }
        Ok(sidecar)
    }

    /// Returns whether it was written for an upstream file with this content.
    pub(super) fn belongs_to(&self, id: &ContainerId, upstream_file: &[u8]) -> bool {
        let digest = digest(upstream_file);
        self.is_of(id) && (self.sha256 == digest || self.sha256_before.as_ref() == Some(&digest))
    }

    pub(super) fn is_of(&self, id: &ContainerId) -> bool {
        self.container_id == id.as_str()
    }

    /// Returns whether it was written in an earlier boot of the kernel.
    pub(super) fn is_of_earlier_boot(&self, boot: Option<&str>) -> bool {
        match (self.boot.as_deref(), boot) {
            (None, _) => false,
            (Some(EARLIER_BOOT), _) => true,
            (Some(then), now) => now.is_some_and(|now| now != then),
        }
    }

    /// Returns the complete state that it holds.
    pub(super) fn into_state(self, id: &ContainerId, boot: Option<&str>) -> Result<State, String> {
        let rebooted = self.is_of_earlier_boot(boot);
        let delegate = |entry| {
            let mut delegate = delegate(entry)?;
            if rebooted && delegate.progress == Progress::Planned {
                delegate.progress = Progress::Started;
            }
            Ok::<_, String>(delegate)
        };
        Ok(State {
            container_id: id.clone(),
            ifname: self.ifname.parse().map_err(text)?,
            netns: self.netns,
            netns_process: self.netns_process,
            pod: self.pod,
            delegates: self
                .delegates
                .into_iter()
                .map(delegate)
                .collect::<Result<_, _>>()?,
            status_pending: self.status_pending,
            failing_since: self.failing_since.filter(|_| !rebooted),
            rebooted,
        })
    }
}

fn entry(delegate: &Delegate) -> Entry {
    Entry {
        progress: delegate.progress,
        name: delegate.name.clone(),
        ifname: delegate.ifname.to_string(),
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
        config: NetworkConfig::parse(&bytes).map_err(text)?.into(),
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
