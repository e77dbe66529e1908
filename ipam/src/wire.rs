//! The protocol of plugin and service: one JSON document each way over a connection.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The socket of the service of `multus-daemon`.
pub const SOCKET: &str = "/run/cni/multus-ipam.sock";

/// The request of a plugin. Keys that the service does not know come from the plugin of another release, during an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Ask {
    /// ADD: an address of each list of ranges.
    Allocate(Allocation),
    /// CHECK: fails unless the attachment has its addresses.
    Check(Attachment),
    /// DEL: the addresses are free again.
    Release(Attachment),
    /// GC: the addresses of a network are free again but those of the valid attachments.
    Collect {
        network: String,
        valid: Vec<Attachment>,
    },
}

/// An interface of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attachment {
    pub container: String,
    pub ifname: String,
}

/// What an ADD asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    #[serde(flatten)]
    pub attachment: Attachment,
    pub pod: Pod,
    /// The network's name, as its configuration has it.
    pub network: String,
    /// The `ipam` object of the network's configuration.
    pub ipam: Map<String, Value>,
}

/// The pod of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The answer of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is done; the addresses of an ADD, one for each list of ranges in their order.
    Done(Vec<Grant>),
    /// It failed, for this reason.
    Failed {
        reason: String,
        /// Whether the same request may succeed later.
        #[serde(default)]
        is_temporary: bool,
    },
}

/// An address of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The address with the length of its subnet's prefix.
    pub address: String,
    /// Empty for none.
    pub gateway: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_and_answers_are_documents_with_their_verb() {
        let attachment = Attachment {
            container: "c".to_owned(),
            ifname: "net1".to_owned(),
        };
        let allocation = Allocation {
            attachment: attachment.clone(),
            pod: Pod::default(),
            network: "lan".to_owned(),
            ipam: Map::new(),
        };
        let written = json!({"verb": "allocate", "container": "c", "ifname": "net1", "network": "lan", "ipam": {},
            "pod": {"namespace": "", "name": "", "uid": ""}, "later": 1});
        assert_eq!(
            serde_json::from_value::<Ask>(written).unwrap(),
            Ask::Allocate(allocation)
        );
        let release = Ask::Release(attachment);
        assert_eq!(
            serde_json::to_value(&release).unwrap(),
            json!({"verb": "release", "container": "c", "ifname": "net1"})
        );
        let failed = r#"{"failed": {"reason": "full"}}"#;
        let expected = Answer::Failed {
            reason: "full".to_owned(),
            is_temporary: false,
        };
        assert_eq!(serde_json::from_str::<Answer>(failed).unwrap(), expected);
    }
}
