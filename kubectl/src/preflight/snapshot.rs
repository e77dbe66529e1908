//! A snapshot of a cluster: the objects that preflight uses, as the API server or files have them, without any decision about them.

use std::collections::{BTreeMap, BTreeSet};

use plan::placement::Taint;
use serde_json::{Map, Value};

use crate::{
    network_status,
    object::{self, Definition, Object},
    validate::KnownDefinitions,
};

/// Group, version and kind of policies that change objects, which API servers before 1.36 have where somebody has switched them on.
pub(super) const BETA_POLICY: [&str; 2] = [
    "admissionregistration.k8s.io/v1beta1",
    "MutatingAdmissionPolicy",
];
/// The name of the CRD of definitions.
pub(super) const CRD: &str = "network-attachment-definitions.k8s.cni.cncf.io";

/// The objects of a cluster at one moment.
#[derive(Debug, Default)]
pub(super) struct ClusterSnapshot {
    /// Existing pods, and templates that have no pod.
    pub(super) pods: Vec<ClusterPod>,
    pub(super) definitions: Vec<Definition>,
    /// The same definitions in the form that a plan uses.
    pub(super) known: KnownDefinitions,
    /// True when the cluster has the CRD of definitions; `None` when that was not read.
    pub(super) has_crd: Option<bool>,
    /// Namespace and name of the Helm release that made the CRD without `helm.sh/resource-policy: keep`: Helm deletes it, and all definitions with it.
    pub(super) crd_deleter: Option<(String, String)>,
    pub(super) nodes: Vec<ClusterNode>,
    pub(super) daemon_sets: Vec<DaemonSet>,
    /// Data of `ConfigMaps` by namespace and name.
    pub(super) config_maps: BTreeMap<(String, String), BTreeMap<String, String>>,
    /// The `HelmChart` objects by which K3s and RKE2 install charts.
    pub(super) helm_charts: Vec<HelmChart>,
    /// Explicit values of Helm releases by namespace and name.
    pub(super) release_values: BTreeMap<(String, String), Map<String, Value>>,
    /// Helm releases, by namespace and name, whose uninstall deletes neither the CRD nor a definition.
    pub(super) uninstallable: BTreeSet<(String, String)>,
    /// The API server's version.
    pub(super) kubernetes: Option<String>,
    /// Whether the API server has [`BETA_POLICY`].
    pub(super) has_beta_policies: bool,
    /// Everything that could not be read, with the reasons.
    pub(super) unread: Vec<String>,
}

/// A pod, or the pod template of a controller.
#[derive(Debug)]
pub(super) struct ClusterPod {
    pub(super) object: object::Pod,
    /// True when a container requests a port of the node.
    pub(super) has_host_ports: bool,
    /// True when an annotation limits the pod's bandwidth.
    pub(super) has_bandwidth: bool,
    /// The networks that it has besides the default one; `None` while its status does not say.
    pub(super) attached: Option<Vec<String>>,
}

/// A node as its object describes it.
#[derive(Debug, Default)]
pub(super) struct ClusterNode {
    pub(super) name: String,
    pub(super) architecture: String,
    pub(super) os: String,
    pub(super) kernel: String,
    /// Runtime and version, such as `containerd://2.0.4-k3s2`.
    pub(super) runtime: String,
    /// The kubelet's version, such as `v1.32.3+rke2r1`.
    pub(super) kubelet: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
}

/// A `HelmChart`, whose job installs a release of its name.
#[derive(Debug)]
pub(super) struct HelmChart {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The Addon that made it, which has the name of a manifest file up to the first dot.
    pub(super) addon: Option<String>,
}

/// The parts of a `DaemonSet` by which an installation of Multus is recognised.
#[derive(Debug, Default)]
pub(super) struct DaemonSet {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The label `app`, which is the chart's name in charts of Multus.
    pub(super) app: String,
    /// Namespace and name of its Helm release.
    pub(super) release: Option<(String, String)>,
    /// The programs of its containers, without init containers.
    pub(super) commands: Vec<String>,
    /// The arguments of its containers, without init containers.
    pub(super) arguments: Vec<String>,
    /// The images of its containers, without init containers.
    pub(super) images: Vec<String>,
    /// The names of its containers' environment variables.
    pub(super) variables: Vec<String>,
    /// The names of the `ConfigMaps` that it mounts.
    pub(super) config_maps: Vec<String>,
}

impl ClusterSnapshot {
    /// Adds an object, or all items of a list; objects of other kinds are ignored.
    pub(super) fn add(&mut self, document: &Value, namespace: &str) -> Result<(), String> {
        let kind = text(document, "/kind");
        if kind.ends_with("List")
            && let Some(items) = document.get("items").and_then(Value::as_array)
        {
            // Items of a list of one kind may leave it out.
            let item_kind = kind.trim_end_matches("List");
            return items.iter().try_for_each(|item| {
                let mut item = item.clone();
                if item.get("kind").is_none() {
                    item["kind"] = item_kind.into();
                }
                self.add(&item, namespace)
            });
        }
        match kind.as_str() {
            "Node" => self.nodes.push(node(document)),
            "DaemonSet" => {
                let mut found = daemon_set(document);
                or_default(&mut found.namespace, namespace);
                self.daemon_sets.push(found);
            }
            "HelmChart" => {
                let mut found = helm_chart(document);
                or_default(&mut found.namespace, namespace);
                self.helm_charts.push(found);
            }
            "ConfigMap" => self.add_config_map(document, namespace),
            "CustomResourceDefinition" if text(document, "/metadata/name") == CRD => {
                self.has_crd = Some(true);
                self.crd_deleter = owner(document).filter(|_| !is_kept(document));
            }
            _ => {}
        }
        for object in object::read(document, namespace)? {
            match object {
                Object::Definition(definition) => self.add_definition(definition),
                Object::Pod(_) if object::has_ended(document) => {}
                Object::Pod(pod) => self.pods.push(record(document, *pod)),
            }
        }
        Ok(())
    }

    fn add_definition(&mut self, definition: Definition) {
        self.known.add(&definition.nad);
        self.definitions.push(definition);
        self.has_crd = Some(true);
    }

    pub(super) fn add_config_map(&mut self, object: &Value, namespace: &str) {
        let mut own_namespace = text(object, "/metadata/namespace");
        or_default(&mut own_namespace, namespace);
        let data = object["data"].as_object().into_iter().flatten();
        let data = data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let name = text(object, "/metadata/name");
        self.config_maps
            .insert((own_namespace, name), data.collect());
    }

    /// Removes templates that have pods, since the pods themselves are validated.
    pub(super) fn drop_used_templates(&mut self) {
        let (pods, mut templates): (Vec<_>, Vec<_>) =
            self.pods.drain(..).partition(ClusterPod::is_pod);
        templates.retain(|one| !pods.iter().any(|pod| pod.object.is_of(&one.object)));
        self.pods = pods;
        self.pods.extend(templates);
    }

    /// Returns the API server's version, or else the newest version of a kubelet.
    pub(super) fn version(&self) -> Option<&str> {
        let kubelets = self.nodes.iter().map(|node| node.kubelet.as_str());
        let newest = kubelets.filter(|version| !version.is_empty()).max();
        self.kubernetes.as_deref().or(newest)
    }
}

fn attached(document: &Value) -> Option<Vec<String>> {
    let status = network_status::of(document).ok().flatten()?;
    let additional = status.into_iter().filter(|one| !one.default);
    Some(additional.map(|one| one.name).collect())
}

fn record(document: &Value, pod: object::Pod) -> ClusterPod {
    let spec = match pod.kind.as_str() {
        "Pod" => document.get("spec"),
        _ => [
            "/spec/template/spec",
            "/spec/jobTemplate/spec/template/spec",
        ]
        .iter()
        .find_map(|pointer| document.pointer(pointer)),
    };
    let containers = spec.and_then(|spec| spec["containers"].as_array());
    let mut ports = containers
        .into_iter()
        .flatten()
        .filter_map(|one| one["ports"].as_array())
        .flatten();
    let has_host_ports = ports.any(|port| port["hostPort"].as_u64().is_some_and(|port| port > 0));
    let is_bandwidth = |key: &String| {
        [
            "kubernetes.io/ingress-bandwidth",
            "kubernetes.io/egress-bandwidth",
        ]
        .contains(&key.as_str())
    };
    ClusterPod {
        has_host_ports,
        has_bandwidth: pod.annotation_keys.iter().any(is_bandwidth),
        attached: attached(document),
        object: pod,
    }
}

fn node(document: &Value) -> ClusterNode {
    let info = |key: &str| text(document, &format!("/status/nodeInfo/{key}"));
    let taints = document.pointer("/spec/taints").and_then(Value::as_array);
    ClusterNode {
        name: text(document, "/metadata/name"),
        architecture: info("architecture"),
        os: info("operatingSystem"),
        kernel: info("kernelVersion"),
        runtime: info("containerRuntimeVersion"),
        kubelet: info("kubeletVersion"),
        labels: texts(document, "/metadata/labels"),
        taints: taints
            .into_iter()
            .flatten()
            .map(|taint| Taint {
                key: text(taint, "/key"),
                value: text(taint, "/value"),
                effect: text(taint, "/effect"),
            })
            .collect(),
    }
}

fn helm_chart(document: &Value) -> HelmChart {
    let mut annotations = texts(document, "/metadata/annotations");
    let mut owner =
        |what: &str| annotations.remove(&format!("objectset.rio.cattle.io/owner-{what}"));
    let is_of_addon = owner("gvk").is_some_and(|kind| kind.ends_with("Kind=Addon"));
    HelmChart {
        namespace: text(document, "/metadata/namespace"),
        name: text(document, "/metadata/name"),
        addon: owner("name").filter(|_| is_of_addon),
    }
}

/// Reads a `DaemonSet`.
pub(super) fn daemon_set(document: &Value) -> DaemonSet {
    let containers = document.pointer("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array);
    let containers: Vec<_> = containers.into_iter().flatten().collect();
    let variables = containers
        .iter()
        .filter_map(|container| container["env"].as_array())
        .flatten();
    let volumes = document.pointer("/spec/template/spec/volumes");
    let volumes = volumes.and_then(Value::as_array).into_iter().flatten();
    DaemonSet {
        namespace: text(document, "/metadata/namespace"),
        name: text(document, "/metadata/name"),
        app: text(document, "/metadata/labels/app"),
        release: owner(document),
        commands: containers
            .iter()
            .map(|container| text(container, "/command/0"))
            .collect(),
        arguments: containers
            .iter()
            .filter_map(|container| container["args"].as_array())
            .flatten()
            .filter_map(|argument| argument.as_str().map(str::to_owned))
            .collect(),
        images: containers
            .iter()
            .map(|container| text(container, "/image"))
            .collect(),
        variables: variables.map(|one| text(one, "/name")).collect(),
        config_maps: volumes
            .map(|volume| text(volume, "/configMap/name"))
            .filter(|name| !name.is_empty())
            .collect(),
    }
}

/// Returns namespace and name of the Helm release that owns an object.
fn owner(document: &Value) -> Option<(String, String)> {
    let mut annotations = texts(document, "/metadata/annotations");
    let mut release = |what: &str| annotations.remove(&format!("meta.helm.sh/release-{what}"));
    release("namespace").zip(release("name"))
}

/// Returns true for an object that Helm never deletes.
fn is_kept(document: &Value) -> bool {
    text(document, "/metadata/annotations/helm.sh~1resource-policy") == "keep"
}

/// Returns true when Helm deletes this object of a release, and network definitions with it, as soon as the release is uninstalled.
pub(super) fn deletes_networks(document: &Value) -> bool {
    let is_network = match text(document, "/kind").as_str() {
        "CustomResourceDefinition" => text(document, "/metadata/name") == CRD,
        kind => kind == object::DEFINITION,
    };
    is_network && !is_kept(document)
}

fn text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn texts(value: &Value, pointer: &str) -> BTreeMap<String, String> {
    let map = value.pointer(pointer).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn or_default(text: &mut String, default: &str) {
    if text.is_empty() {
        default.clone_into(text);
    }
}
