//! The result cache: what ADD answered, kept for CHECK and DEL, in the files and the form of the reference library
//! (`<dir>/<network>-<container id>-<interface>`, kind `cniCacheV1`), so that either can read what the other wrote.

mod file;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::convert::{ConvertError, parse_value};
use crate::env::{ContainerId, EnvError, IfName, check_network_name};
use crate::types::CniResult;
use crate::version::Version;

/// The only kind of entry there is.
pub const KIND: &str = "cniCacheV1";

/// One entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// [`KIND`].
    pub kind: String,
    /// The container.
    pub container_id: String,
    /// The network's configuration, byte for byte.
    #[serde(
        default,
        serialize_with = "to_base64",
        deserialize_with = "from_base64"
    )]
    pub config: Vec<u8>,
    /// The interface.
    pub if_name: String,
    /// The network.
    pub network_name: String,
    /// The container's network namespace.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub netns: String,
    /// `CNI_ARGS`.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cni_args: Vec<(String, String)>,
    /// Capability arguments before filtering.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Map::is_empty"
    )]
    pub capability_args: Map<String, Value>,
    /// The result, in its own version.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Map::is_empty"
    )]
    pub result: Map<String, Value>,
}

/// What went wrong with an entry.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Reading or writing.
    #[error("cannot {action} cached result {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is no entry.
    #[error("cached result {} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A name that cannot be part of a file name.
    #[error(transparent)]
    Name(#[from] EnvError),
}

impl Entry {
    /// The result of the entry.
    pub fn parse_result(&self, assumed: Version) -> Result<CniResult, ConvertError> {
        parse_value(&Value::Object(self.result.clone()), Some(assumed))
    }
}

/// Where an entry lies.
pub fn path(
    dir: &Path,
    network: &str,
    container: &ContainerId,
    ifname: &IfName,
) -> Result<PathBuf, CacheError> {
    check_network_name(network)?;
    Ok(dir.join(format!("{network}-{container}-{ifname}")))
}

/// Writes an entry: a temporary file, then a rename. It is not synced, as the reference library's is not: what an entry tells of
/// the kernel is gone with the power, and DEL goes on without one. Directories are made as needed, 0700.
pub fn store(dir: &Path, entry: &Entry) -> Result<(), CacheError> {
    let path = path(
        dir,
        &entry.network_name,
        &ContainerId::parse(&entry.container_id)?,
        &IfName::parse(&entry.if_name)?,
    )?;
    let bytes = serde_json::to_vec(entry).expect("an entry always serialises");
    file::write(dir, &path, &bytes).map_err(|source| CacheError::Io {
        action: "write",
        path,
        source,
    })
}

/// Reads an entry; `None` if there is none.
pub fn load(
    dir: &Path,
    network: &str,
    container: &ContainerId,
    ifname: &IfName,
) -> Result<Option<Entry>, CacheError> {
    file::read(&path(dir, network, container, ifname)?)
}

/// Removes an entry and what a killed process wrote of it; one that is not there is success.
pub fn remove(
    dir: &Path,
    network: &str,
    container: &ContainerId,
    ifname: &IfName,
) -> Result<(), CacheError> {
    let path = path(dir, network, container, ifname)?;
    for path in [file::temporary(&path), path] {
        file::remove(&path).map_err(|source| CacheError::Io {
            action: "remove",
            path,
            source,
        })?;
    }
    Ok(())
}

/// All entries, by file name; files that are none are passed over, as the reference library does. No directory, no entries.
pub fn list(dir: &Path) -> Result<Vec<Entry>, CacheError> {
    let names = names(dir)?;
    Ok(names
        .iter()
        .filter_map(|name| file::read(&dir.join(name)).ok().flatten())
        .collect())
}

/// The entries of one container, the oldest first.
pub fn of_container(dir: &Path, container: &ContainerId) -> Result<Vec<Entry>, CacheError> {
    let mut found: Vec<(SystemTime, Entry)> = Vec::new();
    let is_about = about(container);
    let is_complete = |name: &[u8]| !name.starts_with(b".") && is_about(name);
    for name in names_like(dir, is_complete)? {
        if let Ok(Some((entry, written))) = file::read_dated(&dir.join(name))
            && entry.container_id == container.as_str()
        {
            found.push((written.unwrap_or(SystemTime::UNIX_EPOCH), entry));
        }
    }
    found.sort_by(|(one, first), (other, second)| {
        let by_name =
            || (&first.network_name, &first.if_name).cmp(&(&second.network_name, &second.if_name));
        one.cmp(other).then_with(by_name)
    });
    Ok(found.into_iter().map(|(_, entry)| entry).collect())
}

/// Removes what a killed process began to write about a container. Nobody may be at that container meanwhile.
pub fn clean(dir: &Path, container: &ContainerId) -> Result<(), CacheError> {
    let is_about = about(container);
    let is_unfinished = |name: &[u8]| file::meant_by(name).is_some_and(&is_about);
    for name in names_like(dir, is_unfinished)? {
        let path = dir.join(name);
        file::remove(&path).map_err(|source| CacheError::Io {
            action: "remove",
            path,
            source,
        })?;
    }
    Ok(())
}

/// Removes entries without any content: a power cut leaves such files, and as they name nobody, nothing else removes them. For a
/// moment at which no other program writes entries.
pub fn remove_empty(dir: &Path) -> Result<(), CacheError> {
    for name in names(dir)? {
        let path = dir.join(name);
        let is_empty =
            fs::symlink_metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0);
        if is_empty {
            file::remove(&path).map_err(|source| CacheError::Io {
                action: "remove",
                path,
                source,
            })?;
        }
    }
    Ok(())
}

/// Whether an entry's file name is `<network>-<container>-<interface>`, as far as that can be told: each part may have
/// hyphens.
fn about(container: &ContainerId) -> impl Fn(&[u8]) -> bool {
    let middle = format!("-{container}-").into_bytes();
    // A DEL looks at the names of all entries of the node, so nothing is searched that an interface's name rules out.
    move |name| {
        (1..=IfName::MAX_BYTES)
            .filter_map(|length| name.split_at_checked(name.len().checked_sub(length)?))
            .find(|(before, _)| before.ends_with(&middle))
            .and_then(|(_, ifname)| std::str::from_utf8(ifname).ok())
            .is_some_and(|ifname| ifname.parse::<IfName>().is_ok())
    }
}

/// Names of entries, sorted. What begins with a dot is not complete.
fn names(dir: &Path) -> Result<Vec<OsString>, CacheError> {
    let mut names = names_like(dir, |name| !name.starts_with(b"."))?;
    names.sort();
    Ok(names)
}

/// The file names of a directory that the function takes; none where there is no directory.
fn names_like(dir: &Path, is_taken: impl Fn(&[u8]) -> bool) -> Result<Vec<OsString>, CacheError> {
    let failed = |source| CacheError::Io {
        action: "list",
        path: dir.to_owned(),
        source,
    };
    let files = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files.map_err(failed)?,
    };
    let mut names = Vec::new();
    for file in files {
        let name = file.map_err(failed)?.file_name();
        if is_taken(name.as_bytes()) {
            names.push(name);
        }
    }
    Ok(names)
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
