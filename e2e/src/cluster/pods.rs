//! What checks of pods ask of a cluster, whoever started it.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    control_plane::{api_client::ApiClient, objects},
    node::inspect::{Addresses, addresses},
    sh::{self, words},
};

/// A cluster with pods in the namespace `default`.
pub(crate) trait Pods {
    /// Returns the client for requests that are repeated.
    fn api(&self) -> &ApiClient;

    /// Runs kubectl as the administrator and returns its stdout.
    fn kubectl(&self, args: &[&str]) -> anyhow::Result<String>;

    /// Waits until a pod runs, and returns its interfaces.
    fn interfaces(&self, pod: &str) -> anyhow::Result<Addresses> {
        sh::until(180, &format!("{pod} runs"), || {
            let object = self.pod(pod)?;
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            ensure!(phase == "Running", "it is {phase}");
            Ok(())
        })
        .with_context(|| self.last_event(pod))?;
        Ok(addresses(
            &self.kubectl(&["exec", pod, "--", "ip", "-o", "address"])?,
        ))
    }

    /// Waits until a pod runs; fails unless it has exactly these interfaces, and the addresses of its status.
    fn ensure_interfaces(&self, pod: &str, interfaces: &[&str]) -> anyhow::Result<Addresses> {
        let inside = self.interfaces(pod)?;
        let names: Vec<_> = inside.keys().map(String::as_str).collect();
        ensure!(
            names == interfaces,
            "{pod} has {inside:?}, expected are {interfaces:?}"
        );
        let object = self.pod(pod)?;
        let own = object["status"]["podIP"]
            .as_str()
            .context("a running pod has an address")?;
        let first = inside["eth0"]
            .iter()
            .any(|address| address.starts_with(&format!("{own}/")));
        ensure!(
            first,
            "the status of {pod} has the address {own}, its eth0 {:?}",
            inside["eth0"]
        );
        objects::ensure_status(&object, &inside).with_context(|| pod.to_owned())?;
        Ok(inside)
    }

    /// Reads a pod.
    fn pod(&self, name: &str) -> anyhow::Result<Value> {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.api().request("GET", &path, &Value::Null)?.json()
    }

    /// Reads all Nodes.
    fn nodes(&self) -> anyhow::Result<Vec<Value>> {
        let list = self.api().request("GET", "/api/v1/nodes", &Value::Null)?;
        let nodes = list.json()?["items"].as_array().cloned();
        nodes.context("there are no Nodes")
    }

    /// Deletes pods and waits until they are deleted.
    fn delete(&self, pods: &[String]) -> anyhow::Result<()> {
        let names: Vec<_> = pods.iter().map(String::as_str).collect();
        self.kubectl(&[&["delete", "pod", "--timeout=120s"], &names[..]].concat())
            .map(drop)
    }

    /// Returns the message of a pod's last event, which says why it does not start.
    fn last_event(&self, pod: &str) -> String {
        let events = self.kubectl(&words!("get events --field-selector involvedObject.name={pod} --output=jsonpath={{.items[-1:].message}}"));
        events.unwrap_or_default()
    }
}
