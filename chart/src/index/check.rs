//! What is wrong with a charts repository: its index, its archives, and the folders that those are unpacked to.

use std::collections::{BTreeMap, BTreeSet};

use archive::digest::{Digest, sha256};

use super::{
    place::Layout,
    read::{Entry, Index},
};
use crate::{package::Package, version::Version};

/// An archive of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Of its bytes.
    pub digest: Digest,
    /// Its name, its version and a digest of its files; or why it is no chart.
    pub chart: Result<Unpacked, String>,
}

/// A chart's files, packed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// By its description.
    pub name: String,
    /// By its description.
    pub version: String,
    /// Over paths and contents.
    pub files: Digest,
}

impl Unpacked {
    /// What is compared of a chart; the order of its files is not.
    pub fn of(package: &Package) -> Self {
        let mut lines: Vec<_> = package
            .files
            .iter()
            .map(|file| format!("{} {}\n", sha256(&file.bytes), file.path))
            .collect();
        lines.sort();
        Self {
            name: package.about.name.clone(),
            version: package.about.version.clone(),
            files: sha256(lines.concat().as_bytes()),
        }
    }
}

/// Everything of a repository but the archives' bytes.
#[derive(Debug, Clone)]
pub struct Repository {
    /// `index.yaml`.
    pub index: Index,
    /// Archives by their path.
    pub assets: BTreeMap<String, Asset>,
    /// Unpacked charts by their folder's path.
    pub folders: BTreeMap<String, Result<Unpacked, String>>,
}

/// Something that is wrong, and its cure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Finding {
    /// An archive that nobody finds.
    #[error(
        "{0} is in no entry of the index: list it with `cargo xtask chart merge`, or remove it"
    )]
    Orphan(String),
    /// A file that is no chart.
    #[error("{path} is no chart: {reason}")]
    NoChart {
        /// Where.
        path: String,
        /// Why.
        reason: String,
    },
    /// An entry without its archive.
    #[error("{entry} points at {url}, which is not there: bring the archive back")]
    Missing {
        /// Name and version.
        entry: String,
        /// The address.
        url: String,
    },
    /// An entry that leads nowhere.
    #[error("{0} has no address: take its entry from the published index again")]
    Nowhere(String),
    /// An entry without a digest.
    #[error("{0} has no digest: take its entry from the published index again")]
    NoDigest(String),
    /// An archive with other bytes than the entry says.
    #[error(
        "{entry}: {path} has the sha256 {found}, the index says {listed}: bring the published archive back, new bytes need a new version"
    )]
    Digest {
        /// Name and version.
        entry: String,
        /// The archive.
        path: String,
        /// Its digest.
        found: String,
        /// The entry's.
        listed: String,
    },
    /// An entry that calls its archive something else.
    #[error("{entry}: {path} says that it is {found}")]
    Other {
        /// Name and version.
        entry: String,
        /// The archive.
        path: String,
        /// Its own name and version.
        found: String,
    },
    /// One version twice.
    #[error(
        "{entry} and {other} are the same version: keep the one that was published first, and give the other a new version"
    )]
    Republished {
        /// Name and version.
        entry: String,
        /// The other's.
        other: String,
    },
    /// A version that cannot be compared.
    #[error("{0}: this is no version that Helm can put in order")]
    Version(String),
    /// Entries out of order.
    #[error("{name}: {entry} stands after an older version: newest comes first")]
    Order {
        /// The chart.
        name: String,
        /// The first that stands wrong.
        entry: String,
    },
    /// An unpacked chart of no archive.
    #[error("{0} is the folder of no archive: bring that back, or remove the folder")]
    Folder(String),
    /// An unpacked chart that is not its archive.
    #[error("{folder} differs from {asset}: unpack the archive again")]
    Differs {
        /// The folder.
        folder: String,
        /// The archive.
        asset: String,
    },
    /// An entry of the published index that is gone.
    #[error("{0} was published and is gone: clients that ask for it fail")]
    Gone(String),
    /// An entry that says something else than the published one.
    #[error("{0} was published with another entry: bring that back, changes need a new version")]
    Changed(String),
}

/// Everything that is wrong with a repository; addresses that do not lie in it are not looked at.
pub fn check(repository: &Repository) -> BTreeSet<Finding> {
    let mut found = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for entry in repository.index.entries() {
        let name = title(entry);
        if entry.urls.is_empty() {
            found.insert(Finding::Nowhere(name.clone()));
        }
        if entry.digest.is_none() {
            found.insert(Finding::NoDigest(name.clone()));
        }
        for url in entry.urls.iter().filter(|url| !is_elsewhere(url)) {
            let path = url.strip_prefix("./").unwrap_or(url);
            listed.insert(path.to_owned());
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
            found.insert(Finding::NoChart { path, reason });
        }
        if !listed.contains(path) {
            found.insert(Finding::Orphan(path.clone()));
        }
    }
    folders(repository, &mut found);
    found
}

/// What an index does to one that was published before it.
pub fn compare(published: &Index, now: &Index) -> BTreeSet<Finding> {
    let mut found = BTreeSet::new();
    for entry in published.entries() {
        let mut same = now.versions(&entry.name).iter();
        match same.find(|one| one.version == entry.version) {
            None => found.insert(Finding::Gone(title(entry))),
            Some(one) if one.content != entry.content => {
                found.insert(Finding::Changed(title(entry)))
            }
            Some(_) => false,
        };
    }
    found
}

/// How many addresses lie outside the repository.
pub fn elsewhere(index: &Index) -> usize {
    let urls = index.entries().flat_map(|entry| &entry.urls);
    urls.filter(|url| is_elsewhere(url)).count()
}

fn is_elsewhere(url: &str) -> bool {
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
        found.push(Finding::Other {
            entry: title(entry),
            path,
            found: format!("{} {}", chart.name, chart.version),
        });
    }
    found
}

/// One list: each version once, newest first, all of one chart.
fn versions(name: &str, list: &[Entry], found: &mut BTreeSet<Finding>) {
    let mut known: Vec<(Version, &Entry)> = Vec::new();
    for entry in list {
        if entry.name != name {
            found.insert(Finding::Other {
                entry: title(entry),
                path: "the index".to_owned(),
                found: name.to_owned(),
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

/// Each unpacked chart is that of an archive, file by file.
fn folders(repository: &Repository, found: &mut BTreeSet<Finding>) {
    let mut places = BTreeMap::new();
    for (path, asset) in &repository.assets {
        let Ok(chart) = &asset.chart else { continue };
        for layout in Layout::ALL {
            places.insert(layout.folder(&chart.name, &chart.version), (path, chart));
        }
    }
    for (folder, content) in &repository.folders {
        match (places.get(folder), content) {
            (None, _) => {
                found.insert(Finding::Folder(folder.clone()));
            }
            (Some((_, chart)), Ok(content)) if *chart == content => {}
            (Some((asset, _)), _) => {
                let (folder, asset) = (folder.clone(), (*asset).clone());
                found.insert(Finding::Differs { folder, asset });
            }
        }
    }
}

#[cfg(test)]
mod tests;
