//! The table of the chart's values, from which `values.yaml`, `values.schema.json` and the reference in the README are generated.
//!
//! Keys of `config.daemon_conf` are in [`api::options`]. The templates implement what a value does.

mod rows;
mod yaml;

use serde_json::Value;

pub use rows::{VALUES, WITHOUT_EFFECT};
pub use yaml::values_yaml;

/// The architectures of a full release's image, and of the nodes that get a pod.
pub const ARCHITECTURES: [&str; 3] = ["amd64", "arm64", "arm"];

/// One value, or a group of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The keys of the value, joined by dots.
    pub path: &'static str,
    /// The type of the value.
    pub kind: Kind,
    /// The default as JSON; `None` when our `values.yaml` does not have the value.
    pub default: Option<&'static str>,
    /// A sentence that says what the value does.
    pub doc: &'static str,
}

/// The type of a value. Every value may also be `null`, which means the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An object with exactly the keys of the rows below it.
    Group,
    /// An object with the keys of the rows below it, and others that a distro injects.
    OpenGroup,
    /// A boolean, or its name as text, since published charts accepted both.
    Switch,
    Text,
    /// The name of a Kubernetes object.
    Name,
    /// The tag of an image, or nothing.
    Tag,
    /// A port number.
    Port,
    /// An integer from 1.
    Count,
    /// An integer from 0, or a percentage.
    Amount,
    /// Kubernetes' pull policy of an image.
    PullPolicy,
    /// A list of texts.
    Texts,
    /// A list of Kubernetes objects.
    Objects,
    /// A list of environment variables, as in a pod.
    Variables,
    /// A Kubernetes object.
    Object,
    /// A map of texts, such as labels and annotations.
    Strings,
    /// Keys of the table of options, and any key of a network configuration.
    DaemonConfig,
}

impl Row {
    /// Returns true when other rows are below this one.
    pub fn is_group(&self) -> bool {
        matches!(self.kind, Kind::Group | Kind::OpenGroup)
    }

    /// Returns the default as a value.
    pub fn default_value(&self) -> Option<Value> {
        let text = self.default?;
        Some(serde_json::from_str(text).expect("a test parses every default"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for (index, row) in VALUES.iter().enumerate() {
            let Row { path, doc, .. } = row;
            assert!(
                VALUES[..index].iter().all(|other| other.path != *path),
                "{path} occurs twice"
            );
            assert!(doc.ends_with('.'), "{path}");
            if let Some((group, _)) = path.rsplit_once('.') {
                let known = VALUES[..index].iter().find(|other| other.path == group);
                assert!(known.is_some_and(Row::is_group), "{path} is in no group");
            }
            assert!(!(row.is_group() && row.default.is_some()), "{path}");
            let _ = row.default_value();
        }
        for path in WITHOUT_EFFECT {
            assert!(VALUES.iter().all(|row| row.path != *path), "{path}");
            if let Some((group, _)) = path.rsplit_once('.') {
                let known = VALUES.iter().find(|row| row.path == group);
                assert!(known.is_some_and(Row::is_group), "{path} is in no group");
            }
        }
    }

    #[test]
    fn notes_name_all_keys_without_effect() {
        let quoted = WITHOUT_EFFECT.iter().map(|path| format!("\"{path}\""));
        let list = format!("list {} }}}}", quoted.collect::<Vec<_>>().join(" "));
        let notes = include_str!("../template/main/templates/NOTES.txt");
        assert!(notes.contains(&list), "no {list} in NOTES.txt");
    }

    #[test]
    fn capabilities_of_the_template_equal_the_default() {
        let row = VALUES
            .iter()
            .find(|row| row.path == "daemonSecurity.capabilities");
        let value = row.unwrap().default_value().unwrap();
        let quoted = value.as_array().unwrap().iter().map(Value::to_string);
        let list = format!("list {}", quoted.collect::<Vec<_>>().join(" "));
        let helpers = include_str!("../template/main/templates/_helpers.tpl");
        assert!(helpers.contains(&list), "no {list} in _helpers.tpl");
    }

    #[test]
    fn the_default_architectures_are_those_of_the_image() {
        let row = VALUES.iter().find(|row| row.path == "architectures");
        let value = row.unwrap().default_value().unwrap();
        assert_eq!(value, serde_json::json!(ARCHITECTURES));
    }
}
