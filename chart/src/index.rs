//! `index.yaml` of a charts repository (Helm, pkg/repo): entries by name, the digest of each archive, addresses relative to the index.

use archive::digest::sha256;
use serde::Serialize;

use crate::{
    IDENTITIES,
    pack::{CHARTS, PackError, pack},
};

/// A packed chart at its place in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The chart's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Path below the repository's root: `assets/<name>/<name>-<version>.tgz`.
    pub path: String,
    /// The archive.
    pub bytes: Vec<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    api_version: &'static str,
    entries: std::collections::BTreeMap<String, Vec<Entry>>,
    generated: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    api_version: &'static str,
    name: String,
    version: String,
    app_version: String,
    created: String,
    digest: String,
    r#type: &'static str,
    urls: Vec<String>,
}

/// All charts of a version.
pub fn pack_all(version: &str) -> Result<Vec<Packed>, PackError> {
    let mut packed = Vec::new();
    for identity in IDENTITIES {
        for chart in CHARTS {
            let (name, file) = (chart.name(identity), chart.file_name(identity, version));
            let bytes = pack(chart, identity, version)?;
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

/// The index of these charts; `created` is an RFC 3339 time.
pub fn index_yaml(charts: &[Packed], created: &str) -> String {
    let mut entries: std::collections::BTreeMap<String, Vec<Entry>> =
        std::collections::BTreeMap::new();
    for chart in charts {
        entries.entry(chart.name.clone()).or_default().push(Entry {
            api_version: "v2",
            name: chart.name.clone(),
            version: chart.version.clone(),
            app_version: chart.version.clone(),
            created: created.to_owned(),
            digest: sha256(&chart.bytes).hex(),
            r#type: "application",
            urls: vec![chart.path.clone()],
        });
    }
    let index = Index {
        api_version: "v1",
        entries,
        generated: created.to_owned(),
    };
    serde_yaml::to_string(&index).expect("strings always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chart_stands_in_the_index_with_its_digest() {
        let charts = pack_all("5.0.0").unwrap();
        let index: serde_yaml::Value =
            serde_yaml::from_str(&index_yaml(&charts, "2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(charts.len(), 4);
        for chart in &charts {
            let entry = &index["entries"][chart.name.as_str()][0];
            assert_eq!(
                entry["digest"].as_str().unwrap(),
                sha256(&chart.bytes).hex()
            );
            assert_eq!(entry["urls"][0].as_str().unwrap(), chart.path);
        }
    }
}
