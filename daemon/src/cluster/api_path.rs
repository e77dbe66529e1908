//! Paths of objects and lists in the Kubernetes API.

use std::fmt::Display;

/// Returns the path of one pod.
pub(crate) fn pod(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Returns the path of the list of a namespace's pods with this label.
pub(crate) fn labelled_pods(namespace: &str, label: &str, value: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}%3D{value}")
}

/// Returns the path of a namespace's events.
pub(crate) fn events(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/events")
}

/// Returns the path of a list with the `DaemonSet` of this name alone. Our Role allows such a list, not a get.
pub(crate) fn daemon_sets(namespace: &str, name: &str) -> String {
    let selector = super::reflector::selector("metadata.name", name);
    format!("/apis/apps/v1/namespaces/{namespace}/daemonsets?fieldSelector={selector}")
}

/// The path of the list of certificate signing requests.
pub(crate) const SIGNING_REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Returns the path of one certificate signing request.
pub(crate) fn signing_request(name: impl Display) -> String {
    format!("{SIGNING_REQUESTS}/{name}")
}
