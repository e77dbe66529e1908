//! The protocol of plugin and service: one JSON document each way over a connection.
//!
//! Both are written and read by hand: derived code for enums with a tag is many times as large, and is in every program of a node.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

/// The socket of the service of `multus-daemon`.
pub const SOCKET: &str = "/run/cni/multus-ipam.sock";

/// The request of a plugin. Keys that the service does not know come from the plugin of another release, during an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// ADD: an address of each list of ranges.
    Allocate(Allocation),
    /// CHECK: fails unless the attachment has its addresses.
    Check(Attachment),
    /// DEL: the addresses are free again.
    Release(Attachment),
    /// DEL of a network whose pools may have an address of the attachment that this node has no record of, as those of `whereabouts`.
    ReleaseFrom(Allocation),
    /// GC: the addresses of a network are free again but those of the valid attachments.
    Collect {
        network: String,
        valid: Vec<Attachment>,
    },
}

/// An interface of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment {
    pub container: String,
    pub ifname: String,
}

/// What an ADD asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub attachment: Attachment,
    pub pod: Pod,
    /// The network's name, as its configuration has it.
    pub network: String,
    /// The `ipam` object of the network's configuration.
    pub ipam: Map<String, Value>,
    /// The addresses that the pod is to have; none for any.
    pub addresses: Vec<IpAddr>,
    /// The claim of the pod's namespace whose address the pod is to have; empty for none.
    pub claim: String,
}

/// The pod of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done; the addresses of an ADD, one for each list of ranges in their order.
    Done(Vec<Grant>),
    /// It failed, for this reason.
    Failed {
        reason: String,
        /// Whether the same request may succeed later.
        is_temporary: bool,
    },
}

/// An address of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The address with the length of its subnet's prefix.
    pub address: String,
    /// Empty for none.
    pub gateway: String,
}

impl Ask {
    /// Reads a request; `None` for something else.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        Some(match value.get("verb")?.as_str()? {
            "allocate" => Self::Allocate(Allocation::read(&value)?),
            "check" => Self::Check(Attachment::read(&value)?),
            "release" if value.get("ipam").is_some() => {
                Self::ReleaseFrom(Allocation::read(&value)?)
            }
            "release" => Self::Release(Attachment::read(&value)?),
            "collect" => Self::Collect {
                network: text(&value, "network")?,
                valid: all(value.get("valid")?, Attachment::read)?,
            },
            _ => return None,
        })
    }

    /// Returns the document of the request.
    pub fn document(&self) -> Vec<u8> {
        let document = match self {
            Self::Allocate(allocation) => allocation.request("allocate"),
            // A service that does not know the other keys frees what it has a record of.
            Self::ReleaseFrom(allocation) => allocation.request("release"),
            Self::Check(attachment) => attachment_request("check", attachment),
            Self::Release(attachment) => attachment_request("release", attachment),
            Self::Collect { network, valid } => {
                let valid: Vec<Value> = valid.iter().map(Attachment::value).collect();
                json!({"verb": "collect", "network": network, "valid": valid})
            }
        };
        document.to_string().into_bytes()
    }
}

impl Answer {
    /// Reads an answer; `None` for something else.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        if let Some(failed) = value.get("failed") {
            return Some(Self::Failed {
                reason: text(failed, "reason")?,
                is_temporary: failed.get("temporary").and_then(Value::as_bool) == Some(true),
            });
        }
        let grant = |value: &Value| {
            Some(Grant {
                address: text(value, "address")?,
                gateway: text(value, "gateway")?,
            })
        };
        all(value.get("done")?, grant).map(Self::Done)
    }

    /// Returns the document of the answer.
    pub fn document(&self) -> Vec<u8> {
        let document = match self {
            Self::Done(grants) => {
                let grants = grants.iter();
                let grants: Vec<Value> = grants
                    .map(|grant| json!({"address": grant.address, "gateway": grant.gateway}))
                    .collect();
                json!({"done": grants})
            }
            Self::Failed {
                reason,
                is_temporary,
            } => json!({"failed": {"reason": reason, "temporary": is_temporary}}),
        };
        document.to_string().into_bytes()
    }
}

fn attachment_request(verb: &str, attachment: &Attachment) -> Value {
    let Attachment { container, ifname } = attachment;
    json!({"verb": verb, "container": container, "ifname": ifname})
}

impl Allocation {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            attachment: Attachment::read(value)?,
            pod: Pod::read(value.get("pod")?)?,
            network: text(value, "network")?,
            ipam: value.get("ipam")?.as_object()?.clone(),
            addresses: match value.get("addresses") {
                Some(list) => all(list, |value| value.as_str()?.parse().ok())?,
                None => Vec::new(),
            },
            claim: text(value, "claim").unwrap_or_default(),
        })
    }

    fn request(&self, verb: &str) -> Value {
        let Attachment { container, ifname } = &self.attachment;
        json!({
            "verb": verb, "container": container, "ifname": ifname, "pod": self.pod.value(), "network": self.network, "ipam": self.ipam,
            "claim": self.claim, "addresses": self.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
        })
    }
}

impl Attachment {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        Some(Self {
            container: text(value, "container")?,
            ifname: text(value, "ifname")?,
        })
    }

    fn value(&self) -> Value {
        json!({"container": self.container, "ifname": self.ifname})
    }
}

impl Pod {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        Some(Self {
            namespace: text(value, "namespace")?,
            name: text(value, "name")?,
            uid: text(value, "uid")?,
        })
    }

    pub(crate) fn value(&self) -> Value {
        json!({"namespace": self.namespace, "name": self.name, "uid": self.uid})
    }
}

/// Returns the text of a key.
pub(crate) fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

/// Reads all entries of a list.
pub(crate) fn all<T>(list: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    list.as_array()?.iter().map(read).collect()
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
            addresses: vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            claim: "vm.lan".to_owned(),
        };
        let written = json!({"verb": "allocate", "container": "c", "ifname": "net1", "network": "lan", "ipam": {},
            "addresses": ["10.0.0.2", "fd00::2"], "claim": "vm.lan",
            "pod": {"namespace": "", "name": "", "uid": ""}, "later": 1});
        let read = |value: &Value| Ask::parse(value.to_string().as_bytes());
        assert_eq!(read(&written), Some(Ask::Allocate(allocation.clone())));
        let collect = Ask::Collect {
            network: "lan".to_owned(),
            valid: vec![attachment.clone()],
        };
        for ask in [
            Ask::Allocate(allocation.clone()),
            Ask::ReleaseFrom(allocation),
            Ask::Check(attachment.clone()),
            Ask::Release(attachment),
            collect,
        ] {
            assert_eq!(Ask::parse(&ask.document()), Some(ask));
        }
        for wrong in [
            json!({}),
            json!({"verb": "allocate"}),
            json!({"verb": "other"}),
            json!(1),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
        let failed = Answer::Failed {
            reason: "full".to_owned(),
            is_temporary: true,
        };
        let done = Answer::Done(vec![Grant {
            address: "10.0.0.2/24".to_owned(),
            gateway: String::new(),
        }]);
        for answer in [failed, done] {
            assert_eq!(Answer::parse(&answer.document()), Some(answer));
        }
        assert_eq!(Answer::parse(b"{}"), None);
    }
}
