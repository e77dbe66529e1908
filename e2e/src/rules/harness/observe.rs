//! Observations from outside: calls of plugins, state, network status, results, addresses and routes.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{super::recorder, Harness, Pod, pods::STATUS};
use crate::{
    node::inspect::{Addresses, addresses},
    sh::{self, words},
    single_node::BIN_DIR,
};

/// The calls for a pod with network `a`, from `ADD` to `DEL`.
pub(crate) const WITH_A: [&str; 4] = ["ADD primary", "ADD a", "DEL a", "DEL primary"];
/// The calls for a pod with networks `a` and `b`, from `ADD` to `DEL`.
pub(crate) const WITH_A_AND_B: [&str; 6] = [
    "ADD primary",
    "ADD a",
    "ADD b",
    "DEL b",
    "DEL a",
    "DEL primary",
];

/// A call of the recording plugin.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) verb: String,
    pub(crate) program: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: Value,
}

impl Call {
    /// Returns the name of the network that the plugin was called for.
    pub(crate) fn network(&self) -> &str {
        self.stdin["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn variable(&self, name: &str) -> &str {
        self.env.get(name).map(String::as_str).unwrap_or_default()
    }
}

impl Harness {
    fn recorder_path(&self, path: &str) -> PathBuf {
        self.node()
            .path(&format!("{BIN_DIR}/{}/{path}", recorder::DIRECTORY))
    }

    /// Sets the recorder's answer for a network; `null` removes it.
    pub(crate) fn set_answer(
        &self,
        network: &str,
        verb: &str,
        answer: &Value,
    ) -> anyhow::Result<()> {
        let file = self.recorder_path(&format!("answers/{network}.{verb}.json"));
        if answer.is_null() {
            return Ok(fs::remove_file(file)?);
        }
        fs::create_dir_all(file.parent().context("a file has a directory")?)?;
        Ok(fs::write(file, answer.to_string())?)
    }

    /// Makes a plugin fail with that code and message.
    pub(crate) fn set_error(
        &self,
        network: &str,
        verb: &str,
        code: u64,
        msg: &str,
    ) -> anyhow::Result<()> {
        let error =
            json!({"cniVersion": "1.0.0", "code": code, "msg": msg, "details": "by the case"});
        self.set_answer(network, verb, &json!({"error": error}))
    }

    /// Returns the calls for a pod, in order.
    pub(crate) fn calls(&self, pod: &Pod) -> anyhow::Result<Vec<Call>> {
        self.calls_of(&pod.id)
    }

    /// Returns the calls for a container ID, or for [`recorder::NO_CONTAINER`].
    pub(crate) fn calls_of(&self, id: &str) -> anyhow::Result<Vec<Call>> {
        let text =
            fs::read_to_string(self.recorder_path(&format!("calls/{id}"))).unwrap_or_default();
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

    /// Returns `VERB network` of every call for a pod.
    pub(crate) fn call_order(&self, pod: &Pod) -> anyhow::Result<Vec<String>> {
        let calls = self.calls(pod)?;
        Ok(calls
            .iter()
            .map(|call| format!("{} {}", call.verb, call.network()))
            .collect())
    }

    /// Fails unless these are all calls for a pod, as `VERB network`.
    pub(crate) fn expect_calls(&self, pod: &Pod, expected: &[&str]) -> anyhow::Result<()> {
        let order = self.call_order(pod)?;
        ensure!(
            order == expected,
            "plugins were called {order:?} instead of {expected:?}"
        );
        Ok(())
    }

    /// Returns the only call of a verb for a network; none and several are an error.
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

    /// Returns `network interface` of every call for a pod.
    pub(crate) fn interfaces(&self, pod: &Pod) -> anyhow::Result<Vec<String>> {
        let calls = self.calls(pod)?.into_iter();
        Ok(calls
            .map(|call| format!("{} {}", call.network(), call.variable("CNI_IFNAME")))
            .collect())
    }

    /// Returns how often a network's plugins were called with a verb that concerns no container.
    pub(crate) fn node_calls(&self, verb: &str, network: &str) -> anyhow::Result<usize> {
        let calls = self.calls_of(recorder::NO_CONTAINER)?;
        Ok(calls
            .iter()
            .filter(|call| call.verb == verb && call.network() == network)
            .count())
    }

    /// Returns the path of a pod's state.
    pub(crate) fn state_file(&self, pod: &Pod) -> PathBuf {
        self.node().path(&format!("/var/lib/cni/multus/{}", pod.id))
    }

    pub(crate) fn state(&self, pod: &Pod) -> anyhow::Result<Value> {
        let file = self.state_file(pod);
        let bytes = fs::read(&file).with_context(|| format!("no state in {}", file.display()))?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Returns the entries of the pod's status annotation, as soon as the pod's state does not say that it is still to be written.
    pub(crate) fn network_status(&self, pod: &Pod) -> anyhow::Result<Vec<Value>> {
        let sidecar = format!("/var/lib/cni/multus/.multus-rs/{}.json", pod.id);
        sh::until(10, "the status is written", || {
            let state = fs::read(self.node().path(&sidecar)).unwrap_or_default();
            let state: Value = serde_json::from_slice(&state).unwrap_or_default();
            ensure!(state["untold"] != true, "it is pending");
            Ok(())
        })?;
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let object = self.api("GET", &path, &Value::Null)?.json()?;
        let text = object["metadata"]["annotations"][STATUS]
            .as_str()
            .context("the pod has no network status")?;
        Ok(serde_json::from_str(text)?)
    }

    /// Returns the addresses in the pod's network namespace by interface.
    pub(crate) fn addresses_in(&self, pod: &Pod) -> anyhow::Result<Addresses> {
        let text = self
            .node()
            .run(&words!("ip netns exec {} ip -o address", pod.netns_name))?;
        Ok(addresses(&text))
    }

    /// Returns the routes in the pod of a family (`-4` or `-6`), as iproute prints them.
    pub(crate) fn routes(&self, pod: &Pod, family: &str) -> anyhow::Result<String> {
        let netns = &pod.netns_name;
        let inside = ["ip", "netns", "exec", netns, "ip", family, "route"];
        self.node().run(&inside)
    }

    /// Returns `gateway interface` of the pod's default routes of IPv4 and IPv6; anything but one of each is an error.
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

    /// Returns the file in which the result of an attachment is cached.
    pub(crate) fn cached_result(
        &self,
        pod: &Pod,
        network: &str,
        ifname: &str,
    ) -> anyhow::Result<Value> {
        let file = format!("/var/lib/cni/multus/results/{network}-{}-{ifname}", pod.id);
        let bytes = fs::read(self.node().path(&file)).with_context(|| file.clone())?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Waits until a key of the generated configuration has that value.
    pub(crate) fn wait_for_config_key(&self, key: &str, value: &Value) -> anyhow::Result<()> {
        sh::until(10, "the generated file changes", || {
            let config = self.config()?;
            ensure!(
                config[key] == *value,
                "{key} is {}, not {value}",
                config[key]
            );
            Ok(())
        })
    }

    /// Writes a default network for one case and returns the keys that select it. A daemon may cache answers to `STATUS`, so each
    /// case needs another network.
    pub(crate) fn own_default_network(&self, name: &str, version: &str) -> anyhow::Result<Value> {
        let path = format!("/etc/cni/rules/{name}.conflist");
        let list = json!({"cniVersion": version, "name": name, "plugins": [{"type": "recorder"}]});
        self.node().write(&path, list.to_string())?;
        Ok(json!({"clusterNetwork": path}))
    }
}
