//! Only the fields that are needed of only the kinds that are needed.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::plan::{self, Nad, PodView};

/// A `NetworkAttachmentDefinition` (k8s.cni.cncf.io/v1).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Definition {
    /// Name, namespace, annotations.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The network.
    #[serde(default)]
    pub spec: Spec,
}

/// Its `spec`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Spec {
    /// CNI configuration as text.
    #[serde(default)]
    pub config: String,
}

impl kube::Resource for Definition {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "NetworkAttachmentDefinition".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "k8s.cni.cncf.io".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "network-attachment-definitions".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What a plan reads of a definition.
pub(super) fn nad(definition: Definition) -> Arc<Nad> {
    let mut annotations = definition.metadata.annotations.unwrap_or_default();
    Arc::new(Nad {
        namespace: definition.metadata.namespace.unwrap_or_default(),
        name: definition.metadata.name.unwrap_or_default(),
        config: definition.spec.config,
        resource_name: annotations.remove(plan::RESOURCE_ANNOTATION),
    })
}

/// What a plan reads of a pod.
pub(super) fn pod_view(metadata: ObjectMeta) -> PodView {
    let mut annotations = metadata.annotations.unwrap_or_default();
    let is_static = plan::is_static(&annotations);
    annotations.retain(|key, _| plan::POD_ANNOTATIONS.contains(&key.as_str()));
    PodView {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        annotations,
        is_static,
    }
}
