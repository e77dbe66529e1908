//! What is read of objects, from files and from the API server alike: definitions, and pods with the templates that make them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plan::{Devices, Nad, PodView, objects};
use serde_json::Value;

/// Where definitions are, by group.
const GROUP: &str = "k8s.cni.cncf.io";
/// What they are called.
pub(crate) const DEFINITION: &str = "NetworkAttachmentDefinition";

/// An object that has to do with networks.
#[derive(Debug)]
pub(crate) enum Object {
    /// A network.
    Definition(Definition),
    /// A pod, or what makes pods.
    Pod(Pod),
}

/// A definition as it is written.
#[derive(Debug)]
pub(crate) struct Definition {
    /// What a plan reads of it.
    pub(crate) nad: Arc<Nad>,
    /// As written.
    pub(crate) api_version: String,
    /// Whether `spec.config` is something that the API server takes.
    pub(crate) is_text: bool,
    /// All its annotations.
    pub(crate) keys: Vec<String>,
}

/// A pod as far as networks go.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pod {
    /// `Pod`, or the kind of what makes it.
    pub(crate) kind: String,
    /// What a plan reads of it.
    pub(crate) view: PodView,
    /// All its annotations.
    pub(crate) keys: Vec<String>,
    /// Annotations of what makes it.
    pub(crate) keys_of_maker: Vec<String>,
    /// Whether it lives in the node's own network.
    pub(crate) host_network: bool,
    /// The devices that it requests, under names of our own; `None` where claims may bring further ones.
    pub(crate) devices: Option<Devices>,
    /// How many pods of this template run at once.
    pub(crate) replicas: u64,
}

impl Object {
    /// Kind, namespace and name.
    pub(crate) fn title(&self) -> String {
        let (kind, namespace, name) = self.identity();
        format!("{kind} {namespace}/{name}")
    }

    /// The same apart.
    pub(crate) fn identity(&self) -> (&str, &str, &str) {
        match self {
            Self::Definition(Definition { nad, .. }) => (DEFINITION, &nad.namespace, &nad.name),
            Self::Pod(pod) => (&pod.kind, &pod.view.namespace, &pod.view.name),
        }
    }
}

/// Everything in a document that has to do with networks; objects without a namespace are in this one.
pub(crate) fn read(document: &Value, namespace: &str) -> Result<Vec<Object>, String> {
    let text = |key: &str| {
        document
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = text("kind");
    if let (true, Some(items)) = (
        kind.ends_with("List"),
        document.get("items").and_then(Value::as_array),
    ) {
        let nested = items.iter().map(|item| read(item, namespace));
        return Ok(nested
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect());
    }
    if kind == DEFINITION {
        return definition(document, text("apiVersion"), namespace)
            .map(|definition| vec![Object::Definition(definition)]);
    }
    let pod = if kind == "Pod" {
        Some(pod(document, namespace)?)
    } else {
        made_by(document, kind, namespace)?
    };
    Ok(pod.map(Object::Pod).into_iter().collect())
}

/// Whether this is the kind that Multus reads.
pub(crate) fn is_current(api_version: &str) -> bool {
    api_version == format!("{GROUP}/v1")
}

fn definition(document: &Value, api_version: &str, namespace: &str) -> Result<Definition, String> {
    let config = document.pointer("/spec/config");
    let nad = objects::definition(document.clone())
        .map_err(|error| format!("{DEFINITION} cannot be read: {error}"))?;
    let mut nad = Arc::unwrap_or_clone(nad);
    or_default(&mut nad.namespace, namespace);
    Ok(Definition {
        nad: Arc::new(nad),
        api_version: api_version.to_owned(),
        is_text: matches!(config, None | Some(Value::Null | Value::String(_))),
        keys: keys(document),
    })
}

/// A pod of the API server, or of a file.
pub(crate) fn pod(object: &Value, namespace: &str) -> Result<Pod, String> {
    // A template need not have any.
    let metadata = object.get("metadata").filter(|value| !value.is_null());
    let metadata: ObjectMeta = metadata
        .map_or_else(
            || Ok(ObjectMeta::default()),
            |value| serde_json::from_value(value.clone()),
        )
        .map_err(|error| format!("the pod's metadata cannot be read: {error}"))?;
    let name = metadata.name.clone().or(metadata.generate_name.clone());
    let mut view = objects::pod_view(metadata);
    view.name = name.unwrap_or_default();
    or_default(&mut view.namespace, namespace);
    let spec = object.get("spec").unwrap_or(&Value::Null);
    Ok(Pod {
        kind: "Pod".to_owned(),
        view,
        keys: keys(object),
        keys_of_maker: Vec::new(),
        host_network: spec.get("hostNetwork") == Some(&Value::Bool(true)),
        devices: devices(spec),
        replicas: 1,
    })
}

/// The pods of whatever has a pod template: which kinds those are is nobody's secret, nor is it fixed.
fn made_by(document: &Value, kind: &str, namespace: &str) -> Result<Option<Pod>, String> {
    let places = [
        "/spec/template",
        "/spec/jobTemplate/spec/template",
        "/template",
    ];
    let mut templates = places.iter().filter_map(|place| document.pointer(place));
    let Some(template) = templates.find(|one| one.pointer("/spec/containers").is_some()) else {
        return Ok(None);
    };
    let maker = |key: &str| {
        let value = document.pointer(&format!("/metadata/{key}"));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut pod = pod(template, namespace)?;
    kind.clone_into(&mut pod.kind);
    pod.view.name = maker("name");
    pod.view.namespace = maker("namespace");
    or_default(&mut pod.view.namespace, namespace);
    pod.keys_of_maker = keys(document);
    let replicas = document.pointer("/spec/replicas").and_then(Value::as_u64);
    pod.replicas = replicas.unwrap_or(1);
    Ok(Some(pod))
}

fn or_default(text: &mut String, default: &str) {
    if text.is_empty() {
        default.clone_into(text);
    }
}

fn keys(object: &Value) -> Vec<String> {
    let annotations = object.pointer("/metadata/annotations");
    let map = annotations.and_then(Value::as_object);
    map.map(|map| map.keys().cloned().collect())
        .unwrap_or_default()
}

/// Resources that device plugins give, counted over all containers. Names without a `/` are Kubernetes' own.
fn devices(spec: &Value) -> Option<Devices> {
    if spec.get("resourceClaims").is_some() {
        return None;
    }
    let mut found = BTreeMap::<String, Vec<String>>::new();
    let containers = ["containers", "initContainers"]
        .iter()
        .filter_map(|key| spec.get(*key)?.as_array())
        .flatten();
    for container in containers {
        let resources = container.pointer("/resources/limits");
        let resources = resources.or_else(|| container.pointer("/resources/requests"));
        for (resource, count) in resources.and_then(Value::as_object).into_iter().flatten() {
            let count = match count {
                Value::String(text) => text.parse().unwrap_or(0),
                count => count.as_u64().unwrap_or(0),
            };
            if resource.contains('/') {
                let ids = found.entry(resource.clone()).or_default();
                ids.extend((0..count).map(|number| format!("{resource}-{number}")));
            }
        }
    }
    Some(found)
}
