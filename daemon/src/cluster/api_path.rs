//! Paths of objects and lists in the Kubernetes API.

use std::fmt::Display;

/// Returns the path of one pod.
pub(crate) fn pod(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Returns the path of one node.
pub(crate) fn node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

/// Returns the path of one network attachment definition.
pub(crate) fn definition(namespace: &str, name: &str) -> String {
    format!("/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions/{name}")
}

/// Returns the path of the list of a namespace's pods with this label.
pub(crate) fn labelled_pods(namespace: &str, label: &str, value: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}%3D{value}")
}

/// Returns the path of a namespace's events.
pub(crate) fn events(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/events")
}

/// Returns the path of a list with only the `DaemonSet` of this name. Our Role allows such a list, not a get.
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

/// Whether an object may have this name (RFC 1123, subdomain), so that it is one part of a path.
pub(crate) fn is_name(text: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let bytes = text.as_bytes();
    bytes.len() <= 253
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
        && (bytes.iter()).all(|byte| is_alphanumeric(Some(byte)) || b"-.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_part_of_a_path() {
        for name in ["a", "storage-1.shop", &"a".repeat(253)] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "..",
            "a/b",
            "a?b",
            "A",
            "a%2f",
            "a-",
            ".a",
            &"a".repeat(254),
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
