//! What is known of a pod: its identity and the two annotations that matter, nothing more of the object.

use std::collections::BTreeMap;

use cni::types::CniError;

/// Annotation with the networks that a pod wants besides its default one.
pub const NETWORKS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";
/// Annotation with the network that a pod wants instead of the cluster's default one.
pub const DEFAULT_NETWORK_ANNOTATION: &str = "v1.multus-cni.io/default-network";
/// Annotation with a pod's networks in the original proposal, the default one first.
pub const LEGACY_ANNOTATION: &str = "alpha.network.k8s.io/networks";
/// The annotations to keep of a pod.
pub const POD_ANNOTATIONS: &[&str] = &[
    NETWORKS_ANNOTATION,
    DEFAULT_NETWORK_ANNOTATION,
    LEGACY_ANNOTATION,
];
/// Annotation by which a static pod is told from one that came through the API.
pub const STATIC_POD_ANNOTATION: &str = "kubernetes.io/config.source";

/// One pod, as far as networks are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid in the API; a static pod's runtime knows another one.
    pub uid: String,
    /// Those of [`POD_ANNOTATIONS`] that it has.
    pub annotations: BTreeMap<String, String>,
    /// Whether kubelet made it from a file.
    pub is_static: bool,
}

impl PodView {
    /// Fails when the runtime's pod is another one than the API's: a namesake that was made or removed meanwhile.
    pub fn check_uid(&self, expected: Option<&str>) -> Result<(), CniError> {
        match expected {
            Some(uid) if !uid.is_empty() && uid != self.uid && !self.is_static => {
                Err(CniError::new(
                    CniError::TRY_AGAIN_LATER,
                    format!(
                        "[{}/{}]: expected pod UID \"{uid}\" but got \"{}\" from Kube API: this sandbox is of an earlier pod of that name and goes by itself",
                        self.namespace, self.name, self.uid
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The text of the networks annotation; empty when there is none.
    pub fn networks(&self) -> &str {
        self.annotations
            .get(NETWORKS_ANNOTATION)
            .map_or("", String::as_str)
    }

    /// The text of the default network annotation.
    pub fn default_network(&self) -> Option<&str> {
        self.annotations
            .get(DEFAULT_NETWORK_ANNOTATION)
            .map(String::as_str)
    }

    /// The text of the older networks annotation, if none of the present ones is there.
    pub fn legacy_networks(&self) -> Option<&str> {
        let is_there = |key| self.annotations.contains_key(key);
        if is_there(NETWORKS_ANNOTATION) || is_there(DEFAULT_NETWORK_ANNOTATION) {
            return None;
        }
        self.annotations.get(LEGACY_ANNOTATION).map(String::as_str)
    }

    /// The same pod as if it had asked for nothing.
    #[must_use]
    pub fn without_annotations(&self) -> Self {
        Self {
            annotations: BTreeMap::new(),
            ..self.clone()
        }
    }
}

/// Whether all of a pod's annotations say that it is static.
pub fn is_static(annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .get(STATIC_POD_ANNOTATION)
        .is_some_and(|source| source != "api")
}

/// The answer to an ADD for a pod that the API does not know (any more): its sandbox will be torn down anyway.
pub fn pod_gone(namespace: &str, name: &str) -> CniError {
    CniError::new(
        CniError::TRY_AGAIN_LATER,
        format!(
            "error configuring pod [{namespace}/{name}] networking: this node has not heard of the pod: it was deleted, or the next try finds it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(is_static: bool) -> PodView {
        PodView {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned(),
            uid: "api".to_owned(),
            is_static,
            ..PodView::default()
        }
    }

    #[test]
    fn another_uid_is_another_pod_unless_static() {
        assert!(pod(false).check_uid(Some("api")).is_ok());
        assert!(pod(false).check_uid(None).is_ok());
        assert!(pod(false).check_uid(Some("")).is_ok());
        assert!(pod(true).check_uid(Some("file")).is_ok());
        let error = pod(false).check_uid(Some("runtime")).unwrap_err();
        assert_eq!(
            error.msg,
            "[shop/cart-0]: expected pod UID \"runtime\" but got \"api\" from Kube API: this sandbox is of an earlier pod of that name and goes by itself"
        );
    }

    #[test]
    fn the_source_tells_static_pods() {
        let of = |value: &str| {
            is_static(&BTreeMap::from([(
                STATIC_POD_ANNOTATION.to_owned(),
                value.to_owned(),
            )]))
        };
        assert!(of("file") && of("http"));
        assert!(!of("api") && !is_static(&BTreeMap::new()));
    }
}
