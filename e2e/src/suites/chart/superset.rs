//! Every field that the published chart renders with defaults, thin and thick, is in ours, or in a table with the reason.

mod reasons;

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::Value;

use self::reasons::{REASONS, RENAMED};
use super::render;
use crate::{
    programs::published_charts::{self, NEW, NEW_CRD},
    test_env::TestEnv,
};

/// Compares the fields; fails for a difference without a reason, and for a reason without a difference.
pub(super) fn compare(env: &TestEnv) -> anyhow::Result<()> {
    let ours = fields(&[
        render::ours(env, "rke2-multus", &[])?,
        render::ours(env, "rke2-multus-crd", &[])?,
    ]);
    let mut missing = BTreeSet::new();
    for thick in ["false", "true"] {
        let value = format!("--set=thickPlugin.enabled={thick}");
        let main = published_charts::archive(NEW)?;
        let theirs = fields(&[
            render::objects(env, "rke2-multus", &main, &[&value])?,
            render::objects(
                env,
                "rke2-multus-crd",
                &published_charts::archive(NEW_CRD)?,
                &[],
            )?,
        ]);
        ensure!(theirs.len() > 50, "only {} fields", theirs.len());
        let theirs = theirs.iter().map(|line| renamed(line));
        missing.extend(theirs.filter(|line| !ours.contains(line)));
    }
    let explained = |line: &String| REASONS.iter().any(|(start, _)| line.starts_with(start));
    let open: Vec<_> = missing
        .iter()
        .filter(|line| !explained(line))
        .cloned()
        .collect();
    ensure!(
        open.is_empty(),
        "our chart lacks these fields, without a reason in the table: {}",
        open.join("; ")
    );
    for (start, reason) in REASONS {
        ensure!(
            missing.iter().any(|line| line.starts_with(start)),
            "{start} does not differ: remove its reason ({reason})"
        );
    }
    Ok(())
}

/// Replaces the published chart's names in a line by ours.
fn renamed(line: &str) -> String {
    RENAMED
        .iter()
        .fold(line.to_owned(), |line, (theirs, ours)| {
            line.replace(&format!("[{theirs}]"), &format!("[{ours}]"))
                .replace(&format!("\"{theirs}\""), &format!("\"{ours}\""))
                .replace(&format!("/{theirs}."), &format!("/{ours}."))
        })
}

/// Returns the fields of objects as lines `path = value`, where the path begins with the object's kind and name.
fn fields(charts: &[Vec<Value>]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for object in charts.iter().flatten() {
        put(&render::identity(object), object, &mut found);
    }
    found
}

/// Adds the fields below a path. Items of a list have their name in the path; a list of unnamed items is one value.
fn put(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    let name = |item: &Value| item["name"].as_str().map(str::to_owned);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                put(&format!("{path}.{name}"), value, found);
            }
        }
        Value::Array(list) if !list.is_empty() && list.iter().all(|item| name(item).is_some()) => {
            for item in list {
                let name = name(item).unwrap_or_default();
                put(&format!("{path}[{name}]"), item, found);
            }
        }
        _ => {
            found.insert(format!("{path} = {value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn list_items_have_names_in_their_paths_and_names_are_replaced() {
        let object = json!({"kind": "A", "metadata": {"name": "b"}, "list": [{"name": "hostroot", "v": 1}], "words": ["y"]});
        let found = fields(&[vec![object]]);
        assert!(found.contains("A/b.words = [\"y\"]"), "{found:?}");
        let found: Vec<_> = found.iter().map(|line| renamed(line)).collect();
        assert_eq!(
            found[1..3],
            ["A/b.list[node].name = \"node\"", "A/b.list[node].v = 1"]
        );
    }
}
