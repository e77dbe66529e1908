//! Running a network's plugins for each verb, as CNI 1.1.0 section 3 specifies.
//!
//! ADD runs them in order, each with the result of the one before; DEL runs them in reverse. The first plugin that fails ends the verb;
//! the caller decides what to undo. Results are cached after ADD, whether it succeeded or not, and removed from the cache after DEL.

mod error;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

pub use self::error::ChainError;
use self::error::cache_error;
use crate::args;
use crate::cache::{self, CacheError};
use crate::config::{NetworkConfig, Plugin};
use crate::convert::{parse_result_as, result_to};
use crate::env::{Command, ContainerId, EnvError, IfName};
use crate::exec::Exec;
use crate::types::CniResult;
use crate::version::Version;

/// One attachment of a container, with the runtime's parameters for it.
#[derive(Clone, Debug)]
pub struct Invocation {
    pub container_id: ContainerId,
    /// The path of the network namespace; DEL may have none.
    pub netns: Option<String>,
    /// The interface inside it.
    pub ifname: IfName,
    /// The pairs of `CNI_ARGS`.
    pub args: Vec<(String, String)>,
    /// The directories that plugins are searched in (`CNI_PATH`).
    pub path: Vec<PathBuf>,
    /// The capability arguments. Each plugin gets in `runtimeConfig` those that it has declared a capability for.
    pub capability_args: Map<String, Value>,
    /// The directory of the result cache.
    pub cache_dir: PathBuf,
}

/// An attachment as GC names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    pub container_id: String,
    /// The interface inside it.
    pub ifname: String,
}

/// ADD: runs every plugin in order. Returns and caches the last plugin's result, in the version that it was written in. When a plugin
/// fails, the result of the one before it is cached: DEL of those that have succeeded needs it.
pub fn add(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<CniResult, ChainError> {
    let mut previous: Option<CniResult> = None;
    if let Err(error) = add_all(exec, config, invocation, &mut previous) {
        // The error that is returned is the first one. Without the result, DEL does what it can.
        let _ = previous.map(|result| {
            let entry = cache_entry(config, invocation, &result);
            cache::store(
                &invocation.cache_dir,
                &cache::Entry {
                    incomplete: true,
                    ..entry
                },
            )
        });
        return Err(error);
    }
    let result = previous.expect("a network has at least one plugin");
    cache_result(config, invocation, &result)?;
    Ok(result)
}

/// Runs every plugin in order; `previous` is the last result so far.
fn add_all(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
    previous: &mut Option<CniResult>,
) -> Result<(), ChainError> {
    for (index, plugin) in config.plugins.iter().enumerate() {
        let stdin = stdin_of(
            config,
            plugin,
            &invocation.capability_args,
            previous.as_ref(),
        );
        let stdout = run(
            exec,
            config,
            index,
            Command::Add,
            &invocation.path,
            Some(invocation),
            &stdin,
        )?;
        let result = parse_result_as(&stdout, config.version());
        *previous = Some(result.map_err(|source| ChainError::Result {
            network: config.name.clone(),
            plugin: plugin.kind.clone(),
            source,
        })?);
    }
    Ok(())
}

/// Caches another result than the last plugin's, for a caller that changed the attachment after ADD.
pub fn cache_result(
    config: &NetworkConfig,
    invocation: &Invocation,
    result: &CniResult,
) -> Result<(), ChainError> {
    cache::store(
        &invocation.cache_dir,
        &cache_entry(config, invocation, result),
    )
    .map_err(|source| cache_error(config, source))
}

/// What did not succeed of a DEL that detached a network.
#[derive(Debug)]
pub struct Detached {
    /// The failures of plugins that may have had nothing to undo.
    pub failed: Vec<ChainError>,
    /// The reason why the cached result is still there.
    pub cache_error: Option<ChainError>,
}

/// DEL: runs every plugin in reverse order, from 0.4.0 on with the cached result. It works without a cached result or with a damaged one.
pub fn del(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<(), ChainError> {
    let detached = del_partly(exec, config, invocation, config.plugins.len())?;
    detached.cache_error.map_or(Ok(()), Err)
}

/// DEL after an ADD that succeeded in the first `attached` plugins only. The others run, too, but may have nothing to undo, or no
/// configuration that they can read: their failures stop nothing and are returned. So is a failure to remove the cached result.
pub fn del_partly(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
    attached: usize,
) -> Result<Detached, ChainError> {
    let previous = if config.version() < Version::V0_4_0 {
        None
    } else {
        cached_result(config, invocation).ok().flatten()
    };
    let mut failed = Vec::new();
    for (index, plugin) in config.plugins.iter().enumerate().rev() {
        let stdin = stdin_of(
            config,
            plugin,
            &invocation.capability_args,
            previous.as_ref(),
        );
        let outcome = run(
            exec,
            config,
            index,
            Command::Del,
            &invocation.path,
            Some(invocation),
            &stdin,
        );
        match outcome {
            Ok(_) => {}
            Err(error) if index >= attached => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    let removed = cache::remove(
        &invocation.cache_dir,
        &config.name,
        &invocation.container_id,
        &invocation.ifname,
    );
    let cache_error = removed.map_err(|source| cache_error(config, source)).err();
    Ok(Detached {
        failed,
        cache_error,
    })
}

/// CHECK: runs every plugin in order, each with the cached result.
pub fn check(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<(), ChainError> {
    if config.version() < Version::V0_4_0 {
        return Err(ChainError::NotInVersion {
            network: config.name.clone(),
            version: config.version(),
            command: Command::Check,
        });
    }
    if config.disable_check {
        return Ok(());
    }
    let previous =
        cached_result(config, invocation)?.ok_or_else(|| ChainError::NoCachedResult {
            network: config.name.clone(),
        })?;
    for (index, plugin) in config.plugins.iter().enumerate() {
        let stdin = stdin_of(config, plugin, &invocation.capability_args, Some(&previous));
        run(
            exec,
            config,
            index,
            Command::Check,
            &invocation.path,
            Some(invocation),
            &stdin,
        )?;
    }
    Ok(())
}

/// GC: runs DEL for every cached attachment of this network that is not in `valid`, then, from 1.1.0 on, GC of every plugin with the
/// valid ones. It continues after a failure and returns all failures.
pub fn gc(
    exec: &dyn Exec,
    config: &NetworkConfig,
    path: &[PathBuf],
    cache_dir: &Path,
    valid: &[Attachment],
) -> Result<(), ChainError> {
    if config.disable_gc {
        return Ok(());
    }
    let mut errors = Vec::new();
    let keep: HashSet<_> = valid
        .iter()
        .map(|attachment| (attachment.container_id.as_str(), attachment.ifname.as_str()))
        .collect();
    match cache::list(cache_dir) {
        Err(source) => errors.push(cache_error(config, source)),
        Ok(entries) => {
            let stale = entries.iter().filter(|entry| {
                entry.network_name == config.name
                    && !keep.contains(&(entry.container_id.as_str(), entry.if_name.as_str()))
            });
            errors.extend(
                stale.filter_map(|entry| del_cached(exec, config, path, cache_dir, entry).err()),
            );
        }
    }
    if config.version() >= Version::V1_1_0 {
        let attachments: Vec<_> = valid
            .iter()
            .map(|one| json!({"containerID": one.container_id, "ifname": one.ifname}))
            .collect();
        for (index, plugin) in config.plugins.iter().enumerate() {
            let mut value = with_name_and_version(config, plugin);
            // The specification's name, and the one that older releases of the reference library use.
            value.insert("cni.dev/valid-attachments".to_owned(), json!(attachments));
            value.insert("cni.dev/attachments".to_owned(), json!(attachments));
            errors.extend(
                run(
                    exec,
                    config,
                    index,
                    Command::Gc,
                    path,
                    None,
                    &to_json(&value),
                )
                .err(),
            );
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ChainError::Several(errors))
    }
}

/// STATUS: returns the error of the first plugin that cannot serve an ADD. Before 1.1.0 there is no STATUS, so no plugin runs.
pub fn status(exec: &dyn Exec, config: &NetworkConfig, path: &[PathBuf]) -> Result<(), ChainError> {
    if config.version() < Version::V1_1_0 {
        return Ok(());
    }
    for (index, plugin) in config.plugins.iter().enumerate() {
        run(
            exec,
            config,
            index,
            Command::Status,
            path,
            None,
            &to_json(&with_name_and_version(config, plugin)),
        )?;
    }
    Ok(())
}

/// Returns the valid attachments in the configuration of a GC request, or `None` when the list is missing or an entry is incomplete.
pub fn valid_attachments(config: &Map<String, Value>) -> Option<Vec<Attachment>> {
    let list = config
        .get("cni.dev/valid-attachments")
        .or_else(|| config.get("cni.dev/attachments"))?
        .as_array()?;
    let field = |entry: &Value, name: &str| {
        entry
            .get(name)
            .and_then(Value::as_str)
            .map(ToOwned::to_owned)
    };
    list.iter()
        .map(|entry| {
            Some(Attachment {
                container_id: field(entry, "containerID")?,
                ifname: field(entry, "ifname")?,
            })
        })
        .collect()
}

/// Finds and runs the plugin at `index` of the chain.
fn run(
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

/// Returns exactly the variables of the specification; those of an attachment only for verbs that have one.
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

/// Returns the plugin's stdin for a verb that concerns an attachment.
fn stdin_of(
    config: &NetworkConfig,
    plugin: &Plugin,
    capability_args: &Map<String, Value>,
    previous: Option<&CniResult>,
) -> Vec<u8> {
    let mut value = with_name_and_version(config, plugin);
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
    let supported = plugin
        .capabilities
        .iter()
        .filter_map(|name| Some((name.clone(), capability_args.get(name)?.clone())));
    let runtime_config: Map<_, _> = supported.collect();
    if !runtime_config.is_empty() {
        value.insert("runtimeConfig".to_owned(), Value::Object(runtime_config));
    }
    to_json(&value)
}

/// Returns the plugin's configuration with the network's name and version.
fn with_name_and_version(config: &NetworkConfig, plugin: &Plugin) -> Map<String, Value> {
    let mut value = plugin.value.clone();
    value.insert("name".to_owned(), json!(config.name));
    value.insert("cniVersion".to_owned(), json!(config.cni_version));
    value
}

fn to_json(value: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(value).expect("JSON values always serialise")
}

/// DEL of an attachment as the cache describes it.
fn del_cached(
    exec: &dyn Exec,
    config: &NetworkConfig,
    path: &[PathBuf],
    cache_dir: &Path,
    entry: &cache::Entry,
) -> Result<(), ChainError> {
    let invalid = |source: EnvError| cache_error(config, source.into());
    let invocation = Invocation {
        container_id: ContainerId::parse(&entry.container_id).map_err(invalid)?,
        netns: Some(entry.netns.clone()).filter(|netns| !netns.is_empty()),
        ifname: IfName::parse(&entry.if_name).map_err(invalid)?,
        args: entry.cni_args.clone(),
        path: path.to_vec(),
        capability_args: entry.capability_args.clone(),
        cache_dir: cache_dir.to_owned(),
    };
    del(exec, config, &invocation)
}

fn cached_result(
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<Option<CniResult>, ChainError> {
    let entry = cache::load(
        &invocation.cache_dir,
        &config.name,
        &invocation.container_id,
        &invocation.ifname,
    )
    .map_err(|source| cache_error(config, source))?;
    let Some(entry) = entry else { return Ok(None) };
    if entry.result.is_empty() {
        return Ok(None);
    }
    entry
        .parse_result(config.version())
        .map(Some)
        .map_err(|error| {
            let path = invocation.cache_dir.join(format!(
                "{}-{}-{}",
                config.name, invocation.container_id, invocation.ifname
            ));
            cache_error(
                config,
                CacheError::Damaged {
                    path,
                    reason: error.to_string(),
                },
            )
        })
}

fn cache_entry(
    config: &NetworkConfig,
    invocation: &Invocation,
    result: &CniResult,
) -> cache::Entry {
    let version = Version::parse(&result.cni_version).expect("set when the result was read");
    let Value::Object(result) = result_to(result, version) else {
        unreachable!("a result is an object")
    };
    cache::Entry {
        kind: cache::KIND.to_owned(),
        container_id: invocation.container_id.to_string(),
        config: config.bytes().to_vec(),
        if_name: invocation.ifname.to_string(),
        network_name: config.name.clone(),
        netns: invocation.netns.clone().unwrap_or_default(),
        cni_args: invocation.args.clone(),
        capability_args: invocation.capability_args.clone(),
        result,
        incomplete: false,
    }
}
