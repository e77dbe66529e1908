//! The protocol of plugin and service: one JSON document each way over a connection.
//!
//! The reference's daemon speaks Go's RPC. Nothing but that very program needs to understand it.

use serde::{Deserialize, Serialize};

use crate::Lease;
use crate::options::code;

/// The service of `multus-daemon`. The reference's daemon may serve at its own path on the same node.
pub const SOCKET: &str = "/run/cni/multus-dhcp.sock";
/// The service of `dhcp daemon`, the reference's or ours.
pub const REFERENCE_SOCKET: &str = "/run/cni/dhcp.sock";

/// Returns the sockets at which the service of a definition may be, the most important one first. A definition that names the reference's
/// own path names the default.
pub fn sockets(named: &str) -> Vec<&str> {
    match named {
        "" | REFERENCE_SOCKET => vec![SOCKET, REFERENCE_SOCKET],
        named => vec![named],
    }
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// ADD: a lease, which is held from now on.
    Allocate,
    /// CHECK: the lease that is held.
    Check,
    /// DEL: the lease is given back.
    Release,
}

/// The request of a plugin. The service stores that of each lease that it holds. Keys that it does not know come from the plugin of
/// another release, during an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub verb: Verb,
    /// The name of the lease.
    pub client: String,
    /// The path of the network namespace; empty when there is none.
    pub netns: String,
    /// The interface in it.
    pub ifname: String,
    /// Options for the server.
    pub provide: Vec<(u8, String)>,
    /// Options from the server.
    pub request: Vec<u8>,
    /// Whether servers must broadcast their replies.
    #[serde(default)]
    pub broadcast: bool,
}

/// The answer of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is done; the lease, where one is the answer.
    Done(Option<Grant>),
    /// It failed, for this reason.
    Failed(String),
}

impl Answer {
    pub(crate) fn from_lease(lease: &Lease) -> Self {
        match Grant::of(lease) {
            Ok(grant) => Self::Done(Some(grant)),
            Err(reason) => Self::Failed(reason),
        }
    }
}

/// A lease as the plugin needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The address with the length of its network's prefix.
    pub address: String,
    /// The gateway; empty for none.
    pub gateway: String,
    pub routes: Vec<Route>,
}

/// A route of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination with the length of its prefix.
    pub destination: String,
    /// The gateway; `None` when the destination is on the link.
    pub gateway: Option<String>,
}

impl Ask {
    /// Returns whether the definition sets the identifier by which servers know the client. Otherwise that is the container's, which
    /// no later container has.
    pub(crate) fn names_itself(&self) -> bool {
        let mut provided = self.provide.iter();
        provided.any(|(code, _)| *code == code::CLIENT_IDENTIFIER)
    }
}

impl Grant {
    /// Returns what a lease grants; a lease without the length of its network's prefix is useless.
    pub fn of(lease: &Lease) -> Result<Self, String> {
        let length = lease
            .prefix_length()
            .ok_or("DHCP option Subnet Mask not found in DHCPACK")?;
        let routes = lease.routes().into_iter().map(|route| Route {
            destination: format!("{}/{}", route.destination, route.length),
            gateway: route.gateway.map(|gateway| gateway.to_string()),
        });
        Ok(Self {
            address: format!("{}/{length}", lease.address()),
            gateway: lease
                .gateway()
                .map(|gateway| gateway.to_string())
                .unwrap_or_default(),
            routes: routes.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Kind, Message};

    #[test]
    fn grant_has_what_the_lease_says() {
        let mut lease = Lease {
            ack: Message::new(Kind::Ack, 1, [2, 0, 0, 0, 0, 1]),
            began: Duration::ZERO,
            server_mac: [0; 6],
        };
        lease.ack.your_address = [10, 0, 0, 5].into();
        assert_eq!(
            Grant::of(&lease).unwrap_err(),
            "DHCP option Subnet Mask not found in DHCPACK"
        );
        lease
            .ack
            .options
            .set(code::SUBNET_MASK, [255, 255, 240, 0])
            .set(code::ROUTER, [10, 0, 0, 1]);
        let grant = Grant::of(&lease).unwrap();
        let expected = Grant {
            address: "10.0.0.5/20".to_owned(),
            gateway: "10.0.0.1".to_owned(),
            routes: vec![Route {
                destination: "0.0.0.0/0".to_owned(),
                gateway: Some("10.0.0.1".to_owned()),
            }],
        };
        assert_eq!(grant, expected);
        let answer = serde_json::to_string(&Answer::Done(Some(grant.clone()))).unwrap();
        assert_eq!(
            serde_json::from_str::<Answer>(&answer).unwrap(),
            Answer::Done(Some(grant))
        );
    }
}
