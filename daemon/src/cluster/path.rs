//! Paths of the API.

use std::fmt::Display;

/// One pod.
pub(crate) fn pod(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// The pods of a namespace with this label.
pub(crate) fn labelled_pods(namespace: &str, label: &str, value: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}%3D{value}")
}

/// The events of a namespace.
pub(crate) fn events(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/events")
}

/// The `DaemonSet` of this name as a list of at most one, which is what our Role allows.
pub(crate) fn daemon_sets(namespace: &str, name: &str) -> String {
    let selector = super::reflect::selector("metadata.name", name);
    format!("/apis/apps/v1/namespaces/{namespace}/daemonsets?fieldSelector={selector}")
}

/// All certificate signing requests.
pub(crate) const SIGNING_REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// One certificate signing request.
pub(crate) fn signing_request(name: impl Display) -> String {
    format!("{SIGNING_REQUESTS}/{name}")
}
