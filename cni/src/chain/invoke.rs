//! One plugin of a chain: what it gets, and running it.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{ChainError, Invocation};
use crate::args;
use crate::config::{NetworkConfig, Plugin};
use crate::convert::result_to;
use crate::env::Command;
use crate::exec::Exec;
use crate::types::CniResult;
use crate::version::Version;

/// Finds and runs the plugin at `index` of the chain.
pub(super) fn run(
    exec: &dyn Exec,
    config: &NetworkConfig,
    index: usize,
    command: Command,
    path: &[PathBuf],
    invocation: Option<&Invocation>,
    stdin: &[u8],
) -> Result<Vec<u8>, ChainError> {
    let plugin = &config.plugins[index];
    let outcome = exec
        .find(&plugin.kind, path)
        .and_then(|program| exec.run(&program, &environment(command, path, invocation), stdin));
    outcome.map_err(|source| ChainError::Plugin {
        network: config.name.clone(),
        plugin: plugin.kind.clone(),
        index,
        command,
        source,
    })
}

/// Exactly the variables of the specification; those about an attachment only where the verb has one.
fn environment(
    command: Command,
    path: &[PathBuf],
    invocation: Option<&Invocation>,
) -> Vec<(String, String)> {
    let path: Vec<_> = path.iter().map(|dir| dir.to_string_lossy()).collect();
    let mut env = vec![
        ("CNI_COMMAND".to_owned(), command.to_string()),
        ("CNI_PATH".to_owned(), path.join(":")),
    ];
    if let Some(invocation) = invocation {
        env.push((
            "CNI_CONTAINERID".to_owned(),
            invocation.container_id.to_string(),
        ));
        env.push((
            "CNI_NETNS".to_owned(),
            invocation.netns.clone().unwrap_or_default(),
        ));
        env.push(("CNI_IFNAME".to_owned(), invocation.ifname.to_string()));
        env.push(("CNI_ARGS".to_owned(), args::format(&invocation.args)));
    }
    env
}

/// What the plugin reads for a verb about an attachment.
pub(super) fn stdin_of(
    config: &NetworkConfig,
    plugin: &Plugin,
    capability_args: &Map<String, Value>,
    previous: Option<&CniResult>,
) -> Vec<u8> {
    let mut value = named(config, plugin);
    if let Some(previous) = previous {
        let version = config.version();
        value.insert(
            "prevResult".to_owned(),
            result_to(
                previous,
                if version.is_supported() {
                    version
                } else {
                    Version::LATEST
                },
            ),
        );
    }
    let wanted = plugin
        .capabilities
        .iter()
        .filter_map(|name| Some((name.clone(), capability_args.get(name)?.clone())));
    let runtime_config: Map<_, _> = wanted.collect();
    if !runtime_config.is_empty() {
        value.insert("runtimeConfig".to_owned(), Value::Object(runtime_config));
    }
    bytes(&value)
}

/// The plugin's configuration with the network's name and version.
pub(super) fn named(config: &NetworkConfig, plugin: &Plugin) -> Map<String, Value> {
    let mut value = plugin.value.clone();
    value.insert("name".to_owned(), json!(config.name));
    value.insert("cniVersion".to_owned(), json!(config.cni_version));
    value
}

/// JSON for stdin.
pub(super) fn bytes(value: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(value).expect("JSON values always serialise")
}
