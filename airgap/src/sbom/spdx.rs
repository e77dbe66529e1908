//! Reads bills of materials as SPDX 2.3 in JSON.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::Value;

use super::{Item, Listing};

/// The media type of a document.
pub const MEDIA_TYPE: &str = "application/spdx+json";
/// The identifier that every document gives itself.
pub const DOCUMENT: &str = "SPDXRef-DOCUMENT";

/// Reads what a document lists.
pub fn read(document: &Value) -> anyhow::Result<Listing> {
    let relationships = document["relationships"].as_array();
    let relationships = relationships.context("it has no relationships")?;
    let pairs = |kind: &str| -> Vec<(&str, &str)> {
        let found = relationships
            .iter()
            .filter(|one| one["relationshipType"] == kind);
        found
            .filter_map(|one| {
                let from = one["spdxElementId"].as_str()?;
                Some((from, one["relatedSpdxElement"].as_str()?))
            })
            .collect()
    };
    let described = pairs("DESCRIBES");
    let &[(DOCUMENT, subject)] = &described[..] else {
        anyhow::bail!("it does not describe one subject");
    };
    let other = ["CONTAINS", "STATIC_LINK"].into_iter().flat_map(pairs);
    let used: BTreeSet<_> = other.map(|(_, to)| to).collect();
    let packages = document["packages"].as_array();
    let mut subject_item = None;
    let mut items = BTreeSet::new();
    for package in packages.context("it has no list of packages")? {
        let id = package["SPDXID"].as_str().unwrap_or_default();
        let item = item(package, !used.contains(id)).context("a package has no name")?;
        if id == subject {
            subject_item = Some(Item {
                is_build_only: false,
                ..item
            });
        } else {
            items.insert(item);
        }
    }
    Ok(Listing {
        subject: subject_item.context("it has no subject")?,
        items,
    })
}

fn item(package: &Value, is_build_only: bool) -> Option<Item> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |key: &str| package[key].as_array().into_iter().flatten();
    let mut purls = list("externalRefs").filter(|one| one["referenceType"] == "purl");
    let mut hashes = list("checksums").filter(|one| one["algorithm"] == "SHA256");
    Some(Item {
        name: text(&package["name"])?,
        version: text(&package["versionInfo"]),
        purl: purls.next().and_then(|one| text(&one["referenceLocator"])),
        sha256: hashes.next().and_then(|one| text(&one["checksumValue"])),
        is_build_only,
    })
}
