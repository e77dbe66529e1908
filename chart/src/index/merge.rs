//! Adds charts to a published index. No existing line changes, since clients rely on the published digests.
//!
//! The place of new lines is found by the file's layout. The new text is then parsed and compared with the intended content.

mod lines;

use archive::digest::Digest;
use serde_yaml::{Mapping, Value};

use super::read::{self, Entry, Index};
use crate::{
    metadata::Metadata,
    version::{ParseError, Version},
};

/// An index without entries.
const EMPTY: &str = "apiVersion: v1\nentries: {}\n";

/// A chart to list in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The chart's metadata.
    pub metadata: Metadata,
    /// The archive's digest.
    pub digest: Digest,
    /// The archive's address, absolute or relative to the index.
    pub url: String,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The text of the index.
    pub text: String,
    /// Name and version of each chart that was added.
    pub added: Vec<(String, String)>,
}

/// The reasons why charts cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The present index cannot be read.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// A version is invalid.
    #[error("{name}: {source}")]
    Version {
        /// The chart.
        name: String,
        /// The reason.
        #[source]
        source: ParseError,
    },
    /// The version is published with other bytes.
    #[error("{name} {version} is published with {}, this one has {digest}: give it a new version", .published.map_or_else(|| "no digest".to_owned(), |digest| digest.to_string()))]
    Published {
        /// The chart.
        name: String,
        version: String,
        /// The digest in the index.
        published: Option<Digest>,
        /// The digest of the new archive.
        digest: Digest,
    },
    /// The version is published with another spelling.
    #[error(
        "{name} {version} is the same version for Helm as {published}, which is published: give it a new version"
    )]
    SameVersion {
        /// The chart.
        name: String,
        /// The new version.
        version: String,
        /// The version in the index.
        published: String,
    },
    /// The index is not laid out as usual.
    #[error(
        "cannot add {0}: the index is not laid out as Helm writes it: write its lists one item after the other, without braces and brackets"
    )]
    Layout(String),
}

/// Adds charts to an index, or begins one; `now` is an RFC 3339 time. Charts that are listed already with the same bytes change nothing.
pub fn merge(index: Option<&str>, new: &[Listing], now: &str) -> Result<Merged, Error> {
    let text = index.unwrap_or(EMPTY);
    let known = Index::read(text)?;
    let (merged, _) = add(text.to_owned(), known, new, now, index.is_none())?;
    Ok(merged)
}

/// Adds charts to an index that was read from this text. Returns the new index with its text.
pub(crate) fn add(
    text: String,
    mut known: Index,
    new: &[Listing],
    now: &str,
    is_new: bool,
) -> Result<(Merged, Index), Error> {
    let mut new: Vec<_> = new
        .iter()
        .map(|one| Ok((version(&one.metadata)?, one)))
        .collect::<Result<_, Error>>()?;
    new.sort_by(|(left, one), (right, other)| {
        (one.metadata.name.cmp(&other.metadata.name)).then_with(|| right.order(left))
    });
    let mut merged = Merged {
        text,
        added: Vec::new(),
    };
    for (version, listing) in new {
        let name = &listing.metadata.name;
        let list = known.versions(name);
        if is_published(listing, &version, list)? {
            continue;
        }
        let position = position(&version, list)?;
        let unusual = || Error::Layout(format!("{name} {version}"));
        let entry = entry(listing, now);
        let text = lines::insert(&merged.text, name, position, &entry).ok_or_else(unusual)?;
        let intended = with(&known.content, name, position, entry).ok_or_else(unusual)?;
        let read = Index::read(&text).ok();
        known = read
            .filter(|read| read.content == intended)
            .ok_or_else(unusual)?;
        merged.text = text;
        merged.added.push((name.clone(), version.to_string()));
    }
    let former = known.content.get("generated").and_then(Value::as_str);
    let is_newer = former.and_then(instant) > instant(now);
    if !is_newer && (!merged.added.is_empty() || is_new) {
        merged.text = lines::set_generated(&merged.text, now);
        let mut intended = known.content;
        intended.insert("generated".into(), now.into());
        known = Index::read(&merged.text)?;
        if known.content != intended {
            return Err(Error::Layout("the time".to_owned()));
        }
    }
    Ok((merged, known))
}

/// Returns the seconds and the fraction of an RFC 3339 time, comparable with others.
fn instant(time: &str) -> Option<(i64, String)> {
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    // Days since 1 March of year 0, by which leap days come last in a year.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day;
    let seconds = (number(11..13)? * 60 + number(14..16)?) * 60 + number(17..19)?;
    let rest = time.get(19..)?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let fraction = rest[..zone].trim_start_matches('.').trim_end_matches('0');
    let offset = match rest[zone..].split_at(1) {
        ("Z" | "z", "") => 0,
        (sign, zone) => {
            let (hours, minutes) = zone.split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if sign == "+" { minutes } else { -minutes }
        }
    };
    Some((days * 86_400 + seconds - offset * 60, fraction.to_owned()))
}

fn version(metadata: &Metadata) -> Result<Version, Error> {
    metadata.version.parse().map_err(|source| Error::Version {
        name: metadata.name.clone(),
        source,
    })
}

/// Returns true when this archive is listed; fails when its version is listed with other bytes or another spelling.
fn is_published(new: &Listing, version: &Version, list: &[Entry]) -> Result<bool, Error> {
    for entry in list {
        if entry.version == new.metadata.version {
            if entry.digest == Some(new.digest) {
                return Ok(true);
            }
            return Err(Error::Published {
                name: new.metadata.name.clone(),
                version: new.metadata.version.clone(),
                published: entry.digest,
                digest: new.digest,
            });
        }
        if parsed(entry)?.is_same(version) {
            return Err(Error::SameVersion {
                name: new.metadata.name.clone(),
                version: new.metadata.version.clone(),
                published: entry.version.clone(),
            });
        }
    }
    Ok(false)
}

fn parsed(entry: &Entry) -> Result<Version, Error> {
    entry.version.parse().map_err(|source| Error::Version {
        name: entry.name.clone(),
        source,
    })
}

/// Returns the position before the first older version.
fn position(version: &Version, list: &[Entry]) -> Result<usize, Error> {
    for (at, entry) in list.iter().enumerate() {
        if parsed(entry)?.order(version).is_lt() {
            return Ok(at);
        }
    }
    Ok(list.len())
}

/// Makes an entry as Helm writes it: all fields of the metadata and those of the archive, sorted by name.
fn entry(listing: &Listing, now: &str) -> Mapping {
    let metadata =
        serde_yaml::to_value(&listing.metadata).expect("metadata has text keys and no floats");
    let mut fields: Vec<(Value, Value)> = match metadata {
        Value::Mapping(metadata) => metadata.into_iter().collect(),
        _ => Vec::new(),
    };
    let own = [
        ("created", now.into()),
        ("digest", listing.digest.hex().into()),
        ("urls", vec![listing.url.clone()].into()),
    ];
    fields.extend(own.map(|(key, value): (&str, Value)| (key.into(), value)));
    fields.sort_by(|(left, _), (right, _)| left.as_str().cmp(&right.as_str()));
    fields.into_iter().collect()
}

/// Returns the content with one more entry.
fn with(content: &Mapping, name: &str, position: usize, entry: Mapping) -> Option<Mapping> {
    let mut content = content.clone();
    let entries = content.get_mut("entries")?;
    if entries.is_null() {
        *entries = Mapping::new().into();
    }
    let list = entries
        .as_mapping_mut()?
        .entry(name.into())
        .or_insert(Value::Null);
    if list.is_null() {
        *list = Vec::<Value>::new().into();
    }
    list.as_sequence_mut()?.insert(position, entry.into());
    Some(content)
}

#[cfg(test)]
mod tests;
