//! Bills of materials as SPDX 2.3 in JSON.

use std::collections::BTreeSet;

use anyhow::Context as _;
use archive::digest::sha256;
use serde_json::{Value, json};

use super::{
    Header, Item, Listing,
    bom::{Bom, Component, Kind, Relation},
};

/// The media type of a document.
pub(crate) const MEDIA_TYPE: &str = "application/spdx+json";

const DOCUMENT: &str = "SPDXRef-DOCUMENT";

/// Returns a document.
pub(super) fn write(bom: &Bom, header: &Header) -> Value {
    let packages = bom.components.iter();
    let packages: Vec<_> = packages.map(|(id, one)| package(id, one)).collect();
    let describes = relationship(DOCUMENT, "DESCRIBES", &reference(&bom.subject));
    let relationships = bom.relations.iter().map(|(from, relation, to)| {
        let (from, to) = (reference(from), reference(to));
        match relation {
            Relation::Contains => relationship(&from, "CONTAINS", &to),
            Relation::Links => relationship(&from, "STATIC_LINK", &to),
            Relation::Builds => relationship(&to, "BUILD_DEPENDENCY_OF", &from),
        }
    });
    let relationships: Vec<_> = [describes].into_iter().chain(relationships).collect();
    let subject = bom.components.get(&bom.subject);
    let name = subject.map_or(bom.subject.as_str(), |one| &one.name);
    let seed = format!("{} {subject:?}", bom.subject);
    let namespace = format!(
        "{}/spdx/{}-{}",
        env!("CARGO_PKG_REPOSITORY"),
        bom.subject,
        &sha256(seed.as_bytes()).hex()[..32]
    );
    json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": name,
        "documentNamespace": namespace,
        "creationInfo": {
            "created": header.created,
            "creators": ["Organization: multus-rs", format!("Tool: xtask-{}", header.version)],
        },
        "packages": packages,
        "relationships": relationships,
    })
}

fn reference(id: &str) -> String {
    format!("SPDXRef-{id}")
}

fn relationship(from: &str, kind: &str, to: &str) -> Value {
    json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to})
}

fn package(id: &str, component: &Component) -> Value {
    let purpose = match component.kind {
        Kind::Program => "APPLICATION",
        Kind::Library => "LIBRARY",
        Kind::Image => "CONTAINER",
        Kind::Archive => "ARCHIVE",
    };
    let unknown = "NOASSERTION";
    let mut package = json!({"SPDXID": reference(id), "name": component.name});
    let mut add = |key: &str, part: Option<Value>| {
        if let Some(part) = part {
            package[key] = part;
        }
    };
    add("versionInfo", component.version.clone().map(Value::from));
    let source = component.source.as_deref().unwrap_or(unknown);
    add("downloadLocation", Some(source.into()));
    add("filesAnalyzed", Some(false.into()));
    add("licenseConcluded", Some(unknown.into()));
    let licence = component.licence.as_deref().unwrap_or(unknown);
    add("licenseDeclared", Some(licence.into()));
    add("copyrightText", Some(unknown.into()));
    add("primaryPackagePurpose", Some(purpose.into()));
    let sha256 = component.sha256.as_ref();
    add(
        "checksums",
        sha256.map(|hex| json!([{"algorithm": "SHA256", "checksumValue": hex}])),
    );
    let external = |category: &str, kind: &str, locator: &Option<String>| {
        let locator = locator.as_ref()?;
        Some(json!({
            "referenceCategory": category,
            "referenceType": kind,
            "referenceLocator": locator,
        }))
    };
    let references = [
        external("PACKAGE-MANAGER", "purl", &component.purl),
        external("SECURITY", "cpe23Type", &component.cpe),
    ];
    let references: Vec<_> = references.into_iter().flatten().collect();
    add(
        "externalRefs",
        (!references.is_empty()).then(|| references.into()),
    );
    let features: Vec<_> = component.features.iter().map(String::as_str).collect();
    add(
        "comment",
        (!features.is_empty()).then(|| format!("features: {}", features.join(",")).into()),
    );
    package
}

/// Reads what a document lists.
pub(super) fn read(document: &Value) -> anyhow::Result<Listing> {
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
