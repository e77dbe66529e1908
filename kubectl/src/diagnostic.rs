//! Diagnostics: the findings about one object, from a note to an error that keeps a pod from its networks. Their texts end with a hint.

use std::fmt;

use plan::PlanError;
use plugins::config::Fault;
use serde::{Serialize, Serializer};

use crate::address_use::AddressFault;

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// It cannot be validated from a workstation.
    Note,
    /// It works, but probably not as intended.
    Warning,
    /// A pod will not get the networks that it requests.
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

/// One finding about a definition or a pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Diagnostic {
    /// The daemon would refuse the pod with this error.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// No plugin serves a request, and the pod starts without it.
    #[error("{0}; the pod starts without it, and the daemon reports that in an event")]
    UnsupportedRequest(PlanError),
    /// The definition may be in the cluster, which was not read.
    #[error(
        "network {namespace}/{name} is not among these files: it has to be in the cluster (--cluster checks that){}",
        did_you_mean(similar.as_deref())
    )]
    NotAmongFiles {
        namespace: String,
        name: String,
        /// An existing definition with a similar name.
        similar: Option<String>,
    },
    /// The definition does not exist, but one with a similar name does.
    #[error("{error}{}", did_you_mean(Some(similar)))]
    SimilarName { error: PlanError, similar: String },
    /// A key of the annotation's JSON form that the daemon ignores.
    #[error(
        "annotation {annotation}: key \"{key}\" of entry {entry} is ignored{}",
        did_you_mean(*meant)
    )]
    UnknownKey {
        annotation: &'static str,
        /// Counted from 1.
        entry: usize,
        key: String,
        meant: Option<&'static str>,
    },
    /// A plugin type that is similar to the name of a common plugin.
    #[error("plugin type \"{kind}\" is not a common one: did you mean \"{meant}\"?")]
    SimilarPlugin { kind: String, meant: &'static str },
    /// A master whose name is that of a VPN's or tunnel's interface, which carries no Ethernet frames.
    #[error(
        "{kind} builds on Ethernet, and master \"{master}\" has the name of a VPN's or tunnel's interface, which carries none: name another master, or ignore this if that interface has a MAC address"
    )]
    TunnelMaster { kind: String, master: String },
    /// A plugin of somebody else.
    #[error("plugin \"{kind}\" does not come with Multus: every node needs it")]
    ForeignPlugin { kind: String },
    /// The plugin of another project, whose pools a daemon may serve.
    #[error(
        "plugin \"whereabouts\" is served with the value ipam.whereabouts of Multus' chart; without it every node needs its program"
    )]
    PoolsOfWhereabouts,
    /// Keys that only that project's program reads.
    #[error("whereabouts: only its own program reads {}", keys.join(", "))]
    KeysWithoutEffect { keys: Vec<String> },
    /// A key that its plugin ignores, and that is similar to one that it reads.
    #[error("{plugin} ignores key \"{key}\"; did you mean \"{meant}\"?")]
    SimilarKey {
        plugin: String,
        key: String,
        meant: &'static str,
    },
    /// A fault of a configuration, for every pod.
    #[error("{0}")]
    Config(Fault),
    /// A fault of what a pod requests.
    #[error("network {network}: {fault}")]
    Request { network: String, fault: Fault },
    /// A fault of a definition's addresses, for the pods that use it.
    #[error("network-attachment-definition {network}: {fault}")]
    Addresses {
        network: String,
        fault: AddressFault,
    },
    /// Objects of the cluster that the user may not read.
    #[error("{what} of the cluster were not read, so their use of addresses is unknown: {reason}")]
    Unread { what: &'static str, reason: String },
    /// A network that every node that answered lacks something for.
    #[error(
        "no node of the cluster can serve network {network} as it is there; on {node}: {reason} (`kubectl multus networks {network}` has all)"
    )]
    ServedNowhere {
        network: String,
        /// The first of the nodes, with what it lacks.
        node: String,
        reason: String,
    },
    /// A definition whose selector of nodes nobody can read.
    #[error("{reason}")]
    SelectorInvalid { reason: String },
    /// Two networks of a pod whose definitions are for different nodes.
    #[error(
        "network {first} is for nodes with {first_label}, and {second} for those with {second_label}: no node has both, so change a definition or select one of them"
    )]
    SelectorsExclude {
        first: String,
        first_label: String,
        second: String,
        second_label: String,
    },
    /// Daemons that could not be found.
    #[error("which nodes can serve the networks is unknown: {reason}")]
    NodesNotQueried { reason: String },
    /// A name in the annotation's JSON form that was meant for its short form.
    #[error(
        "no name has a '/', as \"{name}\" does: put the namespace in \"namespace\", or write {name} in the short form"
    )]
    NamespaceInName { name: String },
    /// The name of the interface that every pod has.
    #[error("interface lo of network {name} is the pod's loopback interface: choose another name")]
    Loopback { name: String },
    /// An item of the annotation's short form with nothing before '/' or after '@'.
    #[error(
        "\"{item}\" has nothing before '/' or after '@': write what is missing, or remove the character"
    )]
    EmptyPart { item: String },
    /// A fixed address that the network does not assign.
    #[error(
        "address {address} is outside the addresses that network {network} assigns ({ranges}): choose one of them, or change the definition's ipam"
    )]
    OutsideRange {
        address: String,
        network: String,
        ranges: String,
    },
    /// A fixed address that two pods request.
    #[error("address {address} of network {network} is also requested by {other}: choose another")]
    DuplicateAddress {
        address: String,
        network: String,
        other: String,
    },
    /// A fixed address in the template of several pods.
    #[error(
        "address {address} of network {network} is requested by each of {replicas} replicas, but only one of them can have it: leave \"ips\" out, or run one replica"
    )]
    ReplicatedAddress {
        address: String,
        network: String,
        replicas: u64,
    },
    /// The configuration is in files of the nodes, which cannot be read from here.
    #[error(
        "spec.config is empty: every node needs a configuration named \"{name}\" in {dir}, or, with legacyNetworksAnnotation, a plugin of that name"
    )]
    ConfigOnNodes { name: String, dir: String },
    /// A CNI version that no daemon supports.
    #[error("cniVersion {version} is not supported: write one of {known}")]
    UnsupportedVersion { version: String, known: String },
    /// The API server accepts this only as text.
    #[error(
        "{place} must be text: put the JSON in single quotes, or write \"{}: |\" and indent it",
        place.rsplit(['.', '/']).next().unwrap_or(place)
    )]
    NotText { place: String },
    /// The API server refuses an object without a name.
    #[error("metadata.name is missing: write one")]
    NameMissing,
    /// Another API group or version of this kind.
    #[error("apiVersion is \"{found}\", but Multus reads only k8s.cni.cncf.io/v1: write that")]
    ApiVersion { found: String },
    /// The short form of an annotation cannot contain the definition's name.
    #[error(
        "the annotation's short form cannot name it ({reason}): rename it, or have pods name it in the JSON form"
    )]
    NameNeedsJson { reason: String },
    /// An annotation that Multus ignores, with a key similar to one that it reads.
    #[error("Multus ignores annotation {key}: did you mean {meant}?")]
    MisspelledAnnotation { key: String, meant: &'static str },
    /// An annotation in another place than the annotations of the pod or of its template.
    #[error(
        "annotation {key} is {place}, where Multus ignores it: move it to metadata.annotations of the pod or of its pod template"
    )]
    MisplacedAnnotation { key: String, place: String },
    /// A pod on the node's network never gets networks of its own.
    #[error(
        "hostNetwork is true, and such a pod gets no networks: remove hostNetwork, or annotation {key}"
    )]
    HostNetwork { key: &'static str },
    /// The annotation of the original proposal, which this daemon does not read.
    #[error(
        "annotation {} is read only where the daemon has legacyNetworksAnnotation: use {}",
        plan::LEGACY_ANNOTATION,
        plan::NETWORKS_ANNOTATION
    )]
    LegacyAnnotation,
    /// Two networks request one interface name.
    #[error(
        "interface {interface} of network {network} is already used by a network before it: choose another name, or leave it out"
    )]
    DuplicateInterface { interface: String, network: String },
    /// The same object occurs in two places.
    #[error("it is defined more than once, here and in {other}: keep one")]
    DuplicateObject { other: String },
    /// A file or directory in which nothing can be checked.
    #[error("nothing to check: no definition, pod or pod template in it")]
    NothingToCheck,
    /// The document is neither YAML nor JSON, or an object that cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

impl Diagnostic {
    /// Returns the severity; the same for every diagnostic of a variant, except for faults.
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::Addresses { fault, .. } => fault.severity(),
            Self::ConfigOnNodes { .. }
            | Self::ForeignPlugin { .. }
            | Self::Unread { .. }
            | Self::NodesNotQueried { .. }
            | Self::PoolsOfWhereabouts
            | Self::KeysWithoutEffect { .. } => Severity::Note,
            Self::Config(fault) | Self::Request { fault, .. } if fault.is_refused => {
                Severity::Error
            }
            Self::Config(_)
            | Self::Request { .. }
            | Self::UnsupportedRequest(_)
            | Self::NotAmongFiles { .. }
            | Self::ServedNowhere { .. }
            | Self::SelectorInvalid { .. }
            | Self::SelectorsExclude { .. }
            | Self::UnknownKey { .. }
            | Self::SimilarPlugin { .. }
            | Self::SimilarKey { .. }
            | Self::EmptyPart { .. }
            | Self::TunnelMaster { .. }
            | Self::NameNeedsJson { .. }
            | Self::LegacyAnnotation
            | Self::DuplicateObject { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_padded_to_columns() {
        assert_eq!(format!("{:<8}|", Severity::Error), "error   |");
    }
}
