//! `index.yaml` of a charts repository (Helm, pkg/repo): entries by name, the digest of each archive, addresses relative to the index.

pub mod layout;
pub mod read;

pub mod merge;

pub mod check;

use archive::digest::sha256;

use crate::{
    CHARTS, IDENTITIES,
    pack::{PackError, pack},
    package::{self, Package},
    settings::BuildSettings,
};

use self::merge::Listing;

/// A packed chart and its path in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The chart's name.
    pub name: String,
    /// The chart's version.
    pub version: String,
    /// The path in the repository: `assets/<name>/<name>-<version>.tgz`.
    pub path: String,
    /// The archive.
    pub bytes: Vec<u8>,
}

/// The reasons why no index can be made of charts.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An archive is not a chart.
    #[error("{path}: {source}")]
    Package {
        /// The archive's path.
        path: String,
        /// The reason.
        #[source]
        source: package::Error,
    },
    /// The charts cannot be listed together.
    #[error(transparent)]
    Merge(#[from] merge::Error),
}

impl Packed {
    /// Returns whether a distro ships the chart.
    pub fn is_of_distro(&self) -> bool {
        let mut identities = IDENTITIES.iter().filter(|one| one.distro.is_some());
        identities.any(|one| CHARTS.iter().any(|chart| chart.name(*one) == self.name))
    }
}

/// Packs all charts of a build.
pub fn pack_all<'a>(settings: impl Into<BuildSettings<'a>>) -> Result<Vec<Packed>, PackError> {
    let settings = settings.into();
    let version = &*settings.version;
    let mut packed = Vec::new();
    for identity in IDENTITIES {
        for chart in CHARTS {
            let (name, file) = (chart.name(identity), chart.file_name(identity, version));
            let bytes = pack(chart, identity, &settings)?;
            packed.push(Packed {
                path: format!("assets/{name}/{file}"),
                name,
                version: version.to_owned(),
                bytes,
            });
        }
    }
    Ok(packed)
}

/// Returns the index of these charts; `created` is an RFC 3339 time.
pub fn index_yaml(charts: &[Packed], created: &str) -> Result<String, Error> {
    let listing = |chart: &Packed| {
        let package = Package::read(&chart.bytes).map_err(|source| Error::Package {
            path: chart.path.clone(),
            source,
        })?;
        Ok(Listing {
            metadata: package.metadata,
            digest: sha256(&chart.bytes),
            url: chart.path.clone(),
        })
    };
    let listings: Vec<_> = charts.iter().map(listing).collect::<Result<_, Error>>()?;
    Ok(merge::merge(None, &listings, created)?.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_lists_digest_and_metadata_of_every_chart() {
        let charts = pack_all("5.0.0").unwrap();
        let index = index_yaml(&charts, "2026-01-01T00:00:00Z").unwrap();
        let index: serde_yaml::Value = serde_yaml::from_str(&index).unwrap();
        assert_eq!(charts.len(), 6);
        for chart in &charts {
            let entry = &index["entries"][chart.name.as_str()][0];
            let text = |key: &str| entry[key].as_str().unwrap().to_owned();
            assert_eq!(text("digest"), sha256(&chart.bytes).hex());
            assert_eq!(entry["urls"][0].as_str().unwrap(), chart.path);
            assert!(text("home").starts_with("https://"));
            assert!(entry["annotations"]["fleet.cattle.io/bundle-id"].is_string());
        }
    }
}
