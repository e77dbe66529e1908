//! Reads bills of materials as CycloneDX 1.6 in JSON.

use anyhow::Context as _;
use serde_json::Value;

use super::{Item, Listing};

/// The media type of a document.
pub const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// Reads what a document lists.
pub fn read(document: &Value) -> anyhow::Result<Listing> {
    let subject = item(&document["metadata"]["component"]).context("it has no subject")?;
    let components = document["components"].as_array();
    let components = components.context("it has no list of components")?.iter();
    let items = components.map(|one| item(one).context("a component has no name"));
    Ok(Listing {
        subject,
        items: items.collect::<anyhow::Result<_>>()?,
    })
}

fn item(component: &Value) -> Option<Item> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let hashes = component["hashes"].as_array().into_iter().flatten();
    let mut hashes = hashes.filter(|hash| hash["alg"] == "SHA-256");
    Some(Item {
        name: text(&component["name"])?,
        version: text(&component["version"]),
        purl: text(&component["purl"]),
        sha256: hashes.next().and_then(|hash| text(&hash["content"])),
        is_build_only: component["scope"] == "excluded",
    })
}
