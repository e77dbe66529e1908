//! Only the fields that are needed of only the kinds that are needed.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::plan::{self, Nad, PodView};

/// A `NetworkAttachmentDefinition` (k8s.cni.cncf.io/v1).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Definition {
    /// Name, namespace, annotations.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The network.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Spec,
}

/// Its `spec`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Spec {
    /// CNI configuration as text.
    #[serde(default, deserialize_with = "text")]
    pub config: String,
}

/// Whatever is no object is one without keys: one odd definition must not hide all others.
fn lenient<'de, D: Deserializer<'de>>(input: D) -> Result<Spec, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(Spec::deserialize(value).unwrap_or_default())
}

/// Nothing is the empty text; what is no text becomes its own, which fails where it is used and names the definition.
fn text<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(input)? {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    })
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

/// A definition of any shape, as somebody wrote it.
pub fn definition(object: Value) -> Result<Arc<Nad>, String> {
    let read = serde_json::from_value(object).map(nad);
    read.map_err(|error| error.to_string())
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

/// A definition as the API server sends it.
#[cfg(test)]
pub(crate) fn read_definition(object: &[u8]) -> Option<Arc<Nad>> {
    serde_json::from_slice(object).ok().map(nad)
}

/// What a plan reads of a pod.
pub fn pod_view(metadata: ObjectMeta) -> PodView {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_of_any_shape_is_one() {
        for (spec, expected) in [
            (json!({"config": "{}"}), "{}"),
            (json!({"config": null}), ""),
            (
                json!({"config": {"type": "bridge"}}),
                r#"{"type":"bridge"}"#,
            ),
            (json!({"config": 7}), "7"),
            (json!({}), ""),
            (json!(null), ""),
            (json!("text"), ""),
        ] {
            let object = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": spec});
            let definition: Definition = serde_json::from_value(object).unwrap();
            assert_eq!(nad(definition).config, expected, "{spec}");
        }
    }
}
