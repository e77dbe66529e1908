//! Derives a chart from a published one: with another name, another version, fewer subcharts; every other file keeps its bytes and its place.
//!
//! K3s' chart is made from RKE2's in this way. The source is an archive that any publisher may have packed.

use crate::{
    edit::{self, Document},
    metadata::Dependency,
    pack::is_stray_file,
    package::{self, CHART_YAML, Package, REQUIREMENTS},
    version::{self, Version},
};

const VALUES: &str = "values.yaml";
/// Lock files have a digest over all subcharts.
const LOCKS: [&str; 2] = ["Chart.lock", "requirements.lock"];

/// The differences between the new chart and its source.
#[derive(Debug, Clone)]
pub struct DeriveOptions {
    /// The name of the new chart.
    pub name: String,
    /// The version of the new chart.
    pub version: String,
    /// Names or aliases of the subcharts to leave out.
    pub drop: Vec<String>,
}

/// The new chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The archive's file name.
    pub file_name: String,
    /// The archive.
    pub tgz: Vec<u8>,
    /// A line for each change.
    pub changes: Vec<String>,
    /// Paths of files that still mention a subchart that was left out.
    pub mentions: Vec<String>,
}

/// The reasons why no chart can be derived.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source is not a chart.
    #[error(transparent)]
    Source(#[from] package::Error),
    /// The new name is invalid.
    #[error("`{0}` is not a chart name: use lower case letters and digits, with `-` between them")]
    Name(String),
    /// The new version, or that of the source, is invalid.
    #[error(transparent)]
    Version(#[from] version::ParseError),
    /// Name and version are those of the source.
    #[error("{0} {1} is the source itself: choose another name or version")]
    Same(String, String),
    /// The source has a file that must not be published.
    #[error(
        "`{0}` is a stray file of an editor or of patch: ask the publisher for an archive without it"
    )]
    StrayFile(String),
    /// The source has no such subchart.
    #[error("it has no subchart `{name}`: {}", listed(.subcharts))]
    UnknownSubchart {
        /// The subchart to leave out.
        name: String,
        /// The subcharts of the source.
        subcharts: Vec<String>,
    },
    /// A lock file has a digest over subcharts that remain.
    #[error("its {0} locks subcharts that remain: update it and pack the source again")]
    Lock(String),
    /// A file cannot be changed.
    #[error("its {path} {source}")]
    Edit {
        /// The file's path.
        path: String,
        /// The reason.
        #[source]
        source: edit::Error,
    },
    /// The new archive cannot be written.
    #[error(transparent)]
    Tar(#[from] archive::tar::Error),
}

/// Makes a chart from the archive of another chart.
pub fn derive(tgz: &[u8], options: &DeriveOptions) -> Result<Derived, Error> {
    let (package, changes) = change(Package::read(tgz)?, options)?;
    let mentions = package.files.iter().filter(|file| {
        let text = String::from_utf8_lossy(&file.bytes);
        options.drop.iter().any(|name| text.contains(name.as_str()))
    });
    let mentions = mentions.map(|file| file.path.clone()).collect();
    Ok(Derived {
        file_name: format!("{}-{}.tgz", options.name, options.version),
        tgz: package.pack()?,
        changes,
        mentions,
    })
}

/// Returns the new chart, and a line for each change.
pub(crate) fn change(
    mut package: Package,
    options: &DeriveOptions,
) -> Result<(Package, Vec<String>), Error> {
    if !is_name(&options.name) {
        return Err(Error::Name(options.name.clone()));
    }
    let (new, old): (Version, Version) =
        (options.version.parse()?, package.metadata.version.parse()?);
    if options.name == package.metadata.name && new.is_same(&old) {
        return Err(Error::Same(options.name.clone(), options.version.clone()));
    }
    let mut changes = Vec::new();
    for subchart in &options.drop {
        drop_subchart(&mut package, subchart, &mut changes)?;
    }
    if let Some(file) = package.files.iter().find(|file| is_stray_file(&file.path)) {
        return Err(Error::StrayFile(file.path.clone()));
    }
    for (key, old, new) in [
        ("name", &package.metadata.name, &options.name),
        ("version", &package.metadata.version, &options.version),
    ] {
        if old != new {
            changes.push(format!("{CHART_YAML}: {key} {old} becomes {new}"));
        }
    }
    edit(&mut package, CHART_YAML, |file| {
        file.set("name", &options.name)?;
        file.set("version", &options.version)
    })?;
    package.metadata = package::read_metadata(&package.files)?;
    Ok((package, changes))
}

/// Removes a subchart: its dependency entry, its files unless another entry uses them, and its values.
fn drop_subchart(
    package: &mut Package,
    name: &str,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let dependencies = &package.metadata.dependencies;
    let is_named = |one: &Dependency| one.name == name || one.key() == name;
    let found = dependencies.iter().position(is_named);
    let in_charts = subcharts(package);
    let chart_name = found
        .map_or(name, |at| dependencies[at].name.as_str())
        .to_owned();
    let key = found.map_or(name, |at| dependencies[at].key()).to_owned();
    if found.is_none() && !in_charts.contains(&chart_name) {
        let named = dependencies.iter().map(|one| one.key().to_owned());
        let mut subcharts: Vec<_> = named.chain(in_charts).collect();
        subcharts.sort();
        subcharts.dedup();
        let name = name.to_owned();
        return Err(Error::UnknownSubchart { name, subcharts });
    }
    if let Some(at) = found {
        let is_last = dependencies.len() == 1;
        let path = if package.metadata.api_version == "v1" {
            REQUIREMENTS
        } else {
            CHART_YAML
        };
        let same_chart = dependencies.iter().filter(|one| one.name == chart_name);
        let is_shared = same_chart.count() > 1;
        remove_lock(package, is_last, changes)?;
        edit(package, path, |file| file.remove_item("dependencies", at))?;
        package.metadata.dependencies.remove(at);
        changes.push(format!("{path}: dependency {key} removed"));
        let is_empty = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_whitespace);
        if path == REQUIREMENTS && package.get(path).is_some_and(is_empty) {
            package.files.retain(|file| file.path != path);
            changes.push(format!("{path} removed, it named no other subchart"));
        }
        if is_shared {
            return remove_values(package, &key, changes);
        }
    }
    package
        .files
        .retain(|file| subchart(&file.path) != Some(&chart_name));
    changes.push(format!("charts/{chart_name} removed"));
    remove_values(package, &key, changes)
}

/// Removes the values of a subchart.
fn remove_values(package: &mut Package, key: &str, changes: &mut Vec<String>) -> Result<(), Error> {
    if package.get(VALUES).is_none() {
        return Ok(());
    }
    let mut has_key = false;
    edit(package, VALUES, |file| {
        has_key = file.content().contains_key(key);
        file.remove(key)
    })?;
    if has_key {
        changes.push(format!("{VALUES}: {key} removed"));
    }
    Ok(())
}

/// Removes the lock file with the last subchart. While others remain, its digest would be wrong.
fn remove_lock(
    package: &mut Package,
    is_last: bool,
    changes: &mut Vec<String>,
) -> Result<(), Error> {
    let is_lock = |path: &str| LOCKS.contains(&path);
    let Some(lock) = package.files.iter().find(|file| is_lock(&file.path)) else {
        return Ok(());
    };
    let path = lock.path.clone();
    if !is_last {
        return Err(Error::Lock(path));
    }
    package.files.retain(|file| file.path != path);
    changes.push(format!("{path} removed, it locked no other subchart"));
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

/// Returns the names of the subcharts below `charts/`.
pub fn subcharts(package: &Package) -> Vec<String> {
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

/// Returns the subchart of a file, which is in the subchart's directory or is the subchart packed as `<name>-<version>.tgz`.
pub fn subchart(path: &str) -> Option<&str> {
    let below = path.strip_prefix("charts/")?;
    if let Some((directory, _)) = below.split_once('/') {
        return Some(directory);
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

fn listed(subcharts: &[String]) -> String {
    if subcharts.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", subcharts.join(", "))
    }
}

#[cfg(test)]
mod tests;
