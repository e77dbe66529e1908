//! Pods of a case, and the calls that a container runtime makes for them.

use std::ffi::OsStr;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::Harness;
pub(crate) use crate::sandbox::Sandbox as Pod;
use crate::{
    node::runtime::IMAGE,
    sandbox::{Answer, Running},
    single_node::{BIN_DIR, GENERATED},
};

#[derive(Debug, Default, Clone)]
pub(crate) struct PodSpec<'a> {
    /// Empty for `default`.
    pub(crate) namespace: &'a str,
    pub(crate) annotations: Vec<(&'a str, String)>,
    /// Empty for the harness's own node.
    pub(crate) node: &'a str,
}

impl<'a> PodSpec<'a> {
    /// Returns a pod of this namespace.
    pub(crate) fn in_namespace(namespace: &'a str) -> Self {
        Self {
            namespace,
            ..Self::default()
        }
    }

    /// Returns a pod in `default` with these annotations.
    pub(crate) fn annotated(annotations: &[(&'a str, &str)]) -> Self {
        let annotations = annotations.iter();
        Self {
            annotations: annotations
                .map(|(key, text)| (*key, (*text).to_owned()))
                .collect(),
            ..Self::default()
        }
    }
}

pub(crate) const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
pub(crate) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
pub(crate) const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

impl Harness {
    /// Creates a pod in `default` whose annotation requests these networks.
    pub(crate) fn pod(&self, name: &str, networks: &str) -> anyhow::Result<Pod> {
        let annotation = [(NETWORKS, networks)];
        let count = usize::from(!networks.is_empty());
        self.pod_with(name, &PodSpec::annotated(&annotation[..count]))
    }

    pub(crate) fn pod_with(&self, name: &str, spec: &PodSpec<'_>) -> anyhow::Result<Pod> {
        let namespace = if spec.namespace.is_empty() {
            "default"
        } else {
            spec.namespace
        };
        let annotations: serde_json::Map<_, _> = spec
            .annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let node = if spec.node.is_empty() {
            &self.node().name
        } else {
            spec.node
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

    /// Makes the network namespace of a pod that the API server need not have.
    pub(crate) fn sandbox(&self, namespace: &str, name: &str, uid: &str) -> anyhow::Result<Pod> {
        let pod = Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            id: format!("{name}-{uid}"),
            netns_name: format!("{namespace}-{name}"),
        };
        self.pods.borrow_mut().push(pod.clone());
        self.node().run(&["ip", "netns", "add", &pod.netns_name])?;
        Ok(pod)
    }

    /// Deletes the pod from the API server.
    pub(crate) fn delete_pod(&self, pod: &Pod) -> anyhow::Result<()> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}?gracePeriodSeconds=0",
            pod.namespace, pod.name
        );
        self.api("DELETE", &path, &Value::Null).map(drop)
    }

    /// Waits until the daemon's watch has delivered all changes of pods so far: it attaches a pod that is created now.
    pub(crate) fn wait_for_watch(&self) -> anyhow::Result<()> {
        let number = self.pods.borrow().len();
        let pod = self.pod(&format!("watched-{number}"), "")?;
        self.add(&pod)?;
        self.del(&pod)
    }

    /// Deletes the pod's network namespace.
    pub(crate) fn delete_netns(&self, pod: &Pod) -> anyhow::Result<()> {
        self.node()
            .run(&["ip", "netns", "delete", &pod.netns_name])
            .map(drop)
    }

    /// Returns the generated configuration, as a runtime passes it to the shim.
    pub(crate) fn config(&self) -> anyhow::Result<Value> {
        let bytes = std::fs::read(self.node().path(GENERATED))
            .with_context(|| format!("cannot read {GENERATED}"))?;
        serde_json::from_slice(&bytes).with_context(|| format!("{GENERATED} is no JSON"))
    }

    /// Returns the generated configuration with other keys; `null` removes a key.
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

    /// Runs the shim with exactly these CNI variables.
    pub(crate) fn shim(
        &self,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        stdin: &[u8],
    ) -> anyhow::Result<Answer> {
        self.spawn_shim(env, stdin)?.answer()
    }

    /// Starts the shim without waiting for its end.
    pub(crate) fn spawn_shim(
        &self,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        stdin: &[u8],
    ) -> anyhow::Result<Running> {
        let shim = self.node().command(&self.programs.borrow().shim);
        Running::start(shim, env, stdin)
    }

    /// Calls the shim for a pod with the generated configuration.
    pub(crate) fn verb(&self, verb: &str, pod: &Pod) -> anyhow::Result<Answer> {
        self.verb_with(verb, pod, &json!({}))
    }

    /// Does the same with other keys in the configuration.
    pub(crate) fn verb_with(&self, verb: &str, pod: &Pod, keys: &Value) -> anyhow::Result<Answer> {
        self.verb_env(verb, pod, keys, &[])
    }

    /// Does the same with other variables.
    pub(crate) fn verb_env(
        &self,
        verb: &str,
        pod: &Pod,
        keys: &Value,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Answer> {
        let mut all = pod.env(verb);
        for (key, value) in env {
            all.retain(|(known, _)| known != key);
            all.push(((*key).to_owned(), (*value).to_owned()));
        }
        self.shim(&all, self.config_with(keys)?.to_string().as_bytes())
    }

    /// Calls the shim with a verb that concerns no container, with other keys in the configuration.
    pub(crate) fn node_verb(&self, verb: &str, keys: &Value) -> anyhow::Result<Answer> {
        let config = self.config_with(keys)?;
        self.shim(
            &[("CNI_COMMAND", verb), ("CNI_PATH", BIN_DIR)],
            config.to_string().as_bytes(),
        )
    }

    /// Starts a call of the shim with the generated configuration.
    pub(crate) fn spawn_verb(&self, verb: &str, pod: &Pod) -> anyhow::Result<Running> {
        self.spawn_verb_with(verb, pod, &json!({}))
    }

    /// Does the same with other keys in the configuration.
    pub(crate) fn spawn_verb_with(
        &self,
        verb: &str,
        pod: &Pod,
        keys: &Value,
    ) -> anyhow::Result<Running> {
        let config = self.config_with(keys)?.to_string();
        self.spawn_shim(&pod.env(verb), config.as_bytes())
    }

    /// Creates a pod in `default` whose annotation requests these networks, and attaches it.
    pub(crate) fn attach(&self, name: &str, networks: &str) -> anyhow::Result<Pod> {
        self.attach_with(name, networks, &json!({}))
    }

    /// Does the same with other keys in the configuration.
    pub(crate) fn attach_with(
        &self,
        name: &str,
        networks: &str,
        keys: &Value,
    ) -> anyhow::Result<Pod> {
        let pod = self.pod(name, networks)?;
        self.add_with(&pod, keys)?;
        Ok(pod)
    }

    /// Fails unless ADD fails with these words, before any plugin runs.
    pub(crate) fn ensure_refused(&self, pod: &Pod, words: &[&str]) -> anyhow::Result<()> {
        self.ensure_refused_with(pod, &json!({}), words)
    }

    /// Does the same with other keys in the configuration.
    pub(crate) fn ensure_refused_with(
        &self,
        pod: &Pod,
        keys: &Value,
        words: &[&str],
    ) -> anyhow::Result<()> {
        self.verb_with("ADD", pod, keys)?.error_contains(words)?;
        self.expect_calls(pod, &[])
    }

    pub(crate) fn add(&self, pod: &Pod) -> anyhow::Result<Value> {
        self.verb("ADD", pod)?
            .success()
            .with_context(|| format!("ADD of {}", pod.name))
    }

    pub(crate) fn add_with(&self, pod: &Pod, keys: &Value) -> anyhow::Result<Value> {
        self.verb_with("ADD", pod, keys)?
            .success()
            .with_context(|| format!("ADD of {}", pod.name))
    }

    pub(crate) fn del(&self, pod: &Pod) -> anyhow::Result<()> {
        let document = self
            .verb("DEL", pod)?
            .success()
            .with_context(|| format!("DEL of {}", pod.name))?;
        ensure!(document.is_null(), "DEL printed {document}");
        Ok(())
    }
}
