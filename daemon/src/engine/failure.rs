//! How errors tell which network of which pod they are about.

use cni::types::CniError;

use crate::state::{Delegate, PodRef};

/// The cause, after pod and network.
pub(super) fn failed(pod: &PodRef, delegate: &Delegate, cause: CniError) -> CniError {
    let network = &delegate.config.name;
    cause.context(&format!(
        "[{}/{}/{}:{network}]: error adding container to network \"{network}\"",
        pod.namespace, pod.name, pod.uid
    ))
}

/// Two networks of a pod want one name, or somebody else has it.
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
