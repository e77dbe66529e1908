//! Reads an index of any publisher.

use archive::digest::Digest;
use serde_yaml::{Mapping, Value};

/// The reasons why a file is not an index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not parse.
    #[error("the index does not parse")]
    Parse(#[source] serde_yaml::Error),
    /// The `apiVersion` is unknown.
    #[error("the index has apiVersion `{0}`: only v1 is supported")]
    ApiVersion(String),
    /// A required field is missing or has another type.
    #[error("the index has no {0}")]
    MissingField(String),
}

/// An index: the versions of each chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    /// The entries by the chart's name, in the order of the file.
    pub charts: Vec<(String, Vec<Entry>)>,
    /// The complete content, with unknown keys.
    pub(super) content: Mapping,
}

/// An entry: one version of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The chart's name.
    pub name: String,
    /// The chart's version.
    pub version: String,
    /// The archive's digest; some indexes have none.
    pub digest: Option<Digest>,
    /// The archive's addresses, absolute or relative to the index.
    pub urls: Vec<String>,
    /// The complete entry, with unknown keys.
    pub content: Value,
}

impl Index {
    /// Parses `index.yaml`.
    pub fn read(text: &str) -> Result<Self, Error> {
        let content: Mapping = serde_yaml::from_str(text).map_err(Error::Parse)?;
        match content.get("apiVersion") {
            Some(Value::String(version)) if version == "v1" => {}
            other => {
                let version = other.and_then(Value::as_str).unwrap_or_default();
                return Err(Error::ApiVersion(version.to_owned()));
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
            _ => return Err(Error::MissingField("entries".to_owned())),
        }
        Ok(Self { charts, content })
    }

    /// Returns the versions of a chart; empty when it is not listed.
    pub fn versions(&self, name: &str) -> &[Entry] {
        let found = self.charts.iter().find(|(found, _)| found == name);
        found.map_or(&[], |(_, list)| list)
    }

    /// Returns all entries of all charts.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.charts.iter().flat_map(|(_, list)| list)
    }
}

fn versions(name: &Value, list: &Value) -> Result<(String, Vec<Entry>), Error> {
    let name = name
        .as_str()
        .ok_or_else(|| Error::MissingField("text for a name".to_owned()))?;
    let list = match list {
        Value::Sequence(list) => list.as_slice(),
        Value::Null => &[],
        _ => return Err(Error::MissingField(format!("list of versions for {name}"))),
    };
    let entries = list.iter().map(|content| entry(name, content));
    Ok((name.to_owned(), entries.collect::<Result<_, _>>()?))
}

fn entry(name: &str, content: &Value) -> Result<Entry, Error> {
    let missing = |field: &str| Error::MissingField(format!("{field} in an entry of {name}"));
    let text = |key: &str| content.get(key).and_then(Value::as_str);
    let digest = text("digest")
        .filter(|text| !text.is_empty())
        .map(|text| Digest::from_hex(text.strip_prefix("sha256:").unwrap_or(text)))
        .transpose()
        .map_err(|_| missing("valid digest"))?;
    let urls = match content.get("urls") {
        Some(Value::Sequence(urls)) => urls
            .iter()
            .map(|url| url.as_str().map(str::to_owned))
            .collect(),
        None | Some(Value::Null) => Some(Vec::new()),
        Some(_) => None,
    };
    Ok(Entry {
        name: text("name").ok_or_else(|| missing("name"))?.to_owned(),
        version: text("version")
            .ok_or_else(|| missing("version"))?
            .to_owned(),
        digest,
        urls: urls.ok_or_else(|| missing("valid list of urls"))?,
        content: content.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_an_index_are_refused() {
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
                "no valid digest",
            ),
            (
                "apiVersion: v1\nentries: {a: [{name: a, version: 1.0.0, urls: x}]}",
                "no valid list of urls",
            ),
            (
                "apiVersion: v1\nentries: {a: [{name: a, version: 1.0.0, urls: [1]}]}",
                "no valid list of urls",
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
