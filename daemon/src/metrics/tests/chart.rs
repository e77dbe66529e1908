//! Checks that the chart's dashboard for Grafana and alerts for Prometheus query only metrics that the daemon serves.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{complete_text, exposition};

const DASHBOARD: &str = include_str!("../../../../chart/template/main/files/dashboard.json");
const RULES: &str = include_str!("../../../../chart/template/main/files/rules.yaml");

/// Returns the names that queries may use, with the labels of their samples.
fn served() -> BTreeMap<String, BTreeSet<String>> {
    let mut served = BTreeMap::<String, BTreeSet<String>>::new();
    for block in exposition::parse(&complete_text()).unwrap() {
        for sample in block.samples {
            let labels = served.entry(sample.name).or_default();
            labels.extend(sample.labels.into_keys());
            // Prometheus adds this label.
            labels.insert("instance".to_owned());
        }
    }
    served
}

/// Returns the metrics of a query with the labels by which it selects them.
fn selectors(expr: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = expr;
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    while let Some(start) = rest.find(|char: char| char.is_ascii_alphabetic()) {
        let word = &rest[start..];
        let end = word.find(|char| !is_part(char)).unwrap_or(word.len());
        let (name, behind) = word.split_at(end);
        rest = behind;
        if !(name.starts_with("multus_") || name.starts_with("process_")) {
            // Words in quotes are values of labels.
            continue;
        }
        let mut labels = Vec::new();
        if let Some(inside) = behind.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').expect("a closing brace");
            for pair in inside.split(", ") {
                let end = pair.find(['=', '!']).expect("a comparison");
                labels.push(pair[..end].to_owned());
            }
            rest = after;
        }
        found.push((name.to_owned(), labels));
    }
    found
}

/// Returns the labels by which an expression groups.
fn groups(expr: &str) -> Vec<&str> {
    let parts = expr.split(" by (").skip(1);
    let lists = parts.filter_map(|part| part.split_once(')'));
    lists.flat_map(|(list, _)| list.split(", ")).collect()
}

fn check(title: &str, expr: &str, served: &BTreeMap<String, BTreeSet<String>>) {
    let selectors = selectors(expr);
    assert!(!selectors.is_empty(), "{title}: no metric in {expr}");
    for (name, labels) in &selectors {
        let known = served.get(name);
        let known = known.unwrap_or_else(|| panic!("{title}: {name} is not served: {expr}"));
        for label in labels.iter().map(String::as_str).chain(groups(expr)) {
            assert!(
                known.contains(label),
                "{title}: {name} has no {label}: {expr}"
            );
        }
    }
    let opened = expr.matches('(').count();
    assert_eq!(opened, expr.matches(')').count(), "{title}: {expr}");
    if expr.contains("_bucket") {
        assert!(groups(expr).contains(&"le"), "{title}: {expr}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn the_dashboard_queries_only_served_metrics() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let served = served();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut queries = String::new();
    for panel in panels {
        let title = text(&panel["title"]);
        assert!(
            ids.insert(panel["id"].as_u64()),
            "{title}: its id is used twice"
        );
        if panel["type"] == "row" {
            continue;
        }
        for target in panel["targets"].as_array().unwrap() {
            let expr = text(&target["expr"]);
            check(title, expr, &served);
            queries.push_str(expr);
            queries.push('\n');
            let is_heatmap = panel["type"] == "heatmap";
            assert_eq!(target["format"] == "heatmap", is_heatmap, "{title}");
            for part in text(&target["legendFormat"]).split("{{").skip(1) {
                let (label, _) = part.split_once("}}").unwrap();
                let is_grouped = groups(expr).contains(&label);
                assert!(is_grouped || !expr.contains(" by ("), "{title}: {label}");
            }
        }
    }
    for name in served.keys() {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        assert!(
            queries.contains(family) || name == "process_open_fds",
            "no panel shows {name}"
        );
    }
}

#[test]
fn the_dashboard_has_a_panel_for_every_important_metric() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let shows = |kind: &str, part: &str| {
        let matching = panels.iter().filter(|panel| panel["type"] == kind);
        let mut targets = matching.flat_map(|panel| panel["targets"].as_array().unwrap());
        let found = targets.any(|target| text(&target["expr"]).contains(part));
        assert!(found, "no {kind} with {part}");
    };
    shows("heatmap", "multus_cni_duration_seconds_bucket");
    shows("heatmap", "multus_delegate_duration_seconds_bucket");
    for name in ["multus_cni", "multus_delegate"] {
        shows("timeseries", &format!("rate({name}_duration_seconds_count"));
        shows(
            "timeseries",
            &format!(
                "(le, {}",
                if name == "multus_cni" {
                    "command"
                } else {
                    "plugin"
                }
            ),
        );
    }
    for quantile in ["histogram_quantile(0.5,", "histogram_quantile(0.99,"] {
        shows("timeseries", quantile);
    }
    for name in [
        "multus_queue_waiting",
        "multus_queue_working",
        "multus_api_retries_total",
        "code!~",
        "multus_journal_pending",
    ] {
        shows("timeseries", name);
    }
}

#[test]
fn the_alerts_query_only_served_metrics() {
    let rules: Value = serde_yaml::from_str(RULES).unwrap();
    let served = served();
    let mut names = BTreeSet::new();
    for group in rules["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            let name = text(&rule["alert"]);
            assert!(names.insert(name), "{name} twice");
            check(name, text(&rule["expr"]), &served);
            let severity = text(&rule["labels"]["severity"]);
            assert!(
                ["critical", "warning", "info"].contains(&severity),
                "{name}"
            );
            for note in ["summary", "description"] {
                assert!(!text(&rule["annotations"][note]).is_empty(), "{name}");
            }
        }
    }
    assert!(names.len() >= 6, "{names:?}");
}

#[test]
fn selectors_are_found() {
    let expr = r#"sum by (le) (rate(multus_a_bucket{x="multus_b", y=~"z"}[5m])) > process_c"#;
    let expected = [
        (
            "multus_a_bucket".to_owned(),
            vec!["x".to_owned(), "y".to_owned()],
        ),
        ("process_c".to_owned(), vec![]),
    ];
    assert_eq!(selectors(expr), expected);
    assert_eq!(groups(expr), ["le"]);
}
