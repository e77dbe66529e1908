//! What containerd makes of its files: a function over their tables and its own release.

use std::path::PathBuf;

use toml::{Table, Value};

use super::{ConfigFile, DEFAULT_ADDRESS};
use crate::dirs::Told;

/// The built-in directories, which hold where no file says otherwise.
const DEFAULT_BIN_DIR: &str = "/opt/cni/bin";
const DEFAULT_CONF_DIR: &str = "/etc/cni/net.d";
/// The plugin's table: up to version 2, and from version 3 on.
const CRI: &str = "io.containerd.grpc.v1.cri";
const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";

/// A release of containerd, as far as it reads files differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// 1, 2, …
    pub major: u32,
    /// The second part.
    pub minor: u32,
}

impl Release {
    /// Reads `v2.4.2`, `1.6.20~ds1`, `v1.7.27-k3s1`; no release is 0.
    pub fn parse(version: &str) -> Option<Self> {
        let mut parts = version.trim_start_matches('v').split('.');
        let major = parts.next()?.parse().ok().filter(|major| *major > 0)?;
        let digits = |text: &str| {
            text.split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        };
        let minor = parts.next().and_then(digits).unwrap_or_default();
        Some(Self { major, minor })
    }

    /// The oldest that understands the version of a file: what is assumed where nobody tells the release.
    pub fn for_config(version: i64) -> Self {
        match version {
            ..=2 => Self { major: 1, minor: 6 },
            3 => Self { major: 2, minor: 1 },
            _ => Self { major: 2, minor: 3 },
        }
    }

    /// Whether tables of several files are merged; before, the last one counts as a whole.
    pub(super) fn merges(self) -> bool {
        self.major >= 2
    }
}

/// What the files come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    /// The directories.
    pub told: Told,
    /// Where containerd listens, unless its command line says otherwise; `None` when no file says it.
    pub address: Option<PathBuf>,
    /// What someone who reads the files might not expect.
    pub notes: Vec<String>,
}

impl Effective {
    /// Where it listens.
    pub fn address(&self) -> PathBuf {
        self.address
            .clone()
            .unwrap_or_else(|| DEFAULT_ADDRESS.into())
    }
}

/// The version that a file declares; without one it is 1.
pub(super) fn version(table: &Table) -> i64 {
    match table.get("version").and_then(Value::as_integer) {
        None | Some(0) => 1,
        Some(version) => version,
    }
}

/// Lays the files over each other, the first lowest, and reads the CNI directories. No file at all means the built-in ones.
pub fn effective(files: &[ConfigFile], release: Release) -> Effective {
    let mut notes = Vec::new();
    let whole = if release.merges() {
        merged(files, release, &mut notes)
    } else {
        replaced(files, &mut notes)
    };
    let cni = at(&whole.cri, &["cni"]);
    let conf_dir = match cni.and_then(|cni| cni.get("conf_dir")) {
        Some(value) => value.as_str().map(PathBuf::from),
        None => Some(DEFAULT_CONF_DIR.into()),
    };
    let bin_dirs = bin_dirs(cni, release, &mut notes);
    let runtimes = at(&whole.cri, &["containerd", "runtimes"]);
    let handlers = runtimes.into_iter().flatten().filter_map(|(name, value)| {
        let dir = value.get("cni_conf_dir")?.as_str()?;
        (!dir.is_empty()).then(|| (name.clone(), PathBuf::from(dir)))
    });
    let told = Told {
        bin_dirs,
        conf_dir,
        handlers: handlers.collect(),
        max_conf_num: cni.and_then(|cni| cni.get("max_conf_num")?.as_integer()),
    };
    Effective {
        told: told.only_absolute(),
        address: whole.address,
        notes,
    }
}

#[derive(Debug, Default)]
struct Whole {
    /// The CRI plugin's table.
    cri: Table,
    address: Option<PathBuf>,
}

/// containerd 1.x: of each plugin the last file that names it counts, whole.
fn replaced(files: &[ConfigFile], notes: &mut Vec<String>) -> Whole {
    let mut whole = Whole::default();
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
                    "containerd 1.x takes `{name}` from {} alone: what {} says of it does not count",
                    file.path.display(),
                    before.path.display()
                ));
            }
            last = Some(file);
            whole.cri.clone_from(table);
        }
        whole.address = address(&file.table).or(whole.address);
    }
    whole
}

/// containerd 2.x: each file is brought to the newest form, then tables are merged key by key; anything else is replaced.
fn merged(files: &[ConfigFile], release: Release, notes: &mut Vec<String>) -> Whole {
    let mut whole = Whole::default();
    for file in files {
        merge(&mut whole.cri, migrated(file, release, notes));
        whole.address = address(&file.table).or(whole.address);
    }
    whole
}

/// The CRI plugin's table in the newest form: an older table fills the gaps of a newer one, and `bin_dir` becomes a list of one.
fn migrated(file: &ConfigFile, release: Release, notes: &mut Vec<String>) -> Table {
    let version = version(&file.table);
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
        && has_list(release)
        && let Some(dir) = cni.remove("bin_dir")
    {
        cni.entry("bin_dirs").or_insert(Value::Array(vec![dir]));
    }
    if version >= 3 {
        notes.push(format!(
            "{} has the table of version 2 in a file of version {version}",
            file.path.display()
        ));
    }
    fill(&mut new, old);
    new
}

/// `bin_dirs` came with 2.1.
fn has_list(release: Release) -> bool {
    release >= Release { major: 2, minor: 1 }
}

/// The plugin directories that the release reads from the table.
fn bin_dirs(cni: Option<&Table>, release: Release, notes: &mut Vec<String>) -> Vec<PathBuf> {
    let get = |key: &str| cni.and_then(|cni| cni.get(key));
    let one = get("bin_dir").and_then(Value::as_str);
    let list = get("bin_dirs").and_then(Value::as_array).map(|list| {
        let texts = list.iter().filter_map(Value::as_str);
        texts.map(PathBuf::from).collect::<Vec<_>>()
    });
    let default = || vec![PathBuf::from(DEFAULT_BIN_DIR)];
    let Release { major, minor } = release;
    if !has_list(release) {
        if list.is_some() {
            notes.push(format!(
                "`bin_dirs` means nothing to containerd {major}.{minor}"
            ));
        }
        return one.map_or_else(default, |dir| vec![dir.into()]);
    }
    // 2.1 to 2.3 still take `bin_dir`, where the list is not said or is the built-in one.
    let takes_one = release < Release { major: 2, minor: 4 };
    match (one.filter(|dir| !dir.is_empty()), list) {
        (Some(dir), list) if takes_one && list.as_ref().is_none_or(|list| *list == default()) => {
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

/// Where the file says that containerd listens.
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

/// Lays a table over another.
fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// Adds what is missing, in tables too.
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
