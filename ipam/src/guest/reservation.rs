//! The `OverlappingRangeIPReservation` of an address. It exists while a pod has the address, whatever pool it is of.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{API_VERSION, Owner, object_name};
use crate::request::{add, test};
use crate::wire::text;

/// A reservation as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    uid: String,
    resource_version: String,
    /// The reference leaves the container out.
    owner: Owner,
}

/// Returns the name of an address' reservation.
pub fn name(network_name: &str, address: IpAddr) -> String {
    object_name(network_name, "", &address.to_string())
}

/// Returns the address of a reservation's name, without the network's name before it.
pub(super) fn address(name: &str) -> Option<IpAddr> {
    if name.contains('.') {
        return name.parse().ok();
    }
    name.replace('-', ":").parse().ok()
}

/// Returns the object that reserves an address for an owner.
pub fn object(namespace: &str, name: &str, owner: &Owner) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "OverlappingRangeIPReservation",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containerid": owner.container, "podref": owner.pod, "ifname": owner.ifname},
    })
}

impl Reservation {
    /// Reads an object. What the reference leaves out is empty.
    pub fn parse(object: &Value) -> Self {
        let field = |part: &str, key: &str| {
            let part = object.get(part);
            part.and_then(|part| text(part, key)).unwrap_or_default()
        };
        Self {
            uid: field("metadata", "uid"),
            resource_version: field("metadata", "resourceVersion"),
            owner: Owner {
                container: field("spec", "containerid"),
                pod: field("spec", "podref"),
                ifname: field("spec", "ifname"),
            },
        }
    }

    /// Returns whether it is the pod's, by which the reference decides.
    pub fn is_of_pod(&self, owner: &Owner) -> bool {
        self.owner.pod == owner.pod
    }

    /// Returns whether the owner has made it.
    pub fn is_of(&self, owner: &Owner) -> bool {
        self.owner == *owner
    }

    /// Returns whether it may be what the reference has made for the owner, who has the address by the pool.
    pub fn is_of_reference(&self, owner: &Owner) -> bool {
        let ifnames = ["", owner.ifname.as_str()];
        self.is_of_pod(owner)
            && self.owner.container.is_empty()
            && ifnames.contains(&self.owner.ifname.as_str())
    }

    /// Returns the patch by which the pod's next container makes it its own, unless it has changed since it was read. So the former container
    /// no longer removes it.
    pub fn take_over(&self, owner: &Owner) -> Value {
        json!([
            test("/metadata/uid", &*self.uid),
            test("/metadata/resourceVersion", &*self.resource_version),
            add("/spec/containerid", &*owner.container),
            add("/spec/ifname", &*owner.ifname),
        ])
    }

    /// Returns the options of a request that removes it, unless it has changed since it was read.
    pub fn delete_options(&self) -> Value {
        let preconditions = json!({"uid": self.uid, "resourceVersion": self.resource_version});
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
    }
}
