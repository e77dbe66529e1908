//! The kinds of objects that the daemon reads, with only the fields that it needs.

use std::{collections::BTreeMap, sync::Arc};

use api::node_labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use crate::{self as plan, Nad, PodView, annotation};

/// The needed fields of `metadata`. Parsing skips `managedFields`, labels and other annotations.
#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

/// The annotations that the daemon reads; of one that is too long to count, only that it is.
#[derive(Debug, Default)]
struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Needed;
        impl<'de> Visitor<'de> for Needed {
            type Value = Annotations;

            fn expecting(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                text.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut needed = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if is_needed(&key) {
                        let mut value: String = map.next_value()?;
                        if value.len() > annotation::MAX_BYTES {
                            annotation::TOO_LONG.clone_into(&mut value);
                            value.shrink_to_fit();
                        }
                        needed.insert(key, value);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Annotations(needed))
            }
        }
        input.deserialize_map(Needed)
    }
}

fn is_needed(annotation: &str) -> bool {
    plan::POD_ANNOTATIONS.contains(&annotation)
        || [
            plan::STATIC_POD_ANNOTATION,
            plan::RESOURCE_ANNOTATION,
            plan::SELECTOR_ANNOTATION,
        ]
        .contains(&annotation)
}

/// A pod, parsed only from its metadata.
#[derive(Debug, PartialEq)]
pub struct PodMetadata(pub PodView);

impl<'de> Deserialize<'de> for PodMetadata {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Pod {
            #[serde(default)]
            metadata: Metadata,
        }
        let metadata = Pod::deserialize(input)?.metadata;
        Ok(Self(view(
            metadata.namespace,
            metadata.name,
            metadata.uid,
            metadata.annotations.unwrap_or_default().0,
        )))
    }
}

/// A `NetworkAttachmentDefinition` (k8s.cni.cncf.io/v1).
#[derive(Debug, Default, Deserialize)]
pub struct Definition {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default, deserialize_with = "lenient")]
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    /// The CNI configuration as text.
    #[serde(default, deserialize_with = "text")]
    config: String,
}

/// Reads any other value than an object as an empty object: one malformed definition must not hide all others.
fn lenient<'de, D: Deserializer<'de>>(input: D) -> Result<Spec, D::Error> {
    let value = Value::deserialize(input)?;
    Ok(Spec::deserialize(value).unwrap_or_default())
}

/// Reads a string. `null` is empty, and any other value becomes its JSON text, which fails where the definition is used with an error
/// that names the definition.
fn text<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(input)? {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// Parses a definition that may be malformed, as a user wrote it.
pub fn definition(object: Value) -> Result<Arc<Nad>, String> {
    let read = serde_json::from_value(object).map(nad);
    read.map_err(|error| error.to_string())
}

/// Converts a definition into the form that planning reads.
pub fn nad(definition: Definition) -> Arc<Nad> {
    let mut annotations = definition.metadata.annotations.unwrap_or_default().0;
    Arc::new(Nad {
        namespace: definition.metadata.namespace.unwrap_or_default(),
        name: definition.metadata.name.unwrap_or_default(),
        config: definition.spec.config,
        resource_name: annotations
            .remove(plan::RESOURCE_ANNOTATION)
            .filter(|name| !name.starts_with(node_labels::PREFIX)),
        node_selector: annotations.remove(plan::SELECTOR_ANNOTATION),
    })
}

/// Parses a definition as the API server sends it.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_definition(object: &[u8]) -> Option<Arc<Nad>> {
    serde_json::from_slice(object).ok().map(nad)
}

/// Converts a pod's metadata into the form that planning reads.
pub fn pod_view(metadata: ObjectMeta) -> PodView {
    view(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.annotations.unwrap_or_default(),
    )
}

fn view(
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    mut annotations: BTreeMap<String, String>,
) -> PodView {
    let is_static = plan::is_static(&annotations);
    annotations.retain(|key, _| plan::POD_ANNOTATIONS.contains(&key.as_str()));
    PodView {
        namespace: namespace.unwrap_or_default(),
        name: name.unwrap_or_default(),
        uid: uid.unwrap_or_default(),
        annotations,
        is_static,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn malformed_definitions_are_parsed() {
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

    #[test]
    fn resource_that_says_where_a_network_is_served_has_no_devices() {
        let read = |resource: &str| {
            let annotations = json!({plan::RESOURCE_ANNOTATION: resource});
            let metadata = json!({"name": "lan", "namespace": "shop", "annotations": annotations});
            definition(json!({"metadata": metadata, "spec": {}})).unwrap()
        };
        let own = format!("{}shop.lan", node_labels::PREFIX);
        assert_eq!(read(&own).resource_name, None);
        assert_eq!(
            read("intel.com/nic").resource_name.as_deref(),
            Some("intel.com/nic")
        );
    }

    #[test]
    fn metadata_alone_gives_the_same_pod_as_the_complete_object() {
        let object = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {
                "name": "cart", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": {"a": "b"}, "ownerReferences": [{"kind": "ReplicaSet"}],
                "annotations": {
                    "k8s.v1.cni.cncf.io/networks": "zebra", "other": "x",
                    "kubernetes.io/config.mirror": "a8712c00"
                },
                "managedFields": [{"fieldsV1": {"f:metadata": {"f:annotations": {"\".": {}}}}}]
            },
            "status": {"phase": "Running"}
        });
        let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
        let PodMetadata(pod) = serde_json::from_str(&object.to_string()).unwrap();
        assert!(pod.is_static);
        assert_eq!(pod.annotations.len(), 1);
        assert_eq!(pod, pod_view(metadata));
        for odd in [json!({}), json!({"metadata": {"annotations": null}})] {
            serde_json::from_value::<PodMetadata>(odd).unwrap();
        }
    }

    #[test]
    fn annotation_that_is_too_long_is_not_kept_and_fails_as_a_complete_one_does() {
        for (length, is_kept) in [
            (annotation::MAX_BYTES, true),
            (annotation::MAX_BYTES + 1, false),
        ] {
            let text = "a".repeat(length);
            let annotations = json!({plan::NETWORKS_ANNOTATION: text});
            let object = json!({"metadata": {"annotations": annotations}});
            let PodMetadata(pod) = serde_json::from_value(object).unwrap();
            assert_eq!(pod.networks().len() == length, is_kept);
            assert!(is_kept || pod.networks().len() < 16);
            for text in [&text, pod.networks()] {
                let parsed = annotation::parse(text, "shop");
                let is_refused = parsed == Err(plan::AnnotationError::TooLong);
                assert_eq!(is_refused, !is_kept, "{length}");
            }
        }
    }
}
