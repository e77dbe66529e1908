//! The report of one node about the definitions that it can serve: `multus-daemon networks --json` prints it and `kubectl multus` reads it.

use serde::{Deserialize, Serialize};

/// Raised by every change that gives an existing field another meaning.
pub const SCHEMA: u32 = 1;

/// The complete report. Readers ignore fields that they do not know: a newer daemon added them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworksReport {
    /// The version, which is [`SCHEMA`].
    pub schema: u32,
    /// The program's version.
    pub version: String,
    /// The definitions of the cluster in the order of their names.
    pub networks: Vec<Network>,
    /// The attachments that were made since the daemon was started, and are still there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attached>,
}

/// How long an ADD took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    /// The pod as `namespace/name`.
    pub pod: String,
    /// The interface in the pod.
    pub interface: String,
    /// The time of all plugins of the network.
    pub milliseconds: u64,
}

/// One definition on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// The definition as `namespace/name`.
    pub network: String,
    /// Whether pods of the node can have it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Whether a node can serve a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "reason")]
pub enum Verdict {
    /// The node has all that the plugins need, or they make it.
    Serves,
    /// A pod would fail; the sentence says what is missing.
    Cannot(String),
    /// Nothing is known to be missing; the sentence says what could not be found out.
    Unknown(String),
}

impl Verdict {
    /// Returns the word of the state.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Serves => "serves",
            Self::Cannot(_) => "cannot",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the reason; empty for a network that is served.
    pub fn reason(&self) -> &str {
        match self {
            Self::Serves => "",
            Self::Cannot(reason) | Self::Unknown(reason) => reason,
        }
    }
}
