//! The table of values: a path, a value, and its outcome, read from `rows.yaml`.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    #[serde(skip)]
    pub(super) path: String,
    /// The value as YAML.
    pub(super) value: String,
    /// Further values that the outcome needs.
    #[serde(default)]
    pub(super) with: Vec<String>,
    /// The objects have this text, which they lack without the value.
    pub(super) shows: Option<String>,
    /// The objects lack this text, which they have without the value.
    pub(super) hides: Option<String>,
    /// Helm fails with an error that contains this text.
    pub(super) refused: Option<String>,
}

impl Row {
    pub(super) fn is_accepted(&self) -> bool {
        self.refused.is_none()
    }
}

pub(super) static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let rows: BTreeMap<String, Vec<Row>> = serde_yaml::from_str(include_str!("rows.yaml"))
        .expect("the tests of docs/values.md read the same text");
    let rows = rows.into_iter().flat_map(|(path, rows)| {
        rows.into_iter().map(move |row| Row {
            path: path.clone(),
            ..row
        })
    });
    rows.collect()
});
