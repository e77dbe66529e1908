//! The part of a pod that planning needs: its identity and the annotations that select networks.

use std::collections::BTreeMap;

use super::PlanError;

/// Annotation with the networks that a pod requests besides its default network.
pub const NETWORKS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";
/// Annotation with the network that a pod requests instead of the cluster's default network.
pub const DEFAULT_NETWORK_ANNOTATION: &str = "v1.multus-cni.io/default-network";
/// Annotation of the original proposal with a pod's networks, the default network first.
pub const LEGACY_ANNOTATION: &str = "alpha.network.k8s.io/networks";
/// The annotations that select networks, the only ones that a [`PodView`] keeps.
pub const POD_ANNOTATIONS: &[&str] = &[
    NETWORKS_ANNOTATION,
    DEFAULT_NETWORK_ANNOTATION,
    LEGACY_ANNOTATION,
];
/// Annotation by which the kubelet marks the object that shows a static pod in the API. The kubelet runs no pod that has it from the API,
/// so only a real static pod is attached with it. `kubernetes.io/config.source` would not do, since every author of a pod may set it.
pub const STATIC_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// One pod, reduced to what its networks depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodView {
    pub namespace: String,
    pub name: String,
    /// The UID in the API. The runtime knows a static pod by another UID.
    pub uid: String,
    /// The pod's annotations out of [`POD_ANNOTATIONS`].
    pub annotations: BTreeMap<String, String>,
    /// Whether the kubelet created it from a file.
    pub is_static: bool,
}

impl PodView {
    /// Returns the pod as `namespace/name`.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Fails when the runtime's pod is not the API's.
    pub fn check_uid(&self, expected: Option<&str>) -> Result<(), PlanError> {
        match expected {
            Some(uid) if !uid.is_empty() && uid != self.uid && !self.is_static => {
                Err(PlanError::OtherPod {
                    pod: self.title(),
                    expected: uid.to_owned(),
                    found: self.uid.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the text of the networks annotation, empty when there is none.
    pub fn networks(&self) -> &str {
        self.annotations
            .get(NETWORKS_ANNOTATION)
            .map_or("", String::as_str)
    }

    /// Returns the text of the default network annotation.
    pub fn default_network(&self) -> Option<&str> {
        self.annotations
            .get(DEFAULT_NETWORK_ANNOTATION)
            .map(String::as_str)
    }

    /// Returns the text of the original proposal's annotation, unless the pod has one of the current annotations.
    pub fn legacy_networks(&self) -> Option<&str> {
        let has = |key| self.annotations.contains_key(key);
        if has(NETWORKS_ANNOTATION) || has(DEFAULT_NETWORK_ANNOTATION) {
            return None;
        }
        self.annotations.get(LEGACY_ANNOTATION).map(String::as_str)
    }

    /// Returns the same pod without a request for networks.
    #[must_use]
    pub fn without_annotations(&self) -> Self {
        Self {
            annotations: BTreeMap::new(),
            ..self.clone()
        }
    }
}

/// Whether a pod with these annotations is static.
pub fn is_static(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key(STATIC_POD_ANNOTATION)
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
    fn another_uid_is_an_error_except_for_static_pods() {
        assert!(pod(false).check_uid(Some("api")).is_ok());
        assert!(pod(false).check_uid(None).is_ok());
        assert!(pod(false).check_uid(Some("")).is_ok());
        assert!(pod(true).check_uid(Some("file")).is_ok());
        let error = pod(false).check_uid(Some("runtime")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "[shop/cart-0]: expected pod UID \"runtime\" but got \"api\" from Kube API: this sandbox belongs to an earlier pod of that name, and the runtime will remove it"
        );
    }

    #[test]
    fn only_the_kubelets_mirror_is_a_static_pod() {
        let of = |pairs: &[(&str, &str)]| {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            is_static(&pairs.iter().map(owned).collect())
        };
        let source = ("kubernetes.io/config.source", "file");
        assert!(of(&[source, ("kubernetes.io/config.mirror", "a8712c00")]));
        assert!(!of(&[source]) && !of(&[]));
    }
}
