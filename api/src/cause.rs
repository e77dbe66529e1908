//! The causes of failures. The daemon and the shim name one by its word, in the details of an answer, in the annotation of an event and in
//! reports; `kubectl multus why` explains it.
//!
//! Errors of plugins, runtimes and the kubelet exist only as text. [`Cause::from_foreign_text`] is the one place that classifies them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The annotation of an event that has the word of its cause.
pub const ANNOTATION: &str = "multus-rs/cause";

/// Precedes the word of a cause in the details of an answer.
const DETAIL: &str = "cause=";

/// Why a pod lacks networks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// An annotation cannot be parsed.
    AnnotationInvalid,
    /// A definition does not exist.
    DefinitionMissing,
    /// A definition cannot be used.
    DefinitionInvalid,
    /// The pod may not use a definition of another namespace.
    NamespaceIsolation,
    /// No plugin serves a request of the pod.
    RequestUnsupported,
    /// Networks of the pod exclude each other.
    NetworksConflict,
    /// The pod has fewer devices than its networks need.
    DeviceMissing,
    /// The daemon's options forbid a plugin.
    PluginNotAllowed,
    /// A plugin is not installed on the node.
    PluginMissing,
    /// All addresses of the network are in use.
    AddressesExhausted,
    /// Another pod has the requested address.
    AddressTaken,
    /// The network does not assign the requested address.
    AddressOutOfRange,
    /// The addresses of the definition are invalid.
    AddressesInvalid,
    /// Neither definition nor annotation names an address.
    AddressMissing,
    /// The `IPAMClaim` that the pod refers to gives it no address.
    ClaimUnusable,
    /// The node does not have the interface that a network builds on.
    MasterMissing,
    /// The interface that a network builds on is no Ethernet interface.
    MasterUnsuitable,
    /// The node's kernel cannot make this kind of link.
    DriverMissing,
    /// No DHCP server or DHCP service gives the pod a lease.
    DhcpUnreachable,
    /// A plugin did not end in time.
    PluginSlow,
    /// The daemon does not serve pods yet, or the API server does not answer it.
    DaemonNotReady,
    /// The daemon failed on the node, as by a full disk.
    DaemonFailed,
    /// The node's network is not ready, for another reason than Multus.
    NodeNetworkNotReady,
    /// A plugin failed for a reason of its own. Stands for the words of later versions, too.
    #[default]
    #[serde(other)]
    PluginFailed,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 24] = [
        Self::AnnotationInvalid,
        Self::DefinitionMissing,
        Self::DefinitionInvalid,
        Self::NamespaceIsolation,
        Self::RequestUnsupported,
        Self::NetworksConflict,
        Self::DeviceMissing,
        Self::PluginNotAllowed,
        Self::PluginMissing,
        Self::AddressesExhausted,
        Self::AddressTaken,
        Self::AddressOutOfRange,
        Self::AddressesInvalid,
        Self::AddressMissing,
        Self::ClaimUnusable,
        Self::MasterMissing,
        Self::MasterUnsuitable,
        Self::DriverMissing,
        Self::DhcpUnreachable,
        Self::PluginSlow,
        Self::DaemonNotReady,
        Self::DaemonFailed,
        Self::NodeNetworkNotReady,
        Self::PluginFailed,
    ];

    /// Returns the word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::AnnotationInvalid => "annotation-invalid",
            Self::DefinitionMissing => "definition-missing",
            Self::DefinitionInvalid => "definition-invalid",
            Self::NamespaceIsolation => "namespace-isolation",
            Self::RequestUnsupported => "request-unsupported",
            Self::NetworksConflict => "networks-conflict",
            Self::DeviceMissing => "device-missing",
            Self::PluginNotAllowed => "plugin-not-allowed",
            Self::PluginMissing => "plugin-missing",
            Self::AddressesExhausted => "addresses-exhausted",
            Self::AddressTaken => "address-taken",
            Self::AddressOutOfRange => "address-out-of-range",
            Self::AddressesInvalid => "addresses-invalid",
            Self::AddressMissing => "address-missing",
            Self::ClaimUnusable => "claim-unusable",
            Self::MasterMissing => "master-missing",
            Self::MasterUnsuitable => "master-unsuitable",
            Self::DriverMissing => "driver-missing",
            Self::DhcpUnreachable => "dhcp-unreachable",
            Self::PluginSlow => "plugin-slow",
            Self::DaemonNotReady => "daemon-not-ready",
            Self::DaemonFailed => "daemon-failed",
            Self::NodeNetworkNotReady => "node-network-not-ready",
            Self::PluginFailed => "plugin-failed",
        }
    }

    /// Returns the cause of a word, if this version knows it.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.word() == word)
    }

    /// Returns the details of an answer that name the cause.
    pub fn details(self) -> String {
        format!("{DETAIL}{self}")
    }

    /// Returns the cause that the details of an answer name; the runtime quotes them in a text of its own.
    pub fn from_details(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(DETAIL)?;
        let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '-';
        let end = rest.find(|letter| !is_letter(letter));
        Self::from_word(&rest[..end.unwrap_or(rest.len())])
    }

    /// Returns a text without the words that name a cause.
    pub fn without_details(text: &str) -> String {
        Self::ALL.into_iter().fold(text.to_owned(), |text, cause| {
            text.replace(&format!("; {}", cause.details()), "")
        })
    }

    /// Classifies the error of a plugin, a runtime or the kubelet by its text.
    pub fn from_foreign_text(text: &str) -> Self {
        let text = text.to_lowercase();
        let matches = |(_, parts): &&(Self, &[&str])| parts.iter().any(|part| text.contains(part));
        FOREIGN_TEXTS
            .iter()
            .find(matches)
            .map_or(Self::PluginFailed, |(cause, _)| *cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// Parts of messages, in lower case, of plugins, runtimes and the kubelet; the first match decides.
const FOREIGN_TEXTS: &[(Cause, &[&str])] = &[
    (
        Cause::DaemonNotReady,
        &[
            "failed to find plugin \"multus-shim\"",
            "failed to find plugin \"multus\"",
            "cannot reach the api server",
        ],
    ),
    (
        Cause::PluginMissing,
        &["failed to find plugin", "could not find plugin"],
    ),
    (
        Cause::ClaimUnusable,
        &[
            "correct the pod's \"ipam-claim-reference\"",
            "refer to another claim",
            "is being deleted: wait until it is gone",
            "correct or delete the claim",
            "cannot be read: it has no uid",
            "its address is used by",
            "has either \"ips\" or a claim",
        ],
    ),
    (
        Cause::AddressTaken,
        &[
            "is in use by pod ",
            "is in use by claim/",
            "is in use by node ",
            "is not available in range set",
            "has already been allocated",
            "address already in use",
            "is already allocated",
        ],
    ),
    (
        Cause::AddressOutOfRange,
        &[
            "failed to allocate all requested ips",
            "is not in range",
            "is not an address that the network gives",
        ],
    ),
    (
        Cause::AddressesInvalid,
        &[
            "invalid cidr address",
            "has host bits set",
            "no ip ranges specified",
            "too small to allocate from",
            "not in network",
            "invalid range set",
            "invalid subnet",
        ],
    ),
    (
        Cause::AddressMissing,
        &[
            "no ip addresses configured",
            "ipam plugin returned missing ip config",
        ],
    ),
    (
        Cause::AddressesExhausted,
        &[
            "no ip addresses available",
            "no addresses available",
            "no available ip",
            "no free ip",
            "could not allocate ip",
            "failed to allocate for range",
            "range set is full",
            "has no free address",
        ],
    ),
    (
        Cause::DhcpUnreachable,
        &[
            "dhcp.sock",
            "no more tries",
            "no dhcp",
            "error calling dhcp",
        ],
    ),
    (
        Cause::MasterUnsuitable,
        &[
            "no ethernet interface",
            "has to be an ethernet interface",
            "failed to create macvlan: invalid argument",
            "failed to create ipvlan: invalid argument",
        ],
    ),
    (
        Cause::DriverMissing,
        &[
            "failed to create macvlan: operation not supported",
            "failed to create ipvlan: operation not supported",
            "failed to create vlan: operation not supported",
            "failed to create bond: operation not supported",
        ],
    ),
    (
        Cause::MasterMissing,
        &[
            "failed to lookup master",
            "lookup master",
            "master interface",
            "link not found",
            "no such network interface",
            "failed to find host device",
            "failed to lookup \"",
            "no such device",
        ],
    ),
    (
        Cause::NodeNetworkNotReady,
        &[
            "cni plugin not initialized",
            "cni config uninitialized",
            "network plugin is not ready",
            "no network config found in",
            "no networks found in",
        ],
    ),
    (Cause::NetworksConflict, &["already exists"]),
    (
        Cause::PluginSlow,
        &["context deadline exceeded", "timed out"],
    ),
    (Cause::DefinitionInvalid, &["cniversion"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_is_the_serialised_name() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.word());
            assert_eq!(Cause::from_word(cause.word()), Some(cause));
        }
        let later: Cause = serde_json::from_str("\"of-a-later-version\"").unwrap();
        assert_eq!(later, Cause::PluginFailed);
    }

    #[test]
    fn runtime_quotes_the_word() {
        for cause in Cause::ALL {
            let event = format!(
                "plugin type=\"multus-shim\" failed (add): x; {}: end",
                cause.details()
            );
            assert_eq!(Cause::from_details(&event), Some(cause));
            assert_eq!(Cause::from_details(&cause.details()), Some(cause));
        }
        for text in ["", "cause=", "cause=of-a-later-version", "because"] {
            assert_eq!(Cause::from_details(text), None, "{text}");
        }
    }

    #[test]
    fn foreign_texts_have_causes() {
        for (text, expected) in [
            (
                "no IP addresses available in range set: 10.0.0.1-10.0.0.2",
                Cause::AddressesExhausted,
            ),
            (
                "Failed to Lookup Master \"eth9\": Link not found",
                Cause::MasterMissing,
            ),
            (
                "failed to find plugin \"bridge\" in path [/opt/cni/bin]",
                Cause::PluginMissing,
            ),
            (
                "failed to find plugin \"multus-shim\" in path [/x]",
                Cause::DaemonNotReady,
            ),
            ("invalid CIDR address: 10.1.2", Cause::AddressesInvalid),
            (
                "Network has host bits set. For a subnet mask of length 24 the network address is 10.1.2.0",
                Cause::AddressesInvalid,
            ),
            ("no IP ranges specified", Cause::AddressesInvalid),
            (
                "failed to create ipvlan: operation not supported",
                Cause::DriverMissing,
            ),
            ("no luck", Cause::PluginFailed),
        ] {
            assert_eq!(Cause::from_foreign_text(text), expected, "{text}");
        }
    }
}
