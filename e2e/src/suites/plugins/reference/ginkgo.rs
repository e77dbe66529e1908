//! Ginkgo's report of a run, and the expression that selects specs.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

/// One spec that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    /// The texts around and of the spec, as `--ginkgo.focus` sees them.
    pub(super) text: String,
    /// Why it failed; `None` when it passed.
    pub(super) failure: Option<String>,
}

/// Returns the specs of a report by name. Specs with the same texts are told apart by their order.
pub(super) fn specs(report: &[u8]) -> anyhow::Result<BTreeMap<String, Spec>> {
    let report: Value = serde_json::from_slice(report).context("the report is not JSON")?;
    let mut found = BTreeMap::new();
    let suites = report.as_array().context("the report has no suites")?;
    for report in suites.iter().flat_map(|suite| list(&suite["SpecReports"])) {
        let state = text(&report["State"]);
        // Nodes such as BeforeSuite are reported as specs only for their failures.
        let is_spec = report["LeafNodeType"] == "It";
        if state == "skipped" || (!is_spec && state == "passed") {
            continue;
        }
        let mut texts: Vec<_> = list(&report["ContainerHierarchyTexts"])
            .iter()
            .map(text)
            .collect();
        texts.push(text(
            &report[if is_spec {
                "LeafNodeText"
            } else {
                "LeafNodeType"
            }],
        ));
        let failure = (state != "passed").then(|| {
            let failure = &report["Failure"];
            let location = &failure["Location"];
            let file = text(&location["FileName"]);
            let file = file.rsplit('/').next().unwrap_or_default();
            format!(
                "{state}: {} ({file}:{})",
                text(&failure["Message"]),
                location["LineNumber"]
            )
        });
        let spec = Spec {
            text: texts.join(" "),
            failure,
        };
        let mut name = texts.join(" / ");
        let first = name.clone();
        for number in 2.. {
            if !found.contains_key(&name) {
                break;
            }
            name = format!("{first} #{number}");
        }
        found.insert(name, spec);
    }
    Ok(found)
}

/// Returns a regular expression for the specs with these texts.
pub(super) fn focus<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut alternatives: Vec<_> = texts.into_iter().map(escaped).collect();
    alternatives.sort();
    alternatives.dedup();
    alternatives.join("|")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(specs: &Value) -> BTreeMap<String, Spec> {
        super::specs(json!([{"SpecReports": specs}]).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn specs_with_the_same_texts_are_numbered() {
        let spec = json!({"LeafNodeType": "It", "LeafNodeText": "adds", "ContainerHierarchyTexts": ["bridge"], "State": "passed"});
        let found = report(&json!([spec, spec]));
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["bridge / adds", "bridge / adds #2"]);
        assert_eq!(found["bridge / adds #2"].text, "bridge adds");
    }

    #[test]
    fn a_failure_has_state_message_and_place() {
        let failure =
            json!({"Message": "no", "Location": {"FileName": "/x/a_test.go", "LineNumber": 7}});
        let found = report(&json!([
            {"LeafNodeType": "It", "LeafNodeText": "adds", "State": "panicked", "Failure": failure},
            {"LeafNodeType": "It", "LeafNodeText": "waits", "State": "skipped"},
            {"LeafNodeType": "BeforeSuite", "State": "passed"},
            {"LeafNodeType": "AfterSuite", "State": "failed", "Failure": failure},
        ]));
        assert_eq!(
            found["adds"].failure.as_deref(),
            Some("panicked: no (a_test.go:7)")
        );
        assert_eq!(found.keys().collect::<Vec<_>>(), ["AfterSuite", "adds"]);
    }

    #[test]
    fn a_focus_matches_texts_literally() {
        assert_eq!(
            focus(["b [1.0.0] x", "a (c)", "a (c)"]),
            r"a \(c\)|b \[1\.0\.0\] x"
        );
    }
}
