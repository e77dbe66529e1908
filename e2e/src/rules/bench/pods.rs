//! Pods of a case, and the runtime's calls for them.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Bench, Outcome, Running};
use crate::{
    node::runtime::IMAGE,
    single_node::{BIN_DIR, GENERATED},
};

/// A pod with a network namespace, and the sandbox that a runtime would have made.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The container's id.
    pub(crate) id: String,
}

/// What a pod is like.
#[derive(Debug, Default, Clone)]
pub(crate) struct PodForm<'a> {
    /// `default` unless given.
    pub(crate) namespace: &'a str,
    pub(crate) annotations: Vec<(&'a str, String)>,
    /// The one node unless given.
    pub(crate) node: &'a str,
}

pub(crate) const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
pub(crate) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
pub(crate) const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

impl Pod {
    pub(crate) fn netns_name(&self) -> String {
        format!("{}-{}", self.namespace, self.name)
    }

    pub(crate) fn netns(&self) -> String {
        format!("/run/netns/{}", self.netns_name())
    }

    pub(crate) fn args(&self) -> String {
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            self.namespace, self.name, self.id, self.uid
        )
    }

    /// The variables of a call, to be changed by who needs others.
    pub(crate) fn env(&self, verb: &str) -> Vec<(String, String)> {
        [
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", self.id.clone()),
            ("CNI_NETNS", self.netns()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_ARGS", self.args()),
            ("CNI_PATH", BIN_DIR.to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec()
    }
}

impl Bench {
    /// A pod in `default` that asks for these networks.
    pub(crate) fn pod(&self, name: &str, networks: &str) -> anyhow::Result<Pod> {
        let annotations = if networks.is_empty() {
            Vec::new()
        } else {
            vec![(NETWORKS, networks.to_owned())]
        };
        self.pod_of(
            name,
            &PodForm {
                annotations,
                ..PodForm::default()
            },
        )
    }

    pub(crate) fn pod_of(&self, name: &str, form: &PodForm<'_>) -> anyhow::Result<Pod> {
        let namespace = if form.namespace.is_empty() {
            "default"
        } else {
            form.namespace
        };
        let annotations: serde_json::Map<_, _> = form
            .annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let node = if form.node.is_empty() {
            &self.scene.node.name
        } else {
            form.node
        };
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": IMAGE}],
            },
        });
        let made = self
            .api(
                "POST",
                &format!("/api/v1/namespaces/{namespace}/pods"),
                &object,
            )?
            .json()?;
        let uid = made["metadata"]["uid"]
            .as_str()
            .context("a pod has a uid")?
            .to_owned();
        let pod = self.sandbox(namespace, name, &uid)?;
        Ok(pod)
    }

    /// The sandbox of a pod that the API server need not know.
    pub(crate) fn sandbox(&self, namespace: &str, name: &str, uid: &str) -> anyhow::Result<Pod> {
        let pod = Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            id: format!("{name}-{uid}"),
        };
        self.pods.borrow_mut().push(pod.clone());
        self.scene
            .node
            .run(&["ip", "netns", "add", &pod.netns_name()])?;
        Ok(pod)
    }

    /// Takes the pod from the API server.
    pub(crate) fn delete(&self, pod: &Pod) -> anyhow::Result<()> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}?gracePeriodSeconds=0",
            pod.namespace, pod.name
        );
        self.api("DELETE", &path, &Value::Null).map(drop)
    }

    /// Waits until the daemon has seen all that happened to pods so far: it knows of one that was made after it.
    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        let number = self.pods.borrow().len();
        let pod = self.pod(&format!("settle-{number}"), "")?;
        self.add(&pod)?;
        self.del(&pod)
    }

    /// Takes the pod's network namespace.
    pub(crate) fn end_netns(&self, pod: &Pod) -> anyhow::Result<()> {
        self.scene
            .node
            .run(&["ip", "netns", "delete", &pod.netns_name()])
            .map(drop)
    }

    /// The configuration as a runtime hands it to the plugin.
    pub(crate) fn config(&self) -> anyhow::Result<Value> {
        let bytes = std::fs::read(self.scene.node.path(GENERATED))
            .with_context(|| format!("cannot read {GENERATED}"))?;
        serde_json::from_slice(&bytes).with_context(|| format!("{GENERATED} is no JSON"))
    }

    /// The same with other keys; `null` takes one away.
    pub(crate) fn config_with(&self, keys: &Value) -> anyhow::Result<Value> {
        let mut config = self.config()?;
        let map = config
            .as_object_mut()
            .context("a configuration is an object")?;
        for (key, value) in keys.as_object().into_iter().flatten() {
            map.shift_remove(key);
            if !value.is_null() {
                map.insert(key.clone(), value.clone());
            }
        }
        Ok(config)
    }

    /// One verb for a pod with the generated configuration.
    pub(crate) fn verb(&self, verb: &str, pod: &Pod) -> anyhow::Result<Outcome> {
        self.verb_with(verb, pod, &json!({}))
    }

    /// The same with other keys in the configuration.
    pub(crate) fn verb_with(&self, verb: &str, pod: &Pod, keys: &Value) -> anyhow::Result<Outcome> {
        self.verb_env(verb, pod, keys, &[])
    }

    /// The same with other variables.
    pub(crate) fn verb_env(
        &self,
        verb: &str,
        pod: &Pod,
        keys: &Value,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Outcome> {
        let mut all = pod.env(verb);
        for (key, value) in env {
            all.retain(|(known, _)| known != key);
            all.push(((*key).to_owned(), (*value).to_owned()));
        }
        self.shim(&all, self.config_with(keys)?.to_string().as_bytes())
    }

    /// Starts one verb with the generated configuration.
    pub(crate) fn begin(&self, verb: &str, pod: &Pod) -> anyhow::Result<Running> {
        self.begin_with(verb, pod, &json!({}))
    }

    /// The same with other keys in the configuration.
    pub(crate) fn begin_with(
        &self,
        verb: &str,
        pod: &Pod,
        keys: &Value,
    ) -> anyhow::Result<Running> {
        let config = self.config_with(keys)?.to_string();
        self.spawn(&pod.env(verb), config.as_bytes())
    }

    pub(crate) fn add(&self, pod: &Pod) -> anyhow::Result<Value> {
        self.verb("ADD", pod)?
            .well()
            .with_context(|| format!("ADD of {}", pod.name))
    }

    pub(crate) fn add_with(&self, pod: &Pod, keys: &Value) -> anyhow::Result<Value> {
        self.verb_with("ADD", pod, keys)?
            .well()
            .with_context(|| format!("ADD of {}", pod.name))
    }

    pub(crate) fn del(&self, pod: &Pod) -> anyhow::Result<()> {
        let document = self
            .verb("DEL", pod)?
            .well()
            .with_context(|| format!("DEL of {}", pod.name))?;
        ensure!(document.is_null(), "DEL printed {document}");
        Ok(())
    }
}
