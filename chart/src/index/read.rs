//! An index as it stands, whoever wrote it.

use archive::digest::Digest;
use serde_yaml::{Mapping, Value};

/// Why a file is no index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not parse.
    #[error("the index does not parse")]
    Parse(#[source] serde_yaml::Error),
    /// It is of a kind that is not known.
    #[error("the index is of apiVersion `{0}`: v1 is known")]
    Generation(String),
    /// Something in it has another form than in any index.
    #[error("the index has no {0}")]
    Form(String),
}

/// An index: what it says of which chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    /// By name, in the order in which they stand.
    pub charts: Vec<(String, Vec<Entry>)>,
    /// All of it, with what is not known here.
    pub(super) content: Mapping,
}

/// An entry: one version of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The chart's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The archive's digest; some indexes have none.
    pub digest: Option<Digest>,
    /// Where the archive is, relative to the index or not.
    pub urls: Vec<String>,
    /// All of it.
    pub content: Value,
}

impl Index {
    /// Reads `index.yaml`.
    pub fn read(text: &str) -> Result<Self, Error> {
        let content: Mapping = serde_yaml::from_str(text).map_err(Error::Parse)?;
        match content.get("apiVersion") {
            Some(Value::String(version)) if version == "v1" => {}
            other => {
                let version = other.and_then(Value::as_str).unwrap_or_default();
                return Err(Error::Generation(version.to_owned()));
            }
        }
        let mut charts = Vec::new();
        match content.get("entries") {
            Some(Value::Mapping(entries)) => {
                for (name, list) in entries {
                    charts.push(versions(name, list)?);
                }
            }
            Some(Value::Null) => {}
            _ => return Err(Error::Form("entries".to_owned())),
        }
        Ok(Self { charts, content })
    }

    /// The versions of a chart, none where it is not listed.
    pub fn versions(&self, name: &str) -> &[Entry] {
        let found = self.charts.iter().find(|(found, _)| found == name);
        found.map_or(&[], |(_, list)| list)
    }

    /// Every entry.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.charts.iter().flat_map(|(_, list)| list)
    }
}

fn versions(name: &Value, list: &Value) -> Result<(String, Vec<Entry>), Error> {
    let name = name
        .as_str()
        .ok_or_else(|| Error::Form("text for a name".to_owned()))?;
    let list = match list {
        Value::Sequence(list) => list.as_slice(),
        Value::Null => &[],
        _ => return Err(Error::Form(format!("list of versions for {name}"))),
    };
    let entries = list.iter().map(|content| entry(name, content));
    Ok((name.to_owned(), entries.collect::<Result<_, _>>()?))
}

fn entry(name: &str, content: &Value) -> Result<Entry, Error> {
    let lacks = |what: &str| Error::Form(format!("{what} in an entry of {name}"));
    let text = |key: &str| content.get(key).and_then(Value::as_str);
    let digest = text("digest")
        .filter(|text| !text.is_empty())
        .map(|text| Digest::from_hex(text.strip_prefix("sha256:").unwrap_or(text)))
        .transpose()
        .map_err(|_| lacks("sound digest"))?;
    let urls = match content.get("urls") {
        Some(Value::Sequence(urls)) => urls
            .iter()
            .map(|url| url.as_str().map(str::to_owned))
            .collect(),
        None | Some(Value::Null) => Some(Vec::new()),
        Some(_) => None,
    };
    Ok(Entry {
        name: text("name").ok_or_else(|| lacks("name"))?.to_owned(),
        version: text("version").ok_or_else(|| lacks("version"))?.to_owned(),
        digest,
        urls: urls.ok_or_else(|| lacks("sound list of urls"))?,
        content: content.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_index_is_told() {
        for (text, expected) in [
            ("a: [", "does not parse"),
            ("[]", "does not parse"),
            ("entries: {}", "apiVersion ``"),
            ("apiVersion: v2\nentries: {}", "apiVersion `v2`"),
            ("apiVersion: v1", "has no entries"),
            ("apiVersion: v1\nentries: []", "has no entries"),
            ("apiVersion: v1\nentries: {1: []}", "no text for a name"),
            (
                "apiVersion: v1\nentries: {a: b}",
                "no list of versions for a",
            ),
            (
                "apiVersion: v1\nentries: {a: [b]}",
                "no name in an entry of a",
            ),
            ("apiVersion: v1\nentries: {a: [{name: a}]}", "no version in"),
            (
                "apiVersion: v1\nentries: {a: [{name: a, version: 1.0.0, digest: x}]}",
                "no sound digest",
            ),
            (
                "apiVersion: v1\nentries: {a: [{name: a, version: 1.0.0, urls: x}]}",
                "no sound list of urls",
            ),
            (
                "apiVersion: v1\nentries: {a: [{name: a, version: 1.0.0, urls: [1]}]}",
                "no sound list of urls",
            ),
        ] {
            let error = Index::read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_index_may_be_empty() {
        for text in [
            "apiVersion: v1\nentries:\n",
            "apiVersion: v1\nentries: {}",
            "apiVersion: v1\nentries: {a: }",
        ] {
            assert_eq!(Index::read(text).unwrap().entries().count(), 0);
        }
    }
}
