//! Errors of an ADD that name the pod and the network.

use cni::types::CniError;

use crate::state::{Delegate, PodRef};

/// Returns the cause, preceded by pod and network.
pub(super) fn failed(pod: &PodRef, delegate: &Delegate, cause: CniError) -> CniError {
    let network = &delegate.config.name;
    cause.context(&format!(
        "[{}/{}/{}:{network}]: error adding container to network \"{network}\"",
        pod.namespace, pod.name, pod.uid
    ))
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
