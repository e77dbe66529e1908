//! Running a network's plugins for each verb, as CNI 1.1.0 section 3 lays down.
//!
//! ADD runs them in order, each seeing the result of the one before; DEL in reverse. The first plugin that fails ends the verb: what
//! to undo is decided by the caller. Results are cached after ADD and forgotten after DEL.

mod error;

mod invoke;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

pub use self::error::ChainError;
use self::error::cache_error;
use self::invoke::{bytes, named, run, stdin_of};
use crate::cache::{self, CacheError};
use crate::config::NetworkConfig;
use crate::convert::{parse_result_as, result_to};
use crate::env::{Command, ContainerId, EnvError, IfName};
use crate::exec::Exec;
use crate::types::CniResult;
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

/// Attaches: every plugin in order. The result is the last plugin's, in the version it was written in, and is cached.
pub fn add(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<CniResult, ChainError> {
    let mut previous: Option<CniResult> = None;
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
        previous = Some(result.map_err(|source| ChainError::Result {
            network: config.name.clone(),
            plugin: plugin.kind.clone(),
            source,
        })?);
    }
    let result = previous.expect("a network has at least one plugin");
    remember(config, invocation, &result)?;
    Ok(result)
}

/// Caches another result than the last plugin's, after the attachment was changed by someone else.
pub fn remember(
    config: &NetworkConfig,
    invocation: &Invocation,
    result: &CniResult,
) -> Result<(), ChainError> {
    cache::store(&invocation.cache_dir, &entry(config, invocation, result))
        .map_err(|source| cache_error(config, source))
}

/// Detaches: every plugin in reverse order, with the cached result from 0.4.0 on. A cache that is gone or damaged does not stop it.
pub fn del(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
) -> Result<(), ChainError> {
    del_partly(exec, config, invocation, config.plugins.len()).map(|_none| ())
}

/// Undoes an ADD that only the first `attached` plugins succeeded at. The others are asked too, but may well have nothing
/// to undo, nor a configuration they could read: their failures stop nothing and are returned.
pub fn del_partly(
    exec: &dyn Exec,
    config: &NetworkConfig,
    invocation: &Invocation,
    attached: usize,
) -> Result<Vec<ChainError>, ChainError> {
    let previous = if config.version() < Version::V0_4_0 {
        None
    } else {
        cached(config, invocation).ok().flatten()
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
    cache::remove(
        &invocation.cache_dir,
        &config.name,
        &invocation.container_id,
        &invocation.ifname,
    )
    .map_err(|source| cache_error(config, source))?;
    Ok(failed)
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
        for (index, plugin) in config.plugins.iter().enumerate() {
            let mut value = named(config, plugin);
            // The specification's name, and the one that the reference library used before it read the specification.
            value.insert("cni.dev/valid-attachments".to_owned(), json!(attachments));
            value.insert("cni.dev/attachments".to_owned(), json!(attachments));
            errors.extend(run(exec, config, index, Command::Gc, path, None, &bytes(&value)).err());
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
    for (index, plugin) in config.plugins.iter().enumerate() {
        run(
            exec,
            config,
            index,
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
