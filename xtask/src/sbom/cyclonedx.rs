//! Writes bills of materials as CycloneDX 1.6 in JSON.

use std::collections::BTreeMap;

use archive::digest::sha256;
use serde_json::{Map, Value, json};

use super::{
    Header,
    bom::{Bom, Component, Kind},
};

/// Returns a document.
pub(super) fn write(bom: &Bom, header: &Header) -> Value {
    let components = bom.components.iter();
    let components = components.filter(|(id, _)| **id != bom.subject);
    let components: Vec<_> = components.map(|(id, one)| component(id, one)).collect();
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for id in bom.components.keys() {
        needs.insert(id, Vec::new());
    }
    for (from, to) in &bom.parts {
        needs.entry(from).or_default().push(to);
    }
    let dependencies = needs.into_iter();
    let dependencies: Vec<_> = dependencies
        .map(|(from, to)| json!({"ref": from, "dependsOn": to}))
        .collect();
    let subject = bom.components.get(&bom.subject);
    let subject = subject.map(|one| component(&bom.subject, one));
    let mut document = document(header, &subject.unwrap_or_default(), &bom.subject);
    document.insert("components".into(), components.into());
    document.insert("dependencies".into(), dependencies.into());
    document.into()
}

/// Returns the head of a document; its serial number follows from the subject, so that the same release has the same one.
pub(super) fn document(header: &Header, subject: &Value, seed: &str) -> Map<String, Value> {
    let seed = format!("{seed} {subject}");
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{}", uuid(&seed)),
        "version": 1,
        "metadata": {
            "timestamp": header.created,
            "tools": {"components": [{
                "type": "application",
                "name": "xtask",
                "version": header.version,
            }]},
            "component": subject,
        },
    });
    match document {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Returns a UUID of version 8 (RFC 9562), whose bits are up to the writer.
fn uuid(seed: &str) -> String {
    let hex = sha256(seed.as_bytes()).hex();
    format!(
        "{}-{}-8{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..15],
        &hex[15..18],
        &hex[18..30]
    )
}

fn component(id: &str, component: &Component) -> Value {
    let kind = match component.kind {
        Kind::Program => "application",
        Kind::Library => "library",
        Kind::Image => "container",
        Kind::Archive => "file",
    };
    let mut value = json!({"type": kind, "bom-ref": id, "name": component.name});
    let mut add = |key: &str, part: Option<Value>| {
        if let Some(part) = part {
            value[key] = part;
        }
    };
    add("version", component.version.clone().map(Value::from));
    if component.kind == Kind::Library {
        let scope = if component.is_build_only {
            "excluded"
        } else {
            "required"
        };
        add("scope", Some(scope.into()));
    }
    let sha256 = component.sha256.as_ref();
    add(
        "hashes",
        sha256.map(|hex| json!([{"alg": "SHA-256", "content": hex}])),
    );
    let licence = component.licence.as_ref();
    add(
        "licenses",
        licence.map(|expression| json!([{"expression": expression}])),
    );
    add("cpe", component.cpe.clone().map(Value::from));
    add("purl", component.purl.clone().map(Value::from));
    let source = component.source.as_ref();
    let source = source.map(|address| {
        let kind = if component.sha256.is_some() && component.kind == Kind::Library {
            "distribution"
        } else {
            "vcs"
        };
        json!([{"type": kind, "url": address}])
    });
    add("externalReferences", source);
    let features: Vec<_> = component.features.iter().map(String::as_str).collect();
    add(
        "properties",
        (!features.is_empty())
            .then(|| json!([{"name": "multus-rs:features", "value": features.join(",")}])),
    );
    value
}
