//! The settings of a build, which the same template takes at packing: the version, and the names of the images.

use std::borrow::Cow;

use serde_json::Value;

use crate::images::{DAEMON, ImagePrefix};

/// The placeholder for the version in template files and defaults.
const VERSION: &str = "@VERSION@";
/// The placeholder for the name of the daemon's image, without its registry.
const REPOSITORY: &str = "@IMAGE_REPOSITORY@";
/// The placeholder for the registry of the images, which is empty for the public one.
const REGISTRY: &str = "@IMAGE_REGISTRY@";

/// The settings of a build of the charts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildSettings<'a> {
    /// The version of the release, the images and all charts.
    pub version: Cow<'a, str>,
    /// The text before the names of the images.
    pub images: ImagePrefix,
}

/// A version alone is a build with the names of this project.
impl<'a> From<&'a str> for BuildSettings<'a> {
    fn from(version: &'a str) -> Self {
        Self {
            version: Cow::Borrowed(version),
            images: ImagePrefix::DEFAULT,
        }
    }
}

impl<'a> From<&'a BuildSettings<'_>> for BuildSettings<'a> {
    fn from(settings: &'a BuildSettings<'_>) -> Self {
        Self {
            version: Cow::Borrowed(&settings.version),
            images: settings.images.clone(),
        }
    }
}

impl BuildSettings<'_> {
    /// Returns the full name of the daemon's image.
    pub fn image(&self) -> String {
        self.images.reference(DAEMON, &self.version)
    }

    /// Replaces the placeholders in a text.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace(VERSION, &self.version)
            .replace(REPOSITORY, &self.images.repository(DAEMON))
            .replace(REGISTRY, self.images.registry_value())
    }

    /// Replaces the placeholders in the texts of a value.
    pub(crate) fn fill_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(&text)),
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.fill_value(item))
                .collect(),
            Value::Object(map) => map
                .into_iter()
                .map(|(key, value)| (key, self.fill_value(value)))
                .collect(),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_everywhere_in_a_value() {
        let settings = BuildSettings {
            version: "1.2.3".into(),
            images: "r.example/a/".parse().unwrap(),
        };
        let value =
            serde_json::json!({"a": ["v@VERSION@", 1], "b": "@IMAGE_REGISTRY@/@IMAGE_REPOSITORY@"});
        let expected = serde_json::json!({"a": ["v1.2.3", 1], "b": "r.example/a/multus"});
        assert_eq!(settings.fill_value(value), expected);
        assert_eq!(settings.image(), "r.example/a/multus:v1.2.3");
        let default = BuildSettings::from("1.2.3");
        assert_eq!(
            default.fill("\"@IMAGE_REGISTRY@\" @IMAGE_REPOSITORY@"),
            "\"\" multusrs/multus"
        );
    }
}
