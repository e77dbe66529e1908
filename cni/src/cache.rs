//! The result cache: what ADD answered, kept for CHECK and DEL, in the files and the form of the reference library
//! (`<dir>/<network>-<container id>-<interface>`, kind `cniCacheV1`), so that either can read what the other wrote.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
/// A longer file is not an entry.
const MAX_BYTES: u64 = 32 << 20;

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

/// Writes an entry: a temporary file, fsync, rename, fsync of the directory. Directories are made as needed, 0700.
pub fn store(dir: &Path, entry: &Entry) -> Result<(), CacheError> {
    let path = path(
        dir,
        &entry.network_name,
        &ContainerId::parse(&entry.container_id)?,
        &IfName::parse(&entry.if_name)?,
    )?;
    let bytes = serde_json::to_vec(entry).expect("an entry always serialises");
    write(dir, &path, &bytes).map_err(|source| CacheError::Io {
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
    read(&path(dir, network, container, ifname)?)
}

/// Removes an entry; one that is not there is success.
pub fn remove(
    dir: &Path,
    network: &str,
    container: &ContainerId,
    ifname: &IfName,
) -> Result<(), CacheError> {
    let path = path(dir, network, container, ifname)?;
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(CacheError::Io {
            action: "remove",
            path,
            source,
        }),
        _ => Ok(()),
    }
}

/// All entries, by file name; files that are none are passed over, as the reference library does. No directory, no entries.
pub fn list(dir: &Path) -> Result<Vec<Entry>, CacheError> {
    let failed = |source| CacheError::Io {
        action: "list",
        path: dir.to_owned(),
        source,
    };
    let files = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files.map_err(failed)?,
    };
    let mut paths = files
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    paths.sort();
    Ok(paths
        .iter()
        .filter_map(|path| read(path).ok().flatten())
        .collect())
}

fn read(path: &Path) -> Result<Option<Entry>, CacheError> {
    let failed = |source| CacheError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let damaged = |reason| CacheError::Damaged {
        path: path.to_owned(),
        reason,
    };
    // A named pipe of that name must not hang the reader.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a flag of open");
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(damaged("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let entry: Entry =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if entry.kind == KIND {
        Ok(Some(entry))
    } else {
        Err(damaged(format!("its kind is {:?}", entry.kind)))
    }
}

fn write(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let name = path
        .file_name()
        .expect("made by joining a name")
        .to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}", std::process::id()));
    // What a crashed process of the same id left is nobody's.
    let _ = fs::remove_file(&temporary);
    let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.and_then(|()| File::open(dir)?.sync_all())
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
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
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn entry() -> Entry {
        Entry {
            kind: KIND.to_owned(),
            container_id: "0f1e".to_owned(),
            config: br#"{"name":"n"}"#.to_vec(),
            if_name: "net1".to_owned(),
            network_name: "n".to_owned(),
            netns: "/run/netns/a".to_owned(),
            cni_args: vec![("K".to_owned(), "v".to_owned())],
            capability_args: json!({"mac": "02::"}).as_object().unwrap().clone(),
            result: json!({"cniVersion": "1.0.0", "dns": {}})
                .as_object()
                .unwrap()
                .clone(),
        }
    }

    fn names() -> (ContainerId, IfName) {
        (
            ContainerId::parse("0f1e").unwrap(),
            IfName::parse("net1").unwrap(),
        )
    }

    #[test]
    fn the_file_is_what_the_reference_library_writes() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("multus/results");
        store(&dir, &entry()).unwrap();
        let file = dir.join("n-0f1e-net1");
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            r#"{"kind":"cniCacheV1","containerId":"0f1e","config":"eyJuYW1lIjoibiJ9","ifName":"net1","networkName":"n","netns":"/run/netns/a","cniArgs":[["K","v"]],"capabilityArgs":{"mac":"02::"},"result":{"cniVersion":"1.0.0","dns":{}}}"#
        );
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn an_entry_comes_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (container, ifname) = names();
        assert_eq!(load(dir.path(), "n", &container, &ifname).unwrap(), None);
        store(dir.path(), &entry()).unwrap();
        store(dir.path(), &entry()).unwrap();
        assert_eq!(
            load(dir.path(), "n", &container, &ifname).unwrap(),
            Some(entry())
        );
        assert_eq!(list(dir.path()).unwrap(), [entry()]);
        remove(dir.path(), "n", &container, &ifname).unwrap();
        remove(dir.path(), "n", &container, &ifname).unwrap();
        assert_eq!(list(dir.path()).unwrap(), []);
        assert_eq!(list(&dir.path().join("absent")).unwrap(), []);
    }

    #[test]
    fn what_go_writes_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (container, ifname) = names();
        let text = r#"{"kind":"cniCacheV1","containerId":"0f1e","config":"e30=","ifName":"net1","networkName":"n","cniArgs":null,"result":{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/8"}]}}"#;
        fs::write(dir.path().join("n-0f1e-net1"), text).unwrap();
        let entry = load(dir.path(), "n", &container, &ifname).unwrap().unwrap();
        assert_eq!(
            entry.parse_result(Version::LATEST).unwrap().ips[0].address,
            "10.0.0.2/8"
        );
    }

    #[test]
    fn damage_is_told_and_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (container, ifname) = names();
        for text in [
            "",
            "{\"kind\":\"cniCa",
            "{}",
            r#"{"kind":"other","containerId":"a","ifName":"b","networkName":"c"}"#,
        ] {
            fs::write(dir.path().join("n-0f1e-net1"), text).unwrap();
            let error = load(dir.path(), "n", &container, &ifname).unwrap_err();
            assert!(
                matches!(error, CacheError::Damaged { .. }),
                "{text:?}: {error}"
            );
            assert_eq!(list(dir.path()).unwrap(), []);
        }
    }

    #[test]
    fn no_name_leaves_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (container, ifname) = names();
        assert!(matches!(
            path(dir.path(), "../n", &container, &ifname),
            Err(CacheError::Name(_))
        ));
        let evil = Entry {
            container_id: "../0f1e".to_owned(),
            ..entry()
        };
        assert!(matches!(store(dir.path(), &evil), Err(CacheError::Name(_))));
    }
}
