//! The configuration that containerd reads from its files: a function over their tables and its release.

use std::path::PathBuf;

use toml::{Table, Value};

use super::{
    files::ConfigFile,
    release::{Release, config_version},
};
use crate::dirs::ReportedDirs;

/// The address of a containerd whose flags and files name no other.
pub const DEFAULT_ADDRESS: &str = "/run/containerd/containerd.sock";
/// The built-in directories of a containerd whose files name no others.
const DEFAULT_BIN_DIR: &str = "/opt/cni/bin";
const DEFAULT_CONF_DIR: &str = "/etc/cni/net.d";
/// The names of the CRI plugin's table: up to version 2, and from version 3 on.
const CRI: &str = "io.containerd.grpc.v1.cri";
const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";
/// The keys that stay in the older table.
const STREAMING: [&str; 6] = [
    "disable_tcp_service",
    "enable_tls_streaming",
    "stream_idle_timeout",
    "stream_server_address",
    "stream_server_port",
    "x509_key_pair_streaming",
];

/// The effective configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The CNI directories.
    pub dirs: ReportedDirs,
    /// The address, unless the command line names another; `None` when no file names one.
    pub address: Option<PathBuf>,
    /// Notes on what a reader of the files might not expect.
    pub notes: Vec<String>,
}

impl Effective {
    /// Returns the address, or the default one.
    pub fn address(&self) -> PathBuf {
        self.address
            .clone()
            .unwrap_or_else(|| DEFAULT_ADDRESS.into())
    }
}

/// Combines the files, each of which overrides those before it, and reads the CNI directories. Without files the built-in ones hold.
pub fn effective(files: &[ConfigFile], release: Release) -> Effective {
    let mut notes = Vec::new();
    let combined = if release.merges() {
        merge_files(files, release, &mut notes)
    } else {
        last_file(files, &mut notes)
    };
    let cni = at(&combined.cri, &["cni"]);
    let conf_dir = match cni.and_then(|cni| cni.get("conf_dir")) {
        Some(value) => value.as_str().map(PathBuf::from),
        None => Some(DEFAULT_CONF_DIR.into()),
    };
    let bin_dirs = bin_dirs(cni, release, &mut notes);
    let runtimes = at(&combined.cri, &["containerd", "runtimes"]);
    let handlers = runtimes.into_iter().flatten().filter_map(|(name, value)| {
        let dir = value.get("cni_conf_dir")?.as_str()?;
        (!dir.is_empty()).then(|| (name.clone(), PathBuf::from(dir)))
    });
    let dirs = ReportedDirs {
        bin_dirs,
        conf_dir,
        handlers: handlers.collect(),
        max_conf_num: cni.and_then(|cni| cni.get("max_conf_num")?.as_integer()),
    };
    Effective {
        dirs: dirs.only_absolute(),
        address: combined.address,
        notes,
    }
}

#[derive(Debug, Default)]
struct Combined {
    /// The CRI plugin's table.
    cri: Table,
    address: Option<PathBuf>,
}

/// containerd 1.x takes the complete table of a plugin from the last file that has it.
fn last_file(files: &[ConfigFile], notes: &mut Vec<String>) -> Combined {
    let mut combined = Combined::default();
    let mut last: Option<&ConfigFile> = None;
    let declared = |file: &ConfigFile| file.table.get("version").and_then(Value::as_integer);
    let version = files.iter().rev().find_map(declared).unwrap_or(1);
    let name = if version < 2 { "cri" } else { CRI };
    for file in files {
        if let Some(table) = at(&file.table, &["plugins", name]) {
            if let Some(before) =
                last.filter(|before| at(&before.table, &["plugins", name, "cni"]).is_some())
            {
                notes.push(format!(
                    "containerd 1.x takes `{name}` only from {}: the table in {} does not count",
                    file.path.display(),
                    before.path.display()
                ));
            }
            last = Some(file);
            combined.cri.clone_from(table);
        }
        combined.address = address(&file.table).or(combined.address);
    }
    combined
}

/// containerd 2.x migrates each file to the newest form and merges tables key by key; it replaces all other values.
fn merge_files(files: &[ConfigFile], release: Release, notes: &mut Vec<String>) -> Combined {
    let mut combined = Combined::default();
    for file in files {
        merge(&mut combined.cri, migrated(file, release, notes));
        combined.address = address(&file.table).or(combined.address);
    }
    combined
}

/// Returns the CRI plugin's table in the newest form: an older table fills the gaps of a newer one, and `bin_dir` becomes a list of one.
fn migrated(file: &ConfigFile, release: Release, notes: &mut Vec<String>) -> Table {
    let version = config_version(&file.table);
    let mut new = at(&file.table, &["plugins", CRI_RUNTIME])
        .cloned()
        .unwrap_or_default();
    let newest = if release.minor >= 3 { 4 } else { 3 };
    let names: &[&str] = match version {
        version if version >= newest => &[],
        1 => &[CRI, "cri"],
        _ => &[CRI],
    };
    let old = names
        .iter()
        .find_map(|name| at(&file.table, &["plugins", name]));
    let Some(mut old) = old.cloned() else {
        return new;
    };
    if let Some(Value::Table(cni)) = old.get_mut("cni")
        && has_bin_dirs(release)
        && let Some(dir) = cni.remove("bin_dir")
    {
        cni.entry("bin_dirs").or_insert(Value::Array(vec![dir]));
    }
    if version >= 3 && old.keys().any(|key| !STREAMING.contains(&key.as_str())) {
        notes.push(format!(
            "{} has the table of version 2 in a file of version {version}",
            file.path.display()
        ));
    }
    fill(&mut new, old);
    new
}

/// Returns whether the release has the list `bin_dirs`, which came with 2.1.
fn has_bin_dirs(release: Release) -> bool {
    release >= Release { major: 2, minor: 1 }
}

/// Returns the plugin directories that the release reads from the table.
fn bin_dirs(cni: Option<&Table>, release: Release, notes: &mut Vec<String>) -> Vec<PathBuf> {
    let get = |key: &str| cni.and_then(|cni| cni.get(key));
    let one = get("bin_dir").and_then(Value::as_str);
    let list = get("bin_dirs").and_then(Value::as_array).map(|list| {
        let texts = list.iter().filter_map(Value::as_str);
        texts.map(PathBuf::from).collect::<Vec<_>>()
    });
    let default = || vec![PathBuf::from(DEFAULT_BIN_DIR)];
    let Release { major, minor } = release;
    if !has_bin_dirs(release) {
        if list.is_some() {
            notes.push(format!(
                "`bin_dirs` means nothing to containerd {major}.{minor}"
            ));
        }
        return one.map_or_else(default, |dir| vec![dir.into()]);
    }
    // 2.1 to 2.3 still read `bin_dir`, where the list is missing or is the built-in one.
    let reads_bin_dir = release < Release { major: 2, minor: 4 };
    match (one.filter(|dir| !dir.is_empty()), list) {
        (Some(dir), list)
            if reads_bin_dir && list.as_ref().is_none_or(|list| *list == default()) =>
        {
            vec![dir.into()]
        }
        (one, list) => {
            if one.is_some() {
                notes.push(format!(
                    "`bin_dir` means nothing to containerd {major}.{minor} here: it reads `bin_dirs`"
                ));
            }
            list.unwrap_or_else(default)
        }
    }
}

/// Returns the address that a file names.
fn address(table: &Table) -> Option<PathBuf> {
    let new = || at(table, &["plugins", "io.containerd.server.v1.grpc"]);
    let text = |table: &Table| Some(table.get("address")?.as_str()?.to_owned());
    let address = new()
        .and_then(text)
        .or_else(|| text(at(table, &["grpc"])?))?;
    (!address.is_empty()).then(|| address.into())
}

fn at<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Table> {
    keys.iter()
        .try_fold(table, |table, key| table.get(*key)?.as_table())
}

/// Merges a table into another and overrides its values.
fn merge(base: &mut Table, overrides: Table) {
    for (key, value) in overrides {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(overrides)) => merge(base, overrides),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Adds missing keys, also in tables within.
fn fill(table: &mut Table, from: Table) {
    for (key, value) in from {
        match (table.get_mut(&key), value) {
            (None, value) => {
                table.insert(key, value);
            }
            (Some(Value::Table(table)), Value::Table(from)) => fill(table, from),
            (Some(_), _) => {}
        }
    }
}
