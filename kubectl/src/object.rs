//! Reads the objects that networks depend on, from files and from the API server alike: definitions, pods, and controllers with a pod template.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plan::{Devices, NETWORKS_ANNOTATION, Nad, POD_ANNOTATIONS, PodView, objects};
use serde_json::{Map, Value, json};

use crate::{
    network_status::{self, NetworkStatus},
    suggest,
};

/// The API group of definitions.
const GROUP: &str = "k8s.cni.cncf.io";
/// The kind of definitions.
pub(crate) const DEFINITION: &str = "NetworkAttachmentDefinition";

/// An object that defines or requests networks.
#[derive(Debug)]
pub(crate) enum Object {
    /// A network attachment definition.
    Definition(Definition),
    /// A pod, or a controller with a pod template.
    Pod(Box<Pod>),
}

/// A network attachment definition, with the parts that only validation uses.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The parts that a plan uses.
    pub(crate) nad: Arc<Nad>,
    /// The object's `apiVersion`, unchecked.
    pub(crate) api_version: String,
    /// True when `spec.config` is text or absent, since the API server accepts nothing else.
    pub(crate) is_text: bool,
    /// The keys of all annotations.
    pub(crate) annotation_keys: Vec<String>,
}

/// A pod, or the pod template of a controller, with everything that decides about its networks.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pod {
    /// `Pod`, or the controller's kind.
    pub(crate) kind: String,
    /// The parts that a plan uses.
    pub(crate) view: PodView,
    /// The keys of all annotations.
    pub(crate) annotation_keys: Vec<String>,
    /// The keys of annotations that are not text, which the API server refuses.
    pub(crate) non_text_annotations: Vec<String>,
    /// The keys of Multus' annotations that are elsewhere than in the annotations of the pod or its template, each with the place.
    pub(crate) misplaced_annotations: Vec<(String, String)>,
    /// True when the pod uses the node's network namespace.
    pub(crate) host_network: bool,
    /// The devices that it requests, under invented ids; `None` when resource claims may add others.
    pub(crate) devices: Option<Devices>,
    /// The number of pods that run at once from this template.
    pub(crate) replicas: u64,
    /// The only node that it can be on; empty when the scheduler chooses.
    pub(crate) node: String,
    /// What its networks have; empty for a template, and where that cannot be read.
    pub(crate) status: Vec<NetworkStatus>,
    /// Kind and name of a pod's owner, such as `ReplicaSet cart-5d9`.
    pub(crate) owner: Option<String>,
}

impl Pod {
    /// Returns `kind namespace/name`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.view.namespace, self.view.name)
    }

    /// Returns true for a pod that the controller of this template made.
    pub(crate) fn is_of(&self, template: &Self) -> bool {
        let (kind, view) = (template.kind.as_str(), &template.view);
        let is_owner = |owner: &str| match kind {
            "Pod" => false,
            // The owner of a Deployment's pods is a ReplicaSet, whose name is that of the Deployment and a hash.
            "Deployment" => owner
                .strip_prefix(&format!("ReplicaSet {}-", view.name))
                .is_some_and(|hash| !hash.contains('-')),
            kind => owner == format!("{kind} {}", view.name),
        };
        self.view.namespace == view.namespace && self.owner.as_deref().is_some_and(is_owner)
    }
}

impl Object {
    /// Returns `kind namespace/name`.
    pub(crate) fn title(&self) -> String {
        let (kind, namespace, name) = self.identity();
        format!("{kind} {namespace}/{name}")
    }

    /// Returns the pod, or the pod template.
    pub(crate) fn pod(&self) -> Option<&Pod> {
        match self {
            Self::Definition(_) => None,
            Self::Pod(pod) => Some(pod),
        }
    }

    /// Returns kind, namespace and name.
    pub(crate) fn identity(&self) -> (&str, &str, &str) {
        match self {
            Self::Definition(Definition { nad, .. }) => (DEFINITION, &nad.namespace, &nad.name),
            Self::Pod(pod) => (&pod.kind, &pod.view.namespace, &pod.view.name),
        }
    }
}

/// Reads the definitions and pods of a document, lists included; `namespace` is that of objects that name none.
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
    let pod = match networks_of_kubevirt(kind, text("apiVersion")) {
        Some(networks) => Some(virtual_machine(document, kind, networks, namespace)?),
        None if kind == "Pod" => Some(pod(document, namespace)?),
        None => from_template(document, kind, namespace)?,
    };
    Ok(pod
        .map(|pod| Object::Pod(Box::new(pod)))
        .into_iter()
        .collect())
}

/// Returns the reason why a document is not read whose kind, or that of an item of a list, is similar to one that is.
pub(crate) fn misspelled_kind(document: &Value) -> Option<String> {
    let text = |key: &str| document.get(key).and_then(Value::as_str);
    let kind = text("kind")?;
    if kind.ends_with("List") {
        let mut items = document.get("items")?.as_array()?.iter();
        return items.find_map(misspelled_kind);
    }
    let is_short = ["nad", "net-attach-def"].contains(&&*kind.to_lowercase());
    let is_definition = is_short || text("apiVersion").is_some_and(is_current);
    let meant = match kind {
        DEFINITION => return None,
        _ if is_definition => DEFINITION,
        _ => suggest::nearest(kind, [DEFINITION, "Pod"])?,
    };
    Some(format!("unknown kind \"{kind}\": did you mean {meant}?"))
}

/// Returns true for the group and version of definitions that Multus reads.
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
        annotation_keys: annotation_keys(document),
    })
}

/// Reads a pod, or a pod template.
pub(crate) fn pod(object: &Value, namespace: &str) -> Result<Pod, String> {
    // A template may have none.
    let metadata = object.get("metadata").filter(|value| !value.is_null());
    let mut metadata = metadata.cloned().unwrap_or_else(|| json!({}));
    let non_text_annotations = take_non_text(&mut metadata);
    let metadata: ObjectMeta = serde_json::from_value(metadata)
        .map_err(|error| format!("the pod's metadata cannot be read: {error}"))?;
    let name = metadata.name.clone().or(metadata.generate_name.clone());
    let mut view = objects::pod_view(metadata);
    view.name = name.unwrap_or_default();
    or_default(&mut view.namespace, namespace);
    let spec = object.get("spec").unwrap_or(&Value::Null);
    Ok(Pod {
        kind: "Pod".to_owned(),
        view,
        annotation_keys: annotation_keys(object),
        non_text_annotations,
        misplaced_annotations: misplaced(object),
        host_network: spec.get("hostNetwork") == Some(&Value::Bool(true)),
        devices: devices(spec),
        replicas: 1,
        node: node(spec),
        status: network_status::of(object)
            .ok()
            .flatten()
            .unwrap_or_default(),
        owner: owner(object),
    })
}

/// Reads the pod template of any kind that has one, custom resources included; `None` for objects without a template.
fn from_template(document: &Value, kind: &str, namespace: &str) -> Result<Option<Pod>, String> {
    let pointers = [
        "/spec/template",
        "/spec/jobTemplate/spec/template",
        "/template",
    ];
    let mut templates = pointers
        .iter()
        .filter_map(|pointer| document.pointer(pointer));
    let Some(template) = templates.find(|one| one.pointer("/spec/containers").is_some()) else {
        return Ok(None);
    };
    let metadata = |key: &str| {
        let value = document.pointer(&format!("/metadata/{key}"));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut pod = pod(template, namespace)?;
    kind.clone_into(&mut pod.kind);
    pod.view.name = metadata("name");
    pod.view.namespace = metadata("namespace");
    or_default(&mut pod.view.namespace, namespace);
    let on_controller = annotation_keys(document).into_iter();
    let on_controller = on_controller.filter(|key| POD_ANNOTATIONS.contains(&key.as_str()));
    let on_controller = on_controller.map(|key| (key, format!("on the {kind} itself")));
    pod.misplaced_annotations.extend(on_controller);
    let counts = [
        "/spec/replicas",
        "/spec/parallelism",
        "/spec/jobTemplate/spec/parallelism",
    ];
    let mut counts = counts
        .iter()
        .filter_map(|pointer| document.pointer(pointer));
    pod.replicas = counts.find_map(Value::as_u64).unwrap_or(1);
    Ok(Some(pod))
}

/// Returns where an object of `KubeVirt` has its networks, or `None` for any other kind.
fn networks_of_kubevirt(kind: &str, api_version: &str) -> Option<&'static str> {
    match kind {
        _ if !api_version.starts_with("kubevirt.io/") => None,
        "VirtualMachine" => Some("/spec/template/spec/networks"),
        "VirtualMachineInstance" => Some("/spec/networks"),
        _ => None,
    }
}

/// Reads a virtual machine as the pod that `KubeVirt` creates for it, which requests the networks in its annotation.
fn virtual_machine(
    document: &Value,
    kind: &str,
    networks: &str,
    namespace: &str,
) -> Result<Pod, String> {
    let own = |key: &str| document.pointer(&format!("/metadata/{key}"));
    let networks = document.pointer(networks).and_then(Value::as_array);
    let names = networks.into_iter().flatten();
    let names = names.filter_map(|one| one.pointer("/multus/networkName")?.as_str());
    let entries = names.map(|name| match name.split_once('/') {
        Some((namespace, name)) => json!({"namespace": namespace, "name": name}),
        None => json!({"name": name}),
    });
    let annotations = json!({NETWORKS_ANNOTATION: entries.collect::<Value>().to_string()});
    let metadata = json!({"name": own("name"), "generateName": own("generateName"), "namespace": own("namespace"),
        "annotations": annotations});
    let mut pod = pod(&json!({"metadata": metadata}), namespace)?;
    kind.clone_into(&mut pod.kind);
    // KubeVirt requests the devices itself.
    pod.devices = None;
    Ok(pod)
}

/// Removes the annotations that are not text, and returns their keys.
fn take_non_text(metadata: &mut Value) -> Vec<String> {
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return Vec::new();
    };
    let is_other = |value: &Value| !value.is_string() && !value.is_null();
    let others = annotations.iter().filter(|(_, value)| is_other(value));
    let keys = others.map(|(key, _)| key.clone()).collect();
    annotations.retain(|_, value| value.is_string());
    keys
}

/// Returns the keys of Multus' annotations in other places of an object than its annotations, each with the place.
fn misplaced(object: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for place in ["metadata.labels", "metadata", "spec.annotations", "spec"] {
        let keys = object.pointer(&format!("/{}", place.replace('.', "/")));
        let keys = keys.and_then(Value::as_object);
        let keys = keys.into_iter().flat_map(Map::keys);
        let keys = keys.filter(|key| POD_ANNOTATIONS.contains(&key.as_str()));
        found.extend(keys.map(|key| (key.clone(), format!("in {place}"))));
    }
    found
}

/// Returns true when the object will not start pods again: it has ended, is being deleted, or has an owner that is validated itself.
pub(crate) fn has_ended(document: &Value) -> bool {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
    let is_there = |pointer| document.pointer(pointer).is_some();
    ["Succeeded", "Failed"]
        .map(Some)
        .contains(&text("/status/phase"))
        || is_there("/metadata/deletionTimestamp")
        || is_there("/status/completionTime")
        || (text("/kind") != Some("Pod") && is_there("/metadata/ownerReferences/0"))
}

/// Returns the node that a pod's `spec` names.
fn node(spec: &Value) -> String {
    let selected = spec.pointer("/nodeSelector/kubernetes.io~1hostname");
    let node = spec.get("nodeName").or(selected).and_then(Value::as_str);
    node.unwrap_or_default().to_owned()
}

fn owner(object: &Value) -> Option<String> {
    let owner = object.pointer("/metadata/ownerReferences/0")?;
    let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
    Some(format!("{} {}", text("kind"), text("name")))
}

fn or_default(text: &mut String, default: &str) {
    if text.is_empty() {
        default.clone_into(text);
    }
}

fn annotation_keys(object: &Value) -> Vec<String> {
    let annotations = object.pointer("/metadata/annotations");
    let map = annotations.and_then(Value::as_object);
    map.map(|map| map.keys().cloned().collect())
        .unwrap_or_default()
}

/// Returns the resources of device plugins that all containers request together. Names without a `/` are Kubernetes' own resources.
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
