//! Fake plugins: a test chooses their output, and they record environment and stdin.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cni::chain::Invocation;
use cni::exec::{Exec, ExecError};
use cni::{CniError, ContainerId, IfName, NetworkConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The output of a plugin, by its name and the verb.
pub(crate) type Behaviour = dyn Fn(&str, &str) -> Result<String, ExecError> + Send + Sync;

/// Runs fake plugins and records each run.
pub(crate) struct Recorder {
    pub(crate) behaviour: Box<Behaviour>,
    pub(crate) runs: Mutex<Vec<Run>>,
}

pub(crate) struct Run {
    pub(crate) plugin: String,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stdin: Value,
}

impl Recorder {
    pub(crate) fn new(
        behaviour: impl Fn(&str, &str) -> Result<String, ExecError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            behaviour: Box::new(behaviour),
            runs: Mutex::default(),
        }
    }

    /// Plugins that succeed; each has an address of its own, so that results differ.
    pub(crate) fn succeeding() -> Self {
        Self::new(|plugin, command| {
            Ok(if command == "ADD" {
                json!({"cniVersion": "1.0.0", "ips": [{"address": format!("10.0.0.{}/8", plugin.len())}]}).to_string()
            } else {
                String::new()
            })
        })
    }

    pub(crate) fn runs(&self) -> Vec<String> {
        self.runs
            .lock()
            .unwrap()
            .iter()
            .map(|run| format!("{} {}", run.env("CNI_COMMAND"), run.plugin))
            .collect()
    }

    pub(crate) fn stdin(&self, index: usize) -> Value {
        self.runs.lock().unwrap()[index].stdin.clone()
    }
}

impl Run {
    pub(crate) fn env(&self, name: &str) -> &str {
        self.env
            .iter()
            .find(|(key, _)| key == name)
            .map_or("<unset>", |(_, value)| value)
    }
}

impl Exec for Recorder {
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError> {
        let dir = dirs.first().ok_or_else(|| ExecError::NotFound {
            plugin: plugin.to_owned(),
            dirs: Vec::new(),
        })?;
        Ok(dir.join(plugin))
    }

    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        let run = Run {
            plugin: path.file_name().unwrap().to_str().unwrap().to_owned(),
            env: env.to_vec(),
            stdin: serde_json::from_slice(stdin).unwrap(),
        };
        let output = (self.behaviour)(&run.plugin, run.env("CNI_COMMAND"));
        self.runs.lock().unwrap().push(run);
        output.map(String::into_bytes)
    }
}

pub(crate) fn failing(plugin: &'static str, command: &'static str) -> Recorder {
    Recorder::new(move |this, verb| {
        if (this, verb) == (plugin, command) {
            return Err(ExecError::Plugin(
                CniError::new(11, "not now").with_details("tomorrow"),
            ));
        }
        Ok(if verb == "ADD" {
            "{}".to_owned()
        } else {
            String::new()
        })
    })
}

pub(crate) fn network(version: &str) -> NetworkConfig {
    let config = json!({"name": "net", "cniVersion": version, "plugins": [
        {"type": "a", "capabilities": {"mac": true, "ips": false}, "own": {"key": 1}},
        {"type": "bb", "name": "other", "capabilities": {"bandwidth": true, "portMappings": true}}
    ]});
    NetworkConfig::parse(config.to_string().as_bytes()).unwrap()
}

pub(crate) fn invocation(dir: &TempDir) -> Invocation {
    Invocation {
        container_id: ContainerId::parse("0f1e").unwrap(),
        netns: Some("/run/netns/a".to_owned()),
        ifname: IfName::parse("net1").unwrap(),
        args: cni::args::parse("IgnoreUnknown=1;K8S_POD_NAME=cart-0"),
        path: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
        capability_args: json!({"mac": "02::", "ips": ["10.0.0.9/8"], "portMappings": []})
            .as_object()
            .unwrap()
            .clone(),
        cache_dir: dir.path().join("results"),
    }
}

pub(crate) fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}
