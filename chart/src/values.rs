//! The table of the chart's values: `values.yaml`, `values.schema.json` and the reference in its README are made from it.
//!
//! Keys of `config.daemon_conf` stand in [`api::options`]. What a value does is the templates' business.

mod rows;
mod yaml;

use serde_json::Value;

pub use rows::VALUES;
pub use yaml::values_yaml;

/// Architectures that an image of a full release is made for, and that its pods are put on.
pub const ARCHITECTURES: [&str; 3] = ["amd64", "arm64", "arm"];

/// One value, or a group of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Keys with dots between.
    pub path: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// Its default as JSON; `None` where it stands in no values file of ours.
    pub default: Option<&'static str>,
    /// What it does, as a sentence.
    pub doc: &'static str,
}

/// What may stand at a place. Nothing (`null`) may stand everywhere and means the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Values below it, and no others.
    Group,
    /// Values below it, and whatever a distro injects.
    OpenGroup,
    /// On or off, as a word too: published charts took both.
    Switch,
    /// A text.
    Text,
    /// A port.
    Port,
    /// A whole number from 1 on.
    Count,
    /// A whole number from 0 on, or a percentage.
    Amount,
    /// When an image is pulled.
    PullPolicy,
    /// A list of texts.
    Texts,
    /// A list of objects of Kubernetes.
    Objects,
    /// An object of Kubernetes.
    Object,
    /// Texts by name, as labels and annotations are.
    Strings,
    /// Keys of the table of options, and any key of a network configuration.
    DaemonConfig,
    /// Anything: a published key that has no effect here.
    Anything,
}

impl Row {
    /// Whether other rows are below it.
    pub fn is_group(&self) -> bool {
        matches!(self.kind, Kind::Group | Kind::OpenGroup)
    }

    /// Its default.
    pub fn default_value(&self) -> Option<Value> {
        let text = self.default?;
        Some(serde_json::from_str(text).expect("a test reads every default"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for (index, row) in VALUES.iter().enumerate() {
            let Row { path, doc, .. } = row;
            assert!(
                VALUES[..index].iter().all(|other| other.path != *path),
                "{path} twice"
            );
            assert!(doc.ends_with('.'), "{path}");
            if let Some((group, _)) = path.rsplit_once('.') {
                let known = VALUES[..index].iter().find(|other| other.path == group);
                assert!(known.is_some_and(Row::is_group), "{path} is in no group");
            }
            assert!(!(row.is_group() && row.default.is_some()), "{path}");
            let _ = row.default_value();
        }
    }

    #[test]
    fn reused_values_have_the_default_capabilities() {
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
    fn pods_are_put_where_an_image_is() {
        let row = VALUES.iter().find(|row| row.path == "architectures");
        let value = row.unwrap().default_value().unwrap();
        assert_eq!(value, serde_json::json!(ARCHITECTURES));
    }
}
