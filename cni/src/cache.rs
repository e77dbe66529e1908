//! The result cache: results of ADD, kept for CHECK and DEL, in the files and the form of the reference library
//! (`<dir>/<network>-<container ID>-<interface>`, kind `cniCacheV1`), so that either can read what the other wrote.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::convert::{ConvertError, parse_value};
use crate::env::{ContainerId, EnvError, IfName, check_network_name};
use crate::types::CniResult;
use crate::version::Version;

/// The kind of every entry.
pub const KIND: &str = "cniCacheV1";
/// A longer file is not an entry.
const MAX_BYTES: u64 = 32 << 20;
/// The longest file name of Linux.
const MAX_NAME: usize = 255;

/// The time of the entry that this process wrote last.
static FORMER_TIME: Mutex<SystemTime> = Mutex::new(SystemTime::UNIX_EPOCH);

/// The cached result of one attachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Always [`KIND`].
    pub kind: String,
    pub container_id: String,
    /// The network's configuration, byte for byte.
    #[serde(
        default,
        serialize_with = "to_base64",
        deserialize_with = "from_base64"
    )]
    pub config: Vec<u8>,
    /// The interface inside the container.
    pub if_name: String,
    /// The network's name.
    pub network_name: String,
    /// The path of the container's network namespace.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub netns: String,
    /// The pairs of `CNI_ARGS`.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cni_args: Vec<(String, String)>,
    /// The capability arguments before filtering.
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
    /// Whether a later plugin failed, so that the result is not the last plugin's. Other readers have no such key and pass over it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

/// The reason why the cache could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The file system refused.
    #[error("cannot {action} cached result {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not an entry.
    #[error("cached result {} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The network's name leaves no room for the rest of the file name.
    #[error(
        "network name {network:?} has {} characters, but results of this container are cached under at most {limit}: set a shorter \"name\" in the network's configuration",
        network.len()
    )]
    NameTooLong {
        network: String,
        /// The most characters that such a name can have.
        limit: usize,
    },
    /// A name cannot be part of a file name.
    #[error(transparent)]
    Name(#[from] EnvError),
}

impl Entry {
    /// Reads the result; one without a version counts as written in `assumed`.
    pub fn parse_result(&self, assumed: Version) -> Result<CniResult, ConvertError> {
        parse_value(&Value::Object(self.result.clone()), Some(assumed))
    }
}

/// Returns the path of an entry's file.
pub fn path(
    dir: &Path,
    network: &str,
    container: &ContainerId,
    ifname: &IfName,
) -> Result<PathBuf, CacheError> {
    check_network_name(network)?;
    Ok(dir.join(format!("{network}-{container}-{ifname}")))
}

/// Fails for a network whose name is too long for the files of an entry.
pub fn check_length(
    network: &str,
    container: &ContainerId,
    ifname: &IfName,
) -> Result<(), CacheError> {
    let rest = temporary_path(&path(Path::new(""), "n", container, ifname)?);
    let rest = rest.as_os_str().len() - "n".len();
    let limit = MAX_NAME.saturating_sub(rest);
    if network.len() > limit {
        return Err(CacheError::NameTooLong {
            network: network.to_owned(),
            limit,
        });
    }
    Ok(())
}

/// Writes an entry: a temporary file, then a rename. Like the reference library it does not sync: a power cut also ends the kernel
/// state that an entry describes, and DEL works without one. Missing directories are created with mode 0700.
pub fn store(dir: &Path, entry: &Entry) -> Result<(), CacheError> {
    let path = path(
        dir,
        &entry.network_name,
        &ContainerId::parse(&entry.container_id)?,
        &IfName::parse(&entry.if_name)?,
    )?;
    let bytes = serde_json::to_vec(entry).expect("an entry always serialises");
    replace_file(dir, &path, &bytes).map_err(|source| CacheError::Io {
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
    read_entry(&path(dir, network, container, ifname)?)
}

/// Removes an entry and its temporary file, which a killed process may have left. A missing entry is success.
pub fn remove(
    dir: &Path,
    network: &str,
    container: &ContainerId,
    ifname: &IfName,
) -> Result<(), CacheError> {
    let path = path(dir, network, container, ifname)?;
    remove_files([temporary_path(&path), path])
}

/// Returns all entries, sorted by file name. Like the reference library it skips files that are not entries. A missing directory has
/// no entries.
pub fn list(dir: &Path) -> Result<Vec<Entry>, CacheError> {
    let names = names(dir)?;
    Ok(names
        .iter()
        .filter_map(|name| read_entry(&dir.join(name)).ok().flatten())
        .collect())
}

/// Returns the entries of one container, the oldest first.
pub fn container_entries(dir: &Path, container: &ContainerId) -> Result<Vec<Entry>, CacheError> {
    let mut found: Vec<(SystemTime, Entry)> = Vec::new();
    let names_container = names_container(container);
    let is_complete = |name: &[u8]| !name.starts_with(b".") && names_container(name);
    for name in names_like(dir, is_complete)? {
        if let Ok(Some((entry, written))) = read_entry_with_time(&dir.join(name))
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

/// Removes the temporary files that killed processes left for a container. The caller has to hold the container's lock.
pub fn remove_temporary(dir: &Path, container: &ContainerId) -> Result<(), CacheError> {
    let names_container = names_container(container);
    let is_temporary = |name: &[u8]| final_name(name).is_some_and(&names_container);
    let names = names_like(dir, is_temporary)?;
    remove_files(names.iter().map(|name| dir.join(name)))
}

/// Removes empty entries. A power cut leaves such files, and nothing else removes them, since they name no container. The caller has to
/// make sure that no other program writes entries meanwhile.
pub fn remove_empty(dir: &Path) -> Result<(), CacheError> {
    let is_empty = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0)
    };
    let names = names(dir)?;
    remove_files(names.iter().map(|name| dir.join(name)).filter(is_empty))
}

/// Returns a function that tells whether a file name can be `<network>-<container>-<interface>` of this container. It may accept
/// names of others, since each part may contain hyphens.
fn names_container(container: &ContainerId) -> impl Fn(&[u8]) -> bool {
    let middle = format!("-{container}-").into_bytes();
    // A DEL checks the names of all entries of the node, so only the positions that the length of an interface name allows are tried.
    move |name| {
        (1..=IfName::MAX_BYTES)
            .filter_map(|length| name.split_at_checked(name.len().checked_sub(length)?))
            .find(|(before, _)| before.ends_with(&middle))
            .and_then(|(_, ifname)| std::str::from_utf8(ifname).ok())
            .is_some_and(|ifname| ifname.parse::<IfName>().is_ok())
    }
}

/// Returns the time of the next entry: `now`, or just after the former entry of this process if the clock has jumped back.
fn next_time(former: SystemTime, now: SystemTime) -> SystemTime {
    let after = former.checked_add(Duration::from_nanos(1));
    after.map_or(now, |after| after.max(now))
}

/// Returns the file names of entries, sorted. A name that begins with a dot is a temporary file.
fn names(dir: &Path) -> Result<Vec<OsString>, CacheError> {
    let mut names = names_like(dir, |name| !name.starts_with(b"."))?;
    names.sort();
    Ok(names)
}

/// Returns the file names in a directory that `accepts` accepts; none if there is no directory.
fn names_like(dir: &Path, accepts: impl Fn(&[u8]) -> bool) -> Result<Vec<OsString>, CacheError> {
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
        if accepts(name.as_bytes()) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Reads an entry with bounds; `None` if there is no file.
fn read_entry(path: &Path) -> Result<Option<Entry>, CacheError> {
    Ok(read_entry_with_time(path)?.map(|(entry, _)| entry))
}

/// The same with the time of the last write, where that is known.
fn read_entry_with_time(path: &Path) -> Result<Option<(Entry, Option<SystemTime>)>, CacheError> {
    let failed = |source| CacheError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let damaged = |reason| CacheError::Damaged {
        path: path.to_owned(),
        reason,
    };
    // A named pipe of that name must not block the reader.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a flag of open");
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(damaged("it is not a file".to_owned()));
    }
    // One byte more than the file has, so that the read that finds the end needs no larger buffer.
    let size = usize::try_from(metadata.len().min(MAX_BYTES)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(size + 1);
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let entry: Entry =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if entry.kind == KIND {
        Ok(Some((entry, metadata.modified().ok())))
    } else {
        Err(damaged(format!("its kind is {:?}", entry.kind)))
    }
}

/// Replaces a file atomically. The temporary file of an entry always has the same name, so that the next writer or remover of the entry
/// finds one that a killed process left. Nothing waits for the disk: a power cut may leave the old file, or an empty one, which is no
/// entry.
fn replace_file(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path);
    let written = match write_new(&temporary, bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
            write_new(&temporary, bytes)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            remove_file(&temporary)?;
            write_new(&temporary, bytes)
        }
        written => written,
    };
    let written = written.and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Best effort: the next writer removes it.
        let _ = remove_file(&temporary);
    }
    written
}

fn remove_files(paths: impl IntoIterator<Item = PathBuf>) -> Result<(), CacheError> {
    for path in paths {
        remove_file(&path).map_err(|source| CacheError::Io {
            action: "remove",
            path,
            source,
        })?;
    }
    Ok(())
}

/// Removes a file; a missing one is success.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the path of an entry's temporary file.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// Returns the file name of the entry that a temporary file belongs to.
fn final_name(temporary: &[u8]) -> Option<&[u8]> {
    temporary.strip_prefix(b".")?.strip_suffix(b".tmp")
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    // The kernel stamps files by a clock that advances in steps of milliseconds only, but `container_entries` returns entries in the order in
    // which they were written, which is that of the container's networks.
    let time = {
        let mut former = FORMER_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        *former = next_time(*former, SystemTime::now());
        *former
    };
    file.set_modified(time)
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
