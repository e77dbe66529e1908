//! Running a network's plugins for each verb, as CNI 1.1.0 section 3 lays down.
//!
//! ADD runs them in order, each seeing the result of the one before; DEL in reverse. The first plugin that fails ends the verb: what
//! to undo is decided by the caller. Results are cached after ADD and forgotten after DEL.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::args;
use crate::cache::{self, CacheError};
use crate::config::{NetworkConfig, Plugin};
use crate::convert::{ConvertError, parse_result_as, result_to};
use crate::env::{Command, ContainerId, EnvError, IfName};
use crate::exec::{Exec, ExecError};
use crate::types::{CniError, CniResult};
use crate::version::Version;

/// One attachment: who is attached, and what the runtime said about it.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The container.
    pub container_id: ContainerId,
    /// Path of its network namespace; DEL may come without.
    pub netns: Option<String>,
    /// The interface inside it.
    pub ifname: IfName,
    /// `CNI_ARGS`.
    pub args: Vec<(String, String)>,
    /// `CNI_PATH`: where plugins are looked for.
    pub path: Vec<PathBuf>,
    /// What plugins get as `runtimeConfig`, each what it has declared a capability for.
    pub capability_args: Map<String, Value>,
    /// Where results are kept.
    pub cache_dir: PathBuf,
}

/// One attachment as GC names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The container.
    pub container_id: String,
    /// The interface inside it.
    pub ifname: String,
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A plugin failed or could not be run.
    #[error("plugin type={plugin:?} of network {network:?} failed ({command}): {source}")]
    Plugin {
        /// The network.
        network: String,
        /// The plugin's type.
        plugin: String,
        /// The verb.
        command: Command,
        /// Why.
        source: ExecError,
    },
    /// A plugin answered ADD with something that is no result.
    #[error(
        "plugin type={plugin:?} of network {network:?} answered ADD with an unusable result: {source}"
    )]
    Result {
        /// The network.
        network: String,
        /// The plugin's type.
        plugin: String,
        /// Why.
        source: ConvertError,
    },
    /// The verb does not exist in that version.
    #[error("network {network:?} has cniVersion {version}, which does not know {command}")]
    NotInVersion {
        /// The network.
        network: String,
        /// Its version.
        version: Version,
        /// The verb.
        command: Command,
    },
    /// CHECK without anything to check against.
    #[error("network {network:?} has no cached result for this attachment")]
    NothingCached {
        /// The network.
        network: String,
    },
    /// The cache cannot be used.
    #[error("network {network:?}: {source}")]
    Cache {
        /// The network.
        network: String,
        /// Why.
        source: CacheError,
    },
    /// GC went on after failures; these are all of them.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" / "))]
    Several(Vec<ChainError>),
}

impl ChainError {
    /// The error with its code; the message says which plugin of which network it was.
    pub fn to_cni(&self) -> CniError {
        let (code, details) = match self {
            Self::Plugin { source, .. } => {
                let cause = source.to_cni();
                (cause.code, cause.details)
            }
            Self::Result { .. } => (CniError::DECODING_FAILURE, String::new()),
            Self::NotInVersion { .. } => (CniError::INCOMPATIBLE_VERSION, String::new()),
            Self::Cache { .. } => (CniError::IO_FAILURE, String::new()),
            Self::NothingCached { .. } => (CniError::INTERNAL, String::new()),
            Self::Several(errors) => match errors.as_slice() {
                [only] => return only.to_cni(),
                _ => (CniError::INTERNAL, String::new()),
            },
        };
        let msg = match self {
            // The details travel in their own field.
            Self::Plugin {
                network,
                plugin,
                command,
                source: ExecError::Plugin(error),
            } => {
                format!(
                    "plugin type={plugin:?} of network {network:?} failed ({command}): {}",
                    error.msg
                )
            }
            other => other.to_string(),
        };
        CniError { code, msg, details }
    }
}

/// Attaches: every plugin in order. The result is the last plugin's, in the version it was written in, and is cached.
pub fn add(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<CniResult, ChainError> {
    let mut previous: Option<CniResult> = None;
    for plugin in &config.plugins {
        let stdin = stdin_of(
            config,
            plugin,
            &invocation.capability_args,
            previous.as_ref(),
        );
        let stdout = run(
            exec,
            config,
            plugin,
            Command::Add,
            &invocation.path,
            Some(invocation),
            &stdin,
        )?;
        let result = parse_result_as(&stdout, config.version());
        previous = Some(result.map_err(|source| ChainError::Result {
            network: config.name.clone(),
            plugin: plugin.kind.clone(),
            source,
        })?);
    }
    let result = previous.expect("a network has at least one plugin");
    cache::store(&invocation.cache_dir, &entry(config, invocation, &result))
        .map_err(|source| cache_error(config, source))?;
    Ok(result)
}

/// Detaches: every plugin in reverse order, with the cached result from 0.4.0 on. A cache that is gone or damaged does not stop it.
pub fn del(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<(), ChainError> {
    let previous = if config.version() < Version::V0_4_0 {
        None
    } else {
        cached(config, invocation).ok().flatten()
    };
    for plugin in config.plugins.iter().rev() {
        let stdin = stdin_of(
            config,
            plugin,
            &invocation.capability_args,
            previous.as_ref(),
        );
        run(
            exec,
            config,
            plugin,
            Command::Del,
            &invocation.path,
            Some(invocation),
            &stdin,
        )?;
    }
    cache::remove(
        &invocation.cache_dir,
        &config.name,
        &invocation.container_id,
        &invocation.ifname,
    )
    .map_err(|source| cache_error(config, source))
}

/// Verifies: every plugin in order, each with the cached result.
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
    let previous = cached(config, invocation)?.ok_or_else(|| ChainError::NothingCached {
        network: config.name.clone(),
    })?;
    for plugin in &config.plugins {
        let stdin = stdin_of(config, plugin, &invocation.capability_args, Some(&previous));
        run(
            exec,
            config,
            plugin,
            Command::Check,
            &invocation.path,
            Some(invocation),
            &stdin,
        )?;
    }
    Ok(())
}

/// Collects: DEL for every cached attachment of this network that is not valid, then, from 1.1.0 on, GC to every plugin with the
/// valid ones. Goes on after a failure and returns all of them.
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
                stale.filter_map(|entry| collect(exec, config, path, cache_dir, entry).err()),
            );
        }
    }
    if config.version() >= Version::V1_1_0 {
        let attachments: Vec<_> = valid
            .iter()
            .map(|one| json!({"containerID": one.container_id, "ifname": one.ifname}))
            .collect();
        for plugin in &config.plugins {
            let mut value = named(config, plugin);
            // The specification's name, and the one that the reference library used before it read the specification.
            value.insert("cni.dev/valid-attachments".to_owned(), json!(attachments));
            value.insert("cni.dev/attachments".to_owned(), json!(attachments));
            errors.extend(
                run(
                    exec,
                    config,
                    plugin,
                    Command::Gc,
                    path,
                    None,
                    &bytes(&value),
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

/// Asks every plugin whether it could serve an ADD; before 1.1.0 nobody can be asked and the answer is yes.
pub fn status(exec: &dyn Exec, config: &NetworkConfig, path: &[PathBuf]) -> Result<(), ChainError> {
    if config.version() < Version::V1_1_0 {
        return Ok(());
    }
    for plugin in &config.plugins {
        run(
            exec,
            config,
            plugin,
            Command::Status,
            path,
            None,
            &bytes(&named(config, plugin)),
        )?;
    }
    Ok(())
}

/// The attachments in the configuration of a GC request.
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

/// DEL for an attachment that only the cache still knows.
fn collect(
    exec: &dyn Exec,
    config: &NetworkConfig,
    path: &[PathBuf],
    cache_dir: &Path,
    entry: &cache::Entry,
) -> Result<(), ChainError> {
    let name = |source: EnvError| cache_error(config, source.into());
    let invocation = Invocation {
        container_id: ContainerId::parse(&entry.container_id).map_err(name)?,
        netns: Some(entry.netns.clone()).filter(|netns| !netns.is_empty()),
        ifname: IfName::parse(&entry.if_name).map_err(name)?,
        args: entry.cni_args.clone(),
        path: path.to_vec(),
        capability_args: entry.capability_args.clone(),
        cache_dir: cache_dir.to_owned(),
    };
    del(exec, config, &invocation)
}

fn run(
    exec: &dyn Exec,
    config: &NetworkConfig,
    plugin: &Plugin,
    command: Command,
    path: &[PathBuf],
    invocation: Option<&Invocation>,
    stdin: &[u8],
) -> Result<Vec<u8>, ChainError> {
    let outcome = exec
        .find(&plugin.kind, path)
        .and_then(|program| exec.run(&program, &environment(command, path, invocation), stdin));
    outcome.map_err(|source| ChainError::Plugin {
        network: config.name.clone(),
        plugin: plugin.kind.clone(),
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

fn stdin_of(
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
fn named(config: &NetworkConfig, plugin: &Plugin) -> Map<String, Value> {
    let mut value = plugin.value.clone();
    value.insert("name".to_owned(), json!(config.name));
    value.insert("cniVersion".to_owned(), json!(config.cni_version));
    value
}

fn bytes(value: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(value).expect("JSON values always serialise")
}

fn cached(
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

fn entry(config: &NetworkConfig, invocation: &Invocation, result: &CniResult) -> cache::Entry {
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
    }
}

fn cache_error(config: &NetworkConfig, source: CacheError) -> ChainError {
    ChainError::Cache {
        network: config.name.clone(),
        source,
    }
}
