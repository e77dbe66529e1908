//! New charts in an index that is published already. No line of what is there changes: clients hold its digests.
//!
//! Lines are put where they belong by what the file looks like; what came of it is then read and compared with what was wanted.

mod lines;

use archive::digest::Digest;
use serde_yaml::{Mapping, Value};

use super::read::{self, Entry, Index};
use crate::{
    about::About,
    version::{ParseError, Version},
};

/// An index of nothing.
const EMPTY: &str = "apiVersion: v1\nentries: {}\n";

/// An archive to be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// What it says of itself.
    pub about: About,
    /// Its digest.
    pub digest: Digest,
    /// Where it is, relative to the index or not.
    pub url: String,
}

/// What came of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The index.
    pub text: String,
    /// Name and version of each chart that was not in it before.
    pub added: Vec<(String, String)>,
}

/// Why the index stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What is there is no index.
    #[error(transparent)]
    Read(#[from] read::Error),
    /// A version is none.
    #[error("{name}: {source}")]
    Version {
        /// Of which chart.
        name: String,
        /// Why.
        #[source]
        source: ParseError,
    },
    /// The version is there with other bytes.
    #[error("{name} {version} is published with {}, this one has {digest}: give it a new version", .published.map_or_else(|| "no digest".to_owned(), |digest| digest.to_string()))]
    Published {
        /// The chart.
        name: String,
        /// Its version.
        version: String,
        /// The digest that clients know.
        published: Option<Digest>,
        /// The other.
        digest: Digest,
    },
    /// The version is there in another writing.
    #[error(
        "{name} {version} is the same version for Helm as {published}, which is published: give it a new version"
    )]
    Written {
        /// The chart.
        name: String,
        /// Its version.
        version: String,
        /// As it is written in the index.
        published: String,
    },
    /// The lines do not look as they usually do.
    #[error(
        "{0} has no place in this index: it is not laid out as Helm does it; `helm repo index --merge` lays it out anew"
    )]
    Form(String),
}

/// Adds charts to an index, or begins one; `now` is an RFC 3339 time. Charts that are there already, to the byte, change nothing.
pub fn merge(index: Option<&str>, new: &[Listing], now: &str) -> Result<Merged, Error> {
    let mut new: Vec<_> = new
        .iter()
        .map(|one| Ok((version(&one.about)?, one)))
        .collect::<Result<_, Error>>()?;
    new.sort_by(|(left, one), (right, other)| {
        (one.about.name.cmp(&other.about.name)).then_with(|| right.order(left))
    });
    let mut merged = Merged {
        text: index.unwrap_or(EMPTY).to_owned(),
        added: Vec::new(),
    };
    let mut known = Index::read(&merged.text)?;
    for (version, listing) in new {
        let name = &listing.about.name;
        let list = known.versions(name);
        if is_published(listing, &version, list)? {
            continue;
        }
        let place = place(&version, list)?;
        let form = || Error::Form(format!("{name} {version}"));
        let entry = entry(listing, now);
        let text = lines::put(&merged.text, name, place, &entry).ok_or_else(form)?;
        let wanted = with(&known.content, name, place, entry).ok_or_else(form)?;
        let read = Index::read(&text).ok();
        known = read
            .filter(|read| read.content == wanted)
            .ok_or_else(form)?;
        merged.text = text;
        merged.added.push((name.clone(), version.to_string()));
    }
    if !merged.added.is_empty() || index.is_none() {
        merged.text = lines::generated(&merged.text, now);
        let mut wanted = known.content;
        wanted.insert("generated".into(), now.into());
        if Index::read(&merged.text)?.content != wanted {
            return Err(Error::Form("the time".to_owned()));
        }
    }
    Ok(merged)
}

fn version(about: &About) -> Result<Version, Error> {
    about.version.parse().map_err(|source| Error::Version {
        name: about.name.clone(),
        source,
    })
}

/// Whether this very archive is listed.
fn is_published(new: &Listing, version: &Version, list: &[Entry]) -> Result<bool, Error> {
    for entry in list {
        if entry.version == new.about.version {
            if entry.digest == Some(new.digest) {
                return Ok(true);
            }
            return Err(Error::Published {
                name: new.about.name.clone(),
                version: new.about.version.clone(),
                published: entry.digest,
                digest: new.digest,
            });
        }
        if parsed(entry)?.is_same(version) {
            return Err(Error::Written {
                name: new.about.name.clone(),
                version: new.about.version.clone(),
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

/// Before the first that is older.
fn place(version: &Version, list: &[Entry]) -> Result<usize, Error> {
    for (at, entry) in list.iter().enumerate() {
        if parsed(entry)?.order(version).is_lt() {
            return Ok(at);
        }
    }
    Ok(list.len())
}

/// What Helm writes: every field of the description, and what is known of the archive, by name.
fn entry(listing: &Listing, now: &str) -> Mapping {
    let about =
        serde_yaml::to_value(&listing.about).expect("a description has text keys and no floats");
    let mut fields: Vec<(Value, Value)> = match about {
        Value::Mapping(about) => about.into_iter().collect(),
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

/// The content with one entry more.
fn with(content: &Mapping, name: &str, place: usize, entry: Mapping) -> Option<Mapping> {
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
    list.as_sequence_mut()?.insert(place, entry.into());
    Some(content)
}

#[cfg(test)]
mod tests;
