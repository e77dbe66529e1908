//! Advisories that do not apply to a release, with reasons: `xtask/vex.toml` as a CycloneDX document that scanners read (VEX).

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Header, cyclonedx, graph};

/// The list that this program was built with.
const LIST: &str = include_str!("../../vex.toml");
/// The version of the list's format.
const SCHEMA: u32 = 1;
/// The justifications that CycloneDX knows.
const JUSTIFICATIONS: [&str; 9] = [
    "code_not_present",
    "code_not_reachable",
    "requires_configuration",
    "requires_dependency",
    "requires_environment",
    "protected_by_compiler",
    "protected_at_runtime",
    "protected_at_perimeter",
    "protected_by_mitigating_control",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct List {
    schema: u32,
    #[serde(default)]
    not_affected: Vec<Statement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    advisory: String,
    #[serde(rename = "crate")]
    name: String,
    version: String,
    justification: String,
    reason: String,
}

/// Returns the document of a release.
pub(super) fn document(header: &Header) -> anyhow::Result<Value> {
    let statements = parse(LIST).context("xtask/vex.toml")?;
    Ok(write(&statements, header))
}

fn parse(text: &str) -> anyhow::Result<Vec<Statement>> {
    let list: List = toml::from_str(text)?;
    ensure!(
        list.schema == SCHEMA,
        "schema {} is not {SCHEMA}, which this program reads",
        list.schema
    );
    for one in &list.not_affected {
        ensure!(
            JUSTIFICATIONS.contains(&one.justification.as_str()),
            "{}: the justification is `{}`, write one of {}",
            one.advisory,
            one.justification,
            JUSTIFICATIONS.join(", ")
        );
        ensure!(
            !one.reason.trim().is_empty(),
            "{}: write the reason why it does not apply",
            one.advisory
        );
    }
    Ok(list.not_affected)
}

fn write(statements: &[Statement], header: &Header) -> Value {
    let subject = json!({
        "type": "application",
        "bom-ref": "multus-rs",
        "name": "multus-rs",
        "version": header.version,
    });
    let mut components: Vec<Value> = statements.iter().map(component).collect();
    components.sort_by_key(Value::to_string);
    components.dedup();
    let vulnerabilities = statements.iter().map(|one| {
        json!({
            "id": one.advisory,
            "source": {
                "name": "RustSec",
                "url": format!("https://rustsec.org/advisories/{}.html", one.advisory),
            },
            "analysis": {
                "state": "not_affected",
                "justification": one.justification,
                "detail": one.reason,
            },
            "affects": [{"ref": purl(one)}],
        })
    });
    let vulnerabilities: Vec<_> = vulnerabilities.collect();
    let mut document = cyclonedx::document(header, &subject, "vex");
    document.insert("components".into(), components.into());
    document.insert("vulnerabilities".into(), vulnerabilities.into());
    document.into()
}

fn purl(statement: &Statement) -> String {
    format!("pkg:cargo/{}@{}", statement.name, statement.version)
}

fn component(statement: &Statement) -> Value {
    json!({
        "type": "library",
        "bom-ref": purl(statement),
        "name": statement.name,
        "version": statement.version,
        "purl": purl(statement),
    })
}

/// Fails when a document names a crate that is not in the lock: an update has made its statement void.
pub(super) fn check_is_current(lock: &str) -> anyhow::Result<()> {
    let crates = graph::checksums(lock)?;
    for one in parse(LIST).context("xtask/vex.toml")? {
        let id = graph::CrateId {
            name: one.name,
            version: one.version,
        };
        ensure!(
            crates.contains_key(&id),
            "xtask/vex.toml: {} is about {} {}, which is not in Cargo.lock: remove it there and in deny.toml",
            one.advisory,
            id.name,
            id.version
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATEMENT: &str = "schema = 1\n[[not-affected]]\nadvisory = \"RUSTSEC-2026-0001\"\ncrate = \"x\"\nversion = \"1.2.3\"\n\
                             justification = \"code_not_reachable\"\nreason = \"It is not called.\"\n";

    /// Returns the identifiers of `advisories.ignore`, which are texts or tables.
    fn ignored(deny: &str) -> Vec<String> {
        let deny: toml::Value = toml::from_str(deny).unwrap();
        let list = deny["advisories"]["ignore"].as_array().unwrap();
        let id = |one: &toml::Value| match one {
            toml::Value::String(id) => id.clone(),
            table => table["id"].as_str().unwrap().to_owned(),
        };
        let mut ids: Vec<_> = list.iter().map(id).collect();
        ids.sort();
        ids
    }

    #[test]
    fn list_is_what_cargo_deny_passes_over() {
        let statements = parse(LIST).unwrap();
        let mut ids: Vec<_> = statements.into_iter().map(|one| one.advisory).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids, ignored(include_str!("../../../deny.toml")));
        check_is_current(include_str!("../../../Cargo.lock")).unwrap();
        let both = "[advisories]\nignore = [\"B\", { id = \"A\", reason = \"r\" }]\n";
        assert_eq!(ignored(both), ["A", "B"]);
    }

    #[test]
    fn statement_becomes_a_vulnerability_that_does_not_affect() {
        let header = Header {
            created: "1970-01-01T00:00:00Z".into(),
            version: "9.8.7".into(),
        };
        let document = write(&parse(STATEMENT).unwrap(), &header);
        let one = &document["vulnerabilities"][0];
        assert_eq!(one["id"], "RUSTSEC-2026-0001");
        assert_eq!(one["analysis"]["state"], "not_affected");
        assert_eq!(one["analysis"]["detail"], "It is not called.");
        assert_eq!(
            one["affects"][0]["ref"],
            document["components"][0]["bom-ref"]
        );
        let none = write(&[], &header);
        assert_eq!(none["vulnerabilities"], json!([]));
    }

    #[test]
    fn statement_without_a_reason_is_refused() {
        for (from, to, expected) in [
            ("It is not called.", " ", "write the reason"),
            (
                "code_not_reachable",
                "unlikely",
                "the justification is `unlikely`",
            ),
            ("schema = 1", "schema = 2", "schema 2 is not 1"),
        ] {
            let error = parse(&STATEMENT.replace(from, to)).err().unwrap();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
