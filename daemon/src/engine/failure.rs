//! Errors of an ADD that name the pod and the network.

use cni::types::CniError;
use serde_json::Value;

use crate::state::{Delegate, PodRef};

/// Plugins whose interface is a part of an Ethernet interface, their `master`.
const ON_ETHERNET: &[&str] = &["ipvlan", "macvlan"];

/// Returns the cause, preceded by pod and network.
pub(super) fn failed(pod: &PodRef, delegate: &Delegate, cause: CniError) -> CniError {
    let network = &delegate.config.name;
    with_cure(delegate, cause).context(&format!(
        "[{}/{}/{}:{network}]: error adding container to network \"{network}\"",
        pod.namespace, pod.name, pod.uid
    ))
}

/// Adds the cure to the kernel's refusal of a master that is no Ethernet interface, where the plugin reports the refusal alone.
fn with_cure(delegate: &Delegate, mut cause: CniError) -> CniError {
    let refused = delegate.config.plugins.iter().find(|plugin| {
        let refusal = format!("failed to create {}: invalid argument", plugin.kind);
        ON_ETHERNET.contains(&plugin.kind.as_str()) && cause.msg.ends_with(&refusal)
    });
    if let Some(plugin) = refused {
        let master = plugin.value.get("master").and_then(Value::as_str);
        let master = master.filter(|name| !name.is_empty());
        let name = master.map_or_else(String::new, |name| format!(" {name}"));
        cause.msg += "; its master";
        cause.msg += &name;
        cause.msg += " has to be an Ethernet interface, which those of VPNs and tunnels are not: name one that has a MAC address";
    }
    cause
}

/// The error of two networks of a pod that request one interface name, or of a name that exists already.
pub(super) fn name_taken(delegate: &Delegate) -> CniError {
    let ifname = &delegate.ifname;
    CniError::new(
        CniError::INVALID_NETWORK_CONFIG,
        format!(
            "DelegateAdd: cannot set \"{}\" interface name to \"{ifname}\": interface name {ifname} already exists; ask for another name",
            delegate.config.plugins[0].kind
        ),
    )
}
