//! The files that a containerd reads: the main one and its imports, each of which overrides those before it.

use std::{
    collections::VecDeque,
    path::{Component, Path, PathBuf},
};

use toml::{Table, Value};

use super::release::{Release, config_version};
use crate::{
    glob,
    root::{Root, RootError},
};

/// More bytes than any such file has.
const MAX_FILE: u64 = 1 << 20;
/// More files than any node has.
const MAX_FILES: usize = 64;
const MAX_DEPTH: usize = 8;

/// A file of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigFile {
    /// The path on the node.
    pub path: PathBuf,
    /// The content.
    pub table: Table,
}

/// The reason why a configuration cannot be read. containerd would not start with it either, but for the limits of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The file is no TOML.
    #[error("{} is not TOML: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line and the error on it.
        reason: String,
    },
    /// The file imports too many files or too deep ones.
    #[error("{} imports more than multus-rs follows ({bound}): name the directories instead", path.display())]
    Bounds {
        /// The file with the imports.
        path: PathBuf,
        /// The exceeded limit.
        bound: String,
    },
    /// The path is relative to the runtime's working directory.
    #[error("{} is relative, and the runtime's working directory is not known: name it by its absolute path", path.display())]
    Relative {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the file and its imports, each once and breadth first, as containerd does. Without a release it assumes the oldest that reads the
/// version of the first file, and returns that.
pub fn gather(
    root: &Root,
    path: &Path,
    release: Option<Release>,
) -> Result<(Vec<ConfigFile>, Release), ConfigError> {
    follow(
        path,
        release,
        |path| root.read(path, MAX_FILE),
        |dir| root.list(dir).unwrap_or_default(),
    )
}

/// Follows the imports of a file, given what reads a file and what lists the names in a directory.
pub(crate) fn follow(
    path: &Path,
    release: Option<Release>,
    read: impl Fn(&Path) -> Result<Vec<u8>, RootError>,
    list: impl Fn(&Path) -> Vec<String>,
) -> Result<(Vec<ConfigFile>, Release), ConfigError> {
    if !path.is_absolute() {
        let path = path.to_owned();
        return Err(ConfigError::Relative { path });
    }
    let mut files: Vec<ConfigFile> = Vec::new();
    let mut release = release;
    let mut pending = VecDeque::from([(path.to_owned(), 0)]);
    while let Some((path, depth)) = pending.pop_front() {
        if files.iter().any(|file| file.path == path) {
            continue;
        }
        let table = parse(&path, &read(&path)?)?;
        let release = *release.get_or_insert_with(|| Release::for_config(config_version(&table)));
        let imports = imports(&path, &table, release, &list);
        let exceeded = |bound: String| ConfigError::Bounds {
            path: path.clone(),
            bound,
        };
        if !imports.is_empty() && depth == MAX_DEPTH {
            return Err(exceeded(format!("{MAX_DEPTH} levels")));
        }
        if files.len() + pending.len() + imports.len() >= MAX_FILES {
            return Err(exceeded(format!("{MAX_FILES} files")));
        }
        pending.extend(imports.into_iter().map(|import| (import, depth + 1)));
        files.push(ConfigFile { path, table });
    }
    let release = release.unwrap_or_else(|| Release::for_config(1));
    Ok((files, release))
}

/// Parses a file as TOML.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Table, ConfigError> {
    let syntax = |reason: String| ConfigError::Syntax {
        path: path.to_owned(),
        reason,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| syntax(error.to_string()))?;
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map_or(0, |span| {
            text.get(..span.start)
                .map_or(0, |before| before.matches('\n').count())
        });
        syntax(format!("line {}: {}", line + 1, error.message()))
    })
}

/// Returns the paths that a file imports, with patterns expanded.
fn imports(
    parent: &Path,
    table: &Table,
    release: Release,
    list: impl Fn(&Path) -> Vec<String>,
) -> Vec<PathBuf> {
    let Some(Value::Array(imports)) = table.get("imports") else {
        return Vec::new();
    };
    let dir = parent.parent().unwrap_or(Path::new("/"));
    let mut paths = Vec::new();
    for import in imports.iter().filter_map(Value::as_str) {
        let is_pattern = import.contains('*');
        // containerd 1.x resolves a relative pattern from its working directory, which is `/` for a service.
        let dir = if is_pattern && !release.merges() {
            Path::new("/")
        } else {
            dir
        };
        let path = clean(&dir.join(import));
        if is_pattern {
            paths.extend(glob::expand(&path, MAX_FILES, |dir, _| list(dir)));
        } else {
            paths.push(path);
        }
    }
    paths
}

/// Returns the path without `.`, `..` and doubled slashes. Like containerd it does not resolve links.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(part) => out.push(part),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}
