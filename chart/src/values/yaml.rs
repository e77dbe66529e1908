//! Writes `values.yaml` from the table: every default with its description above it.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Row, VALUES};
use crate::settings::BuildSettings;

const HEAD: &str = "# Values of the chart. No default is a path that differs between nodes: with an empty directory each daemon discovers that of its own node.\n";

/// Returns the text of `values.yaml`.
pub fn values_yaml<'a>(settings: impl Into<BuildSettings<'a>>) -> String {
    let settings = settings.into();
    let mut text = HEAD.to_owned();
    for row in VALUES.iter().filter(|row| is_shown(row)) {
        let (depth, key) = match row.path.rsplit_once('.') {
            Some((group, key)) => (group.split('.').count(), key),
            None => (0, row.path),
        };
        if depth == 0 {
            text.push('\n');
        }
        let indent = "  ".repeat(depth);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}# {}", row.doc);
        let _ = write!(text, "{indent}{key}:");
        match row.default_value() {
            Some(value) => put(&mut text, &indent, &settings.fill_value(value)),
            None => text.push('\n'),
        }
    }
    text
}

/// Returns true for rows with a default, and for groups that contain one.
fn is_shown(row: &Row) -> bool {
    let below = |other: &Row| {
        let rest = other.path.strip_prefix(row.path);
        other.default.is_some() && rest.is_some_and(|rest| rest.starts_with('.'))
    };
    row.default.is_some() || (row.is_group() && VALUES.iter().any(below))
}

fn put(text: &mut String, indent: &str, value: &Value) {
    let yaml = serde_yaml::to_string(value).expect("a JSON value always serialises");
    let has_lines = matches!(value, Value::Object(map) if !map.is_empty())
        || matches!(value, Value::Array(list) if !list.is_empty());
    if !has_lines {
        text.push(' ');
        text.push_str(&yaml);
        return;
    }
    text.push('\n');
    let deeper = if value.is_object() { "  " } else { "" };
    for line in yaml.lines() {
        let _ = writeln!(text, "{indent}{deeper}{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_defaults_equal_the_table() {
        let settings = BuildSettings::from("5.0.0");
        let values: Value = serde_yaml::from_str(&values_yaml("5.0.0")).unwrap();
        for row in VALUES {
            let found = values.pointer(&format!("/{}", row.path.replace('.', "/")));
            if let Some(default) = row.default_value() {
                let default = settings.fill_value(default);
                assert_eq!(found, Some(&default), "{}", row.path);
            }
        }
    }

    #[test]
    fn values_without_a_default_are_not_shown() {
        let text = values_yaml("5.0.0");
        for key in [
            "skipcnis",
            "dhcpDaemonSet:\n    image",
            "cni_conf:\n\n",
            "namespaceIsolation",
        ] {
            assert!(!text.contains(key), "{key}");
        }
        assert!(
            text.contains("\n  # The image's tag.\n  tag: v5.0.0\n"),
            "{text}"
        );
    }
}
