//! What can be seen from outside: calls of plugins, state, status, results.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{super::plugin, Bench, Pod, pods::STATUS};
use crate::{
    node::inspect::{Addresses, addresses},
    sh,
    single_node::BIN_DIR,
};

/// The calls for a pod with network `a`, until it is gone again.
pub(crate) const WITH_A: [&str; 4] = ["ADD primary", "ADD a", "DEL a", "DEL primary"];
/// The same with networks `a` and `b`.
pub(crate) const WITH_A_AND_B: [&str; 6] = [
    "ADD primary",
    "ADD a",
    "ADD b",
    "DEL b",
    "DEL a",
    "DEL primary",
];

/// One call of a plugin.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) verb: String,
    pub(crate) program: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: Value,
}

impl Call {
    /// Name of the network that the plugin was called for.
    pub(crate) fn network(&self) -> &str {
        self.stdin["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn variable(&self, name: &str) -> &str {
        self.env.get(name).map(String::as_str).unwrap_or_default()
    }
}

impl Bench {
    fn recorder(&self, path: &str) -> PathBuf {
        self.scene
            .node
            .path(&format!("{BIN_DIR}/{}/{path}", plugin::FOLDER))
    }

    /// Tells the recorder what to answer for a network; `null` takes that back.
    pub(crate) fn answer(&self, network: &str, verb: &str, answer: &Value) -> anyhow::Result<()> {
        let file = self.recorder(&format!("answers/{network}.{verb}.json"));
        if answer.is_null() {
            return Ok(fs::remove_file(file)?);
        }
        fs::create_dir_all(file.parent().context("a file lies in a folder")?)?;
        Ok(fs::write(file, answer.to_string())?)
    }

    /// Makes a plugin fail with that code and message.
    pub(crate) fn fails(
        &self,
        network: &str,
        verb: &str,
        code: u64,
        msg: &str,
    ) -> anyhow::Result<()> {
        let error = json!({"cniVersion": "1.0.0", "code": code, "msg": msg, "details": "told to"});
        self.answer(network, verb, &json!({"error": error}))
    }

    /// Every call for a pod, in order.
    pub(crate) fn calls(&self, pod: &Pod) -> anyhow::Result<Vec<Call>> {
        self.calls_for(&pod.id)
    }

    /// The same by container id, or [`plugin::NOBODY`].
    pub(crate) fn calls_for(&self, id: &str) -> anyhow::Result<Vec<Call>> {
        let text = fs::read_to_string(self.recorder(&format!("calls/{id}"))).unwrap_or_default();
        text.lines()
            .map(|line| {
                let call: Value = serde_json::from_str(line)?;
                Ok(Call {
                    verb: call["verb"].as_str().unwrap_or_default().to_owned(),
                    program: call["program"].as_str().unwrap_or_default().to_owned(),
                    env: serde_json::from_value(call["env"].clone())?,
                    stdin: call["stdin"].clone(),
                })
            })
            .collect()
    }

    /// `VERB network` of every call for a pod.
    pub(crate) fn order(&self, pod: &Pod) -> anyhow::Result<Vec<String>> {
        let calls = self.calls(pod)?;
        Ok(calls
            .iter()
            .map(|call| format!("{} {}", call.verb, call.network()))
            .collect())
    }

    /// Fails unless the plugins were called like this.
    pub(crate) fn called(&self, pod: &Pod, expected: &[&str]) -> anyhow::Result<()> {
        let order = self.order(pod)?;
        ensure!(
            order == expected,
            "plugins were called {order:?} instead of {expected:?}"
        );
        Ok(())
    }

    /// The one call of that kind.
    pub(crate) fn call(&self, pod: &Pod, verb: &str, network: &str) -> anyhow::Result<Call> {
        let mut calls = self
            .calls(pod)?
            .into_iter()
            .filter(|call| call.verb == verb && call.network() == network);
        let call = calls
            .next()
            .with_context(|| format!("{verb} {network} was not called"))?;
        ensure!(
            calls.next().is_none(),
            "{verb} {network} was called more than once"
        );
        Ok(call)
    }

    /// Where a pod's state is.
    pub(crate) fn state_file(&self, pod: &Pod) -> PathBuf {
        self.scene
            .node
            .path(&format!("/var/lib/cni/multus/{}", pod.id))
    }

    /// A pod's state.
    pub(crate) fn state(&self, pod: &Pod) -> anyhow::Result<Value> {
        let file = self.state_file(pod);
        let bytes = fs::read(&file).with_context(|| format!("no state in {}", file.display()))?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// The network status in the pod's annotation.
    pub(crate) fn status(&self, pod: &Pod) -> anyhow::Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let object = self.api("GET", &path, &Value::Null)?.json()?;
        let text = object["metadata"]["annotations"][STATUS]
            .as_str()
            .context("the pod has no network status")?;
        Ok(serde_json::from_str(text)?)
    }

    /// What is inside the pod's network namespace.
    pub(crate) fn inside(&self, pod: &Pod) -> anyhow::Result<Addresses> {
        let text = self.scene.node.run(&[
            "ip",
            "netns",
            "exec",
            &pod.netns_name(),
            "ip",
            "-o",
            "address",
        ])?;
        Ok(addresses(&text))
    }

    /// A family's routes in the pod, as iproute prints them.
    pub(crate) fn routes(&self, pod: &Pod, family: &str) -> anyhow::Result<String> {
        let netns = pod.netns_name();
        let inside = ["ip", "netns", "exec", &netns, "ip", family, "route"];
        self.scene.node.run(&inside)
    }

    /// `gateway interface` of the pod's default routes: the one of IPv4, then the one of IPv6. More or fewer are an error.
    pub(crate) fn default_routes(&self, pod: &Pod) -> anyhow::Result<[String; 2]> {
        let one = |family| -> anyhow::Result<String> {
            let text = self.routes(pod, family)?;
            let lines: Vec<_> = text.lines().filter(|l| l.starts_with("default")).collect();
            let [line] = lines.as_slice() else {
                anyhow::bail!("{family}: not one default route: {text}");
            };
            let after = |word| {
                let mut words = line.split_whitespace().skip_while(|known| *known != word);
                words.nth(1).unwrap_or_default()
            };
            Ok(format!("{} {}", after("via"), after("dev")))
        };
        Ok([one("-4")?, one("-6")?])
    }

    /// The cached result of an attachment.
    pub(crate) fn cached(&self, pod: &Pod, network: &str, ifname: &str) -> anyhow::Result<Value> {
        let file = format!("/var/lib/cni/multus/results/{network}-{}-{ifname}", pod.id);
        let bytes = fs::read(self.scene.node.path(&file)).with_context(|| file.clone())?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Waits until the generated configuration has that value.
    pub(crate) fn becomes(&self, key: &str, value: &Value) -> anyhow::Result<()> {
        sh::until(10, "the generated file follows", || {
            let config = self.config()?;
            ensure!(
                config[key] == *value,
                "{key} is {}, not {value}",
                config[key]
            );
            Ok(())
        })
    }

    /// A primary of a case's own, since answers to STATUS may be kept for a while; the keys that select it.
    pub(crate) fn own_primary(&self, name: &str, version: &str) -> anyhow::Result<Value> {
        let path = format!("/etc/cni/rules/{name}.conflist");
        let list = json!({"cniVersion": version, "name": name, "plugins": [{"type": "recorder"}]});
        self.scene.node.write(&path, list.to_string())?;
        Ok(json!({"clusterNetwork": path}))
    }
}
