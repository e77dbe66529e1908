//! Writes bills of materials as SPDX 2.3 in JSON.

use airgap::sbom::spdx::DOCUMENT;
use archive::digest::sha256;
use serde_json::{Value, json};

use super::{
    Header,
    bom::{Bom, Component, Kind, Relation},
};

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
