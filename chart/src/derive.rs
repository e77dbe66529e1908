//! One published chart made from another: other name, other version, fewer subcharts; every other file stays as it is, where it is.
//!
//! This is the flow by which K3s' chart comes from RKE2's. It works on archives alone, whoever packed them.

use crate::{
    about::Dependency,
    edit::{self, Document},
    pack::is_leftover,
    package::{self, CHART_YAML, Package, REQUIREMENTS},
    version::{self, Version},
};

const VALUES: &str = "values.yaml";
/// Locks hold a digest over all subcharts.
const LOCKS: [&str; 2] = ["Chart.lock", "requirements.lock"];

/// What to make.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The name of the new chart.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Subcharts that it does not have.
    pub drop: Vec<String>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The archive's file name.
    pub file_name: String,
    /// The archive.
    pub tgz: Vec<u8>,
    /// Each change, in words.
    pub changes: Vec<String>,
    /// Files that still speak of what was dropped.
    pub mentions: Vec<String>,
}

/// Why no chart is derived.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source is no chart.
    #[error(transparent)]
    Source(#[from] package::Error),
    /// The new name is none.
    #[error("`{0}` is no name of a chart: take lower case letters, digits and `-` between them")]
    Name(String),
    /// The new version, or the source's, is none.
    #[error(transparent)]
    Version(#[from] version::ParseError),
    /// Nothing would tell the two apart.
    #[error("{0} {1} is what it is derived from: give it another name or version")]
    Same(String, String),
    /// A file that must not be published.
    #[error(
        "`{0}` is a leftover of an editor or of patch: ask the publisher for an archive without it"
    )]
    Leftover(String),
    /// There is no such subchart.
    #[error("it has no subchart `{name}`: {}", known(.subcharts))]
    Unknown {
        /// What was to be dropped.
        name: String,
        /// What could be.
        subcharts: Vec<String>,
    },
    /// A lock of subcharts that stay.
    #[error("its {0} locks subcharts that stay: update it and pack the source again")]
    Lock(String),
    /// A file cannot be changed.
    #[error("its {path} {source}")]
    Edit {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: edit::Error,
    },
    /// The new archive was refused.
    #[error(transparent)]
    Tar(#[from] archive::tar::Error),
}

/// Makes a chart from a chart's archive.
pub fn derive(tgz: &[u8], wish: &Wish) -> Result<Derived, Error> {
    let mut package = Package::read(tgz)?;
    if !is_name(&wish.name) {
        return Err(Error::Name(wish.name.clone()));
    }
    let (new, old): (Version, Version) = (wish.version.parse()?, package.about.version.parse()?);
    if wish.name == package.about.name && new.is_same(&old) {
        return Err(Error::Same(wish.name.clone(), wish.version.clone()));
    }
    let mut changes = Vec::new();
    for subchart in &wish.drop {
        drop_subchart(&mut package, subchart, &mut changes)?;
    }
    if let Some(file) = package.files.iter().find(|file| is_leftover(&file.path)) {
        return Err(Error::Leftover(file.path.clone()));
    }
    for (key, old, new) in [
        ("name", &package.about.name, &wish.name),
        ("version", &package.about.version, &wish.version),
    ] {
        if old != new {
            changes.push(format!("{CHART_YAML}: {key} {old} is {new}"));
        }
    }
    edit(&mut package, CHART_YAML, |file| {
        file.set("name", &wish.name)?;
        file.set("version", &wish.version)
    })?;
    package.about = package::describe(&package.files)?;
    let mentions = package.files.iter().filter(|file| {
        let text = String::from_utf8_lossy(&file.bytes);
        wish.drop.iter().any(|name| text.contains(name.as_str()))
    });
    let mentions = mentions.map(|file| file.path.clone()).collect();
    Ok(Derived {
        file_name: format!("{}-{}.tgz", wish.name, wish.version),
        tgz: package.pack()?,
        changes,
        mentions,
    })
}

/// Takes a subchart out: its files, its values, the entry that asks for it.
fn drop_subchart(
    package: &mut Package,
    name: &str,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let dependencies = &package.about.dependencies;
    let is_meant = |one: &Dependency| one.name == name || one.key() == name;
    let found = dependencies.iter().position(is_meant);
    let folders = subcharts(package);
    let own = found
        .map_or(name, |at| dependencies[at].name.as_str())
        .to_owned();
    let key = found.map_or(name, |at| dependencies[at].key()).to_owned();
    if found.is_none() && !folders.contains(&own) {
        let named = dependencies.iter().map(|one| one.key().to_owned());
        let mut subcharts: Vec<_> = named.chain(folders).collect();
        subcharts.sort();
        subcharts.dedup();
        let name = name.to_owned();
        return Err(Error::Unknown { name, subcharts });
    }
    if let Some(at) = found {
        let is_last = dependencies.len() == 1;
        let path = if package.about.api_version == "v1" {
            REQUIREMENTS
        } else {
            CHART_YAML
        };
        let is_shared = dependencies.iter().filter(|one| one.name == own).count() > 1;
        unlock(package, is_last, changes)?;
        edit(package, path, |file| file.remove_item("dependencies", at))?;
        package.about.dependencies.remove(at);
        changes.push(format!("{path}: no dependency {key}"));
        let is_empty = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_whitespace);
        if path == REQUIREMENTS && package.get(path).is_some_and(is_empty) {
            package.files.retain(|file| file.path != path);
            changes.push(format!("{path} is gone, it named nothing else"));
        }
        if is_shared {
            return values(package, &key, changes);
        }
    }
    let before = package.files.len();
    package
        .files
        .retain(|file| subchart(&file.path) != Some(&own));
    let gone = before - package.files.len();
    changes.push(format!("charts/{own}: {gone} files are gone"));
    values(package, &key, changes)
}

/// Takes the values of a subchart out.
fn values(package: &mut Package, key: &str, changes: &mut Vec<String>) -> Result<(), Error> {
    if package.get(VALUES).is_none() {
        return Ok(());
    }
    let mut has = false;
    edit(package, VALUES, |file| {
        has = file.content().contains_key(key);
        file.remove(key)
    })?;
    if has {
        changes.push(format!("{VALUES}: no {key}"));
    }
    Ok(())
}

/// A lock goes with the last subchart; its digest would be wrong after any other.
fn unlock(package: &mut Package, is_last: bool, changes: &mut Vec<String>) -> Result<(), Error> {
    let is_lock = |path: &str| LOCKS.contains(&path);
    let Some(lock) = package.files.iter().find(|file| is_lock(&file.path)) else {
        return Ok(());
    };
    let path = lock.path.clone();
    if !is_last {
        return Err(Error::Lock(path));
    }
    package.files.retain(|file| file.path != path);
    changes.push(format!("{path} is gone, it locked nothing else"));
    Ok(())
}

fn edit(
    package: &mut Package,
    path: &str,
    change: impl FnOnce(&mut Document) -> Result<(), edit::Error>,
) -> Result<(), Error> {
    let Some(file) = package.files.iter_mut().find(|file| file.path == path) else {
        return Ok(());
    };
    let edited = Document::read(&file.bytes).and_then(|mut document| {
        change(&mut document)?;
        Ok(document.into_bytes())
    });
    file.bytes = edited.map_err(|source| Error::Edit {
        path: path.to_owned(),
        source,
    })?;
    Ok(())
}

/// The names below `charts/`.
fn subcharts(package: &Package) -> Vec<String> {
    let mut names: Vec<_> = package
        .files
        .iter()
        .filter_map(|file| subchart(&file.path))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Of which subchart a file is: of a folder, or packed as `<name>-<version>.tgz`.
fn subchart(path: &str) -> Option<&str> {
    let below = path.strip_prefix("charts/")?;
    if let Some((folder, _)) = below.split_once('/') {
        return Some(folder);
    }
    let stem = below.strip_suffix(".tgz")?;
    let cut = stem
        .match_indices('-')
        .find(|(at, _)| stem[at + 1..].parse::<Version>().is_ok());
    cut.map(|(at, _)| &stem[..at])
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty()
        && name
            .split('-')
            .all(|part| !part.is_empty() && part.bytes().all(is_plain))
}

fn known(subcharts: &[String]) -> String {
    if subcharts.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", subcharts.join(", "))
    }
}

#[cfg(test)]
mod tests;
