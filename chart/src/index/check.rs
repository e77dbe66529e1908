//! Checks a charts repository: its index, its archives, and the directories that the archives are unpacked to.

use std::collections::{BTreeMap, BTreeSet};

use archive::digest::{Digest, sha256};

use super::{
    layout::RepositoryLayout,
    read::{Entry, Index},
};
use crate::{package::Package, version::Version};

/// An archive of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// The digest of the archive.
    pub digest: Digest,
    /// The chart in it, or the reason why it is not a chart.
    pub chart: Result<Unpacked, String>,
}

/// The content of a chart, for comparing an archive with its unpacked directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The name in `Chart.yaml`.
    pub name: String,
    /// The version in `Chart.yaml`.
    pub version: String,
    /// The digest over paths and contents of all files.
    pub files: Digest,
}

impl Unpacked {
    /// Returns the content of a chart; the order of its files does not matter.
    pub fn of(package: &Package) -> Self {
        let mut lines: Vec<_> = package
            .files
            .iter()
            .map(|file| format!("{} {}\n", sha256(&file.bytes), file.path))
            .collect();
        lines.sort();
        Self {
            name: package.metadata.name.clone(),
            version: package.metadata.version.clone(),
            files: sha256(lines.concat().as_bytes()),
        }
    }
}

/// A repository, without the bytes of the archives.
#[derive(Debug, Clone)]
pub struct Repository {
    /// The directory, as the user names it.
    pub name: String,
    /// The parsed `index.yaml`.
    pub index: Index,
    /// The archives by their path.
    pub assets: BTreeMap<String, Asset>,
    /// The unpacked charts by the path of their directory.
    pub directories: BTreeMap<String, Result<Unpacked, String>>,
}

/// One fault, with a hint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Finding {
    /// An archive that the index does not list.
    #[error("{path} is in no entry of the index: {hint}")]
    Orphan {
        /// The archive's path.
        path: String,
        /// The command that lists it, where it has the path of its chart.
        hint: String,
    },
    /// A file that is not a chart.
    #[error("{path} is not a chart: {reason}")]
    NotChart {
        /// The file's path.
        path: String,
        reason: String,
    },
    /// An entry whose archive is missing.
    #[error("{entry} points to {url}, which does not exist: restore the archive")]
    Missing {
        /// Name and version of the entry.
        entry: String,
        /// The address in the entry.
        url: String,
    },
    /// An entry without an address.
    #[error("{0} has no address: take its entry from the published index again")]
    NoUrl(String),
    /// An entry without a digest.
    #[error("{0} has no digest: take its entry from the published index again")]
    NoDigest(String),
    /// An archive with other bytes than the entry says.
    #[error(
        "{entry}: {path} has the sha256 {found}, but the index has {listed}: restore the published archive, since new bytes need a new version"
    )]
    Digest {
        /// Name and version of the entry.
        entry: String,
        /// The archive's path.
        path: String,
        /// The digest of the archive.
        found: String,
        /// The digest in the entry.
        listed: String,
    },
    /// An archive with another name or version than the entry says.
    #[error("{entry}: {path} has the chart {found}")]
    OtherChart {
        /// Name and version of the entry.
        entry: String,
        /// The archive's path.
        path: String,
        /// Name and version in the archive.
        found: String,
    },
    /// An entry in the list of another chart.
    #[error("{entry} is listed below {name}: move it to the list of its chart")]
    WrongList {
        /// Name and version of the entry.
        entry: String,
        /// The chart of the list.
        name: String,
    },
    /// Two entries of the same version.
    #[error(
        "{entry} and {other} are the same version: keep the one that was published first, and give the other a new version"
    )]
    Republished {
        /// Name and version of the later entry.
        entry: String,
        /// Name and version of the earlier entry.
        other: String,
    },
    /// A version that Helm cannot compare.
    #[error("{0}: Helm cannot compare this version")]
    Version(String),
    /// Entries out of order.
    #[error("{name}: {entry} comes after an older version: list the newest first")]
    Order {
        /// The chart.
        name: String,
        /// The version of the first entry that is out of order.
        entry: String,
    },
    /// A directory of an unpacked chart without an archive.
    #[error("{0} is a directory without its archive: restore the archive, or remove the directory")]
    Directory(String),
    /// A directory that differs from its archive.
    #[error("{directory} differs from {asset}: unpack the archive again")]
    Differs {
        /// The directory's path.
        directory: String,
        /// The archive's path.
        asset: String,
    },
    /// An entry of the published index that was removed.
    #[error(
        "{0} was published and has been removed: restore its entry, or clients that request it fail"
    )]
    Removed(String),
    /// An entry that differs from the published one.
    #[error(
        "{0} was published with another entry: restore that one, since changes need a new version"
    )]
    Changed(String),
}

impl Finding {
    /// Returns the finding about an archive without entry; `layout` is the one in which it has the path of its chart.
    pub fn orphan(repository: &str, layout: Option<RepositoryLayout>, path: &str) -> Self {
        let hint = match layout.map(RepositoryLayout::as_str) {
            Some(layout) => format!(
                "list it with `cargo xtask chart merge --into {repository} --layout {layout} {repository}/{path}`, or remove it"
            ),
            None => "remove it, since it does not have the path of its chart".to_owned(),
        };
        Self::Orphan {
            path: path.to_owned(),
            hint,
        }
    }
}

/// Returns the layout in which the archive of a chart has this path. Where it has the same in both, the repository's unpacked charts show
/// the layout, and without them the chart's name.
fn layout_of(repository: &Repository, path: &str, chart: &Unpacked) -> Option<RepositoryLayout> {
    let by_name = match chart.name.strip_prefix("rke2-") {
        Some(_) => RepositoryLayout::Rke2,
        None => RepositoryLayout::K3s,
    };
    let unpacked = repository.directories.keys().next();
    let present = unpacked.map(|path| match path.split('/').count() {
        4.. => RepositoryLayout::Rke2,
        _ => RepositoryLayout::K3s,
    });
    let has_path = |layout: &RepositoryLayout| layout.asset(&chart.name, &chart.version) == path;
    let mut layouts = [present.unwrap_or(by_name)]
        .into_iter()
        .chain(RepositoryLayout::ALL);
    layouts.find(has_path)
}

/// Returns the paths of the repository's own archives that an index lists.
pub fn listed(index: &Index) -> BTreeSet<String> {
    let urls = index.entries().flat_map(|entry| &entry.urls);
    urls.filter(|url| !is_external(url))
        .map(|url| url.strip_prefix("./").unwrap_or(url).to_owned())
        .collect()
}

/// Returns everything that is wrong with a repository; addresses outside of it are not checked.
pub fn check(repository: &Repository) -> BTreeSet<Finding> {
    let mut found = BTreeSet::new();
    let listed = listed(&repository.index);
    for entry in repository.index.entries() {
        let name = title(entry);
        if entry.urls.is_empty() {
            found.insert(Finding::NoUrl(name.clone()));
        }
        if entry.digest.is_none() {
            found.insert(Finding::NoDigest(name.clone()));
        }
        for url in entry.urls.iter().filter(|url| !is_external(url)) {
            let path = url.strip_prefix("./").unwrap_or(url);
            if let Some(asset) = repository.assets.get(path) {
                found.extend(compare_asset(entry, path, asset));
            } else {
                let (entry, url) = (name.clone(), url.clone());
                found.insert(Finding::Missing { entry, url });
            }
        }
    }
    for (name, list) in &repository.index.charts {
        versions(name, list, &mut found);
    }
    for (path, asset) in &repository.assets {
        if let Err(reason) = &asset.chart {
            let (path, reason) = (path.clone(), reason.clone());
            found.insert(Finding::NotChart { path, reason });
        }
        if !listed.contains(path) {
            let layout = asset.chart.as_ref().ok();
            let layout = layout.and_then(|chart| layout_of(repository, path, chart));
            found.insert(Finding::orphan(&repository.name, layout, path));
        }
    }
    directories(repository, &mut found);
    found
}

/// Returns the entries of a published index that the present one removes or changes.
pub fn compare(published: &Index, now: &Index) -> BTreeSet<Finding> {
    let mut found = BTreeSet::new();
    for entry in published.entries() {
        let mut same = now.versions(&entry.name).iter();
        match same.find(|one| one.version == entry.version) {
            None => found.insert(Finding::Removed(title(entry))),
            Some(one) if one.content != entry.content => {
                found.insert(Finding::Changed(title(entry)))
            }
            Some(_) => false,
        };
    }
    found
}

/// Returns the number of addresses outside of the repository.
pub fn external_urls(index: &Index) -> usize {
    let urls = index.entries().flat_map(|entry| &entry.urls);
    urls.filter(|url| is_external(url)).count()
}

fn is_external(url: &str) -> bool {
    url.contains("://")
}

fn title(entry: &Entry) -> String {
    format!("{} {}", entry.name, entry.version)
}

fn compare_asset(entry: &Entry, path: &str, asset: &Asset) -> Vec<Finding> {
    let (mut found, path) = (Vec::new(), path.to_owned());
    if let Some(listed) = entry.digest.filter(|listed| *listed != asset.digest) {
        found.push(Finding::Digest {
            entry: title(entry),
            path: path.clone(),
            found: asset.digest.hex(),
            listed: listed.hex(),
        });
    }
    if let Ok(chart) = &asset.chart
        && (&chart.name, &chart.version) != (&entry.name, &entry.version)
    {
        found.push(Finding::OtherChart {
            entry: title(entry),
            path,
            found: format!("{} {}", chart.name, chart.version),
        });
    }
    found
}

/// Checks one list: all entries are of its chart, each version occurs once, and the newest comes first.
fn versions(name: &str, list: &[Entry], found: &mut BTreeSet<Finding>) {
    let mut known: Vec<(Version, &Entry)> = Vec::new();
    for entry in list {
        if entry.name != name {
            found.insert(Finding::WrongList {
                entry: title(entry),
                name: name.to_owned(),
            });
        }
        let Ok(version) = entry.version.parse::<Version>() else {
            found.insert(Finding::Version(title(entry)));
            continue;
        };
        if let Some((_, other)) = known.iter().find(|(other, _)| other.is_same(&version)) {
            let (entry, other) = (title(entry), title(other));
            found.insert(Finding::Republished { entry, other });
        } else if known
            .last()
            .is_some_and(|(last, _)| last.order(&version).is_lt())
        {
            let (name, entry) = (name.to_owned(), entry.version.clone());
            found.insert(Finding::Order { name, entry });
        }
        known.push((version, entry));
    }
}

/// Checks that each unpacked chart equals an archive, file by file.
fn directories(repository: &Repository, found: &mut BTreeSet<Finding>) {
    let mut expected = BTreeMap::new();
    for (path, asset) in &repository.assets {
        let Ok(chart) = &asset.chart else { continue };
        for layout in RepositoryLayout::ALL {
            expected.insert(layout.directory(&chart.name, &chart.version), (path, chart));
        }
    }
    for (directory, content) in &repository.directories {
        match (expected.get(directory), content) {
            (None, _) => {
                found.insert(Finding::Directory(directory.clone()));
            }
            (Some((_, chart)), Ok(content)) if *chart == content => {}
            (Some((asset, _)), _) => {
                let (directory, asset) = (directory.clone(), (*asset).clone());
                found.insert(Finding::Differs { directory, asset });
            }
        }
    }
}

#[cfg(test)]
mod tests;
