//! What the published chart renders with its defaults, thin and thick, is in ours, or stands in a table with the reason.

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

/// Compares field by field; a difference without a reason fails, and so does a reason without a difference.
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
        "not in our chart, and no reason is given: {}",
        open.join("; ")
    );
    for (start, reason) in REASONS {
        ensure!(
            missing.iter().any(|line| line.starts_with(start)),
            "{start} differs no more: remove its reason ({reason})"
        );
    }
    Ok(())
}

/// A line with our names for what they call otherwise.
fn renamed(line: &str) -> String {
    RENAMED
        .iter()
        .fold(line.to_owned(), |line, (theirs, ours)| {
            line.replace(&format!("[{theirs}]"), &format!("[{ours}]"))
                .replace(&format!("\"{theirs}\""), &format!("\"{ours}\""))
                .replace(&format!("/{theirs}."), &format!("/{ours}."))
        })
}

/// Fields as lines: path = value, where the path begins with the object's kind and name.
fn fields(charts: &[Vec<Value>]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for object in charts.iter().flatten() {
        put(&render::identity(object), object, &mut found);
    }
    found
}

/// Items of a list are known by their name, or as a whole.
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
    fn items_are_known_by_name_and_names_are_ours() {
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
