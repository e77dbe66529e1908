//! What is to be said of an object, from a hint to what keeps a pod from its networks.

use std::fmt;

use plan::PlanError;
use serde::{Serialize, Serializer};

use crate::ipam;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Could not be judged here.
    Note,
    /// Works, and is hardly meant.
    Warning,
    /// A pod will not get what it asks for.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One thing that is wrong, or cannot be known. The texts say what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Remark {
    /// In the daemon's own words.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// What a pod starts without.
    #[error("{0}; the pod starts without it, and an event says so")]
    NotServed(PlanError),
    /// The definition may be in the cluster.
    #[error(
        "network {namespace}/{name} is not among these files: it has to be in the cluster (--cluster looks){}",
        did_you_mean(similar.as_deref())
    )]
    NotAmongFiles {
        namespace: String,
        name: String,
        /// A definition of that namespace with a similar name.
        similar: Option<String>,
    },
    /// The definition does not exist, but one with a similar name does.
    #[error("{error}{}", did_you_mean(Some(similar)))]
    SimilarName { error: PlanError, similar: String },
    /// A key of the annotation's JSON form which the daemon does not read.
    #[error(
        "annotation {annotation}: key \"{key}\" of entry {entry} is not read{}",
        did_you_mean(*meant)
    )]
    UnknownKey {
        annotation: &'static str,
        entry: usize,
        key: String,
        meant: Option<&'static str>,
    },
    /// A plugin type that is nearly the name of a common plugin.
    #[error("plugin type \"{kind}\" is not a common one: did you mean \"{meant}\"?")]
    SimilarPlugin { kind: String, meant: &'static str },
    /// Subnets, ranges, gateways and fixed addresses of the definition.
    #[error("{}", .0.text)]
    Ipam(ipam::Problem),
    /// A fixed address that the network does not give out.
    #[error(
        "address {address} is outside what network {network} gives out ({ranges}): choose one inside, or change the definition's ipam"
    )]
    OutsideRange {
        address: String,
        network: String,
        ranges: String,
    },
    /// A fixed address that two pods request.
    #[error("address {address} of network {network} is also requested by {other}: choose another")]
    AddressTwice {
        address: String,
        network: String,
        other: String,
    },
    /// A fixed address in the template of several pods.
    #[error(
        "address {address} of network {network} is requested by each of {replicas} replicas, and only one can have it: leave \"ips\" out, or run one replica"
    )]
    AddressOfReplicas {
        address: String,
        network: String,
        replicas: u64,
    },
    /// Only a node could tell.
    #[error(
        "spec.config is empty: every node needs a configuration named \"{name}\" in {dir}, or, with legacyNetworksAnnotation, a plugin of that name"
    )]
    OnEachNode { name: String, dir: String },
    /// A definition with a version that no daemon understands.
    #[error("cniVersion {version} is not understood: write one of {known}")]
    Version { version: String, known: String },
    /// The API server takes text alone.
    #[error(
        "spec.config must be text, the API server refuses anything else: put the JSON in quotes, or write `config: |` and indent it"
    )]
    ConfigNoText,
    /// Another group or version of a kind of that name.
    #[error("apiVersion is \"{found}\", but Multus reads k8s.cni.cncf.io/v1 alone: write that")]
    ApiVersion { found: String },
    /// The short form of an annotation cannot name it.
    #[error(
        "the annotation's short form cannot name it ({reason}): rename it, or have pods name it in the JSON form"
    )]
    Unspeakable { reason: String },
    /// An annotation that nobody reads.
    #[error("annotation {key} is read by nobody: did you mean {meant}?")]
    Misspelt { key: String, meant: &'static str },
    /// An annotation of the controller instead of its pods.
    #[error(
        "annotation {key} is on the {kind} itself, where nobody reads it: move it to its pod template's metadata.annotations"
    )]
    Misplaced { key: String, kind: String },
    /// Such a pod never gets a network.
    #[error(
        "hostNetwork is true, and such a pod gets no network at all: remove hostNetwork, or annotation {key}"
    )]
    HostNetwork { key: &'static str },
    /// The annotation of the original proposal, where it may not count.
    #[error(
        "annotation {} counts only where the daemon has legacyNetworksAnnotation: use {}",
        plan::LEGACY_ANNOTATION,
        plan::NETWORKS_ANNOTATION
    )]
    Legacy,
    /// Two networks want one interface.
    #[error(
        "interface {interface} of network {network} is taken by a network before it: choose another, or leave it out"
    )]
    SameInterface { interface: String, network: String },
    /// The same object twice.
    #[error("it is defined more than once, here and in {other}: keep one")]
    Twice { other: String },
    /// What is no YAML or JSON.
    #[error("{0}")]
    Unreadable(String),
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

impl Remark {
    /// How bad it is.
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::OnEachNode { .. } => Severity::Note,
            Self::Ipam(problem) if !problem.is_refused => Severity::Warning,
            Self::NotServed(_)
            | Self::NotAmongFiles { .. }
            | Self::UnknownKey { .. }
            | Self::SimilarPlugin { .. }
            | Self::Unspeakable { .. }
            | Self::Legacy
            | Self::Twice { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl Serialize for Remark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_stand_in_columns() {
        assert_eq!(format!("{:<8}|", Severity::Error), "error   |");
    }
}
