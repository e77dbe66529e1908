//! A chart's metadata, its `Chart.yaml`: the fields that Helm knows, in the order in which Helm writes them as JSON.
//!
//! Reading is as lenient as Helm's: unknown keys are ignored, numbers and booleans stand for their text, null for an absent value.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// `Chart.yaml`, with the dependencies that charts of apiVersion v1 keep in `requirements.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The chart's name.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The address of the home page.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub home: String,
    /// The addresses of the sources.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The version, as it is written.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// A description in one sentence.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Keywords for searching.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    #[serde(deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    pub maintainers: Vec<Maintainer>,
    /// The address of an icon.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub icon: String,
    /// `v1` or `v2`.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The condition that enables it as a subchart.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The tags that enable it as a subchart.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub tags: String,
    /// The version of the application that it installs.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub app_version: String,
    /// True when the chart should no longer be used.
    #[serde(deserialize_with = "or_none", skip_serializing_if = "is_false")]
    pub deprecated: bool,
    /// Annotations, which Helm itself does not interpret.
    #[serde(
        deserialize_with = "by_name",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// The range of Kubernetes versions that it supports.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub kube_version: String,
    /// The subcharts.
    #[serde(deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// `application` or `library`.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub r#type: String,
}

/// A maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Maintainer {
    /// The maintainer's name.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The e-mail address.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// The address of the maintainer's page.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// An entry of a chart's dependencies: one subchart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dependency {
    /// The subchart's name.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// The range of accepted versions.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The repository that it comes from.
    #[serde(deserialize_with = "text")]
    pub repository: String,
    /// The path of the value that enables it.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The tags that enable it.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// True when it is enabled without a condition.
    #[serde(deserialize_with = "or_none", skip_serializing_if = "is_false")]
    pub enabled: bool,
    /// Values that the parent imports from it.
    #[serde(
        rename = "import-values",
        deserialize_with = "or_none",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub import_values: Vec<serde_json::Value>,
    /// The key of its values, when that is not its name.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub alias: String,
}

impl Metadata {
    /// Parses `Chart.yaml`.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_yaml::Error> {
        serde_yaml::from_slice(bytes)
    }

    /// Returns JSON with the same bytes that Helm writes.
    pub fn to_json(&self) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("these types have text keys and no floats");
        // Helm's encoder makes all JSON safe inside HTML; these characters occur only within strings.
        let mut safe = String::with_capacity(text.len());
        for char in text.chars() {
            match char {
                '<' => safe.push_str("\\u003c"),
                '>' => safe.push_str("\\u003e"),
                '&' => safe.push_str("\\u0026"),
                '\u{2028}' => safe.push_str("\\u2028"),
                '\u{2029}' => safe.push_str("\\u2029"),
                other => safe.push(other),
            }
        }
        safe.into_bytes()
    }
}

impl Dependency {
    /// Returns the key of its values: the alias, else the name.
    pub fn key(&self) -> &str {
        if self.alias.is_empty() {
            &self.name
        } else {
            &self.alias
        }
    }
}

/// A scalar of any type, which stands for its text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Boolean(bool),
    Integer(i64),
    Float(f64),
}

impl From<Scalar> for String {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Text(text) => text,
            Scalar::Boolean(boolean) => boolean.to_string(),
            Scalar::Integer(number) => number.to_string(),
            Scalar::Float(number) => number.to_string(),
        }
    }
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let scalar = Option::<Scalar>::deserialize(from)?;
    Ok(scalar.map(String::from).unwrap_or_default())
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let list = Option::<Vec<Scalar>>::deserialize(from)?.unwrap_or_default();
    Ok(list.into_iter().map(String::from).collect())
}

fn by_name<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map = Option::<BTreeMap<String, Scalar>>::deserialize(from)?.unwrap_or_default();
    Ok(map
        .into_iter()
        .map(|(key, value)| (key, value.into()))
        .collect())
}

fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str, json: &str) {
        let metadata = Metadata::read(yaml.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(metadata.to_json()).unwrap(), json);
    }

    #[test]
    fn json_equals_that_of_helm() {
        check(
            "apiVersion: v2\nname: a\nversion: v4.3.017\nx: y\nkubeVersion: '>= 1.30 & < 2'\ndependencies:\n- {name: b}\n",
            "{\"name\":\"a\",\"version\":\"v4.3.017\",\"apiVersion\":\"v2\",\"kubeVersion\":\"\\u003e= 1.30 \\u0026 \\u003c 2\",\"dependencies\":[{\"name\":\"b\",\"repository\":\"\"}]}",
        );
    }

    #[test]
    fn scalars_are_read_as_text_and_null_as_absent() {
        check(
            "name: a\nappVersion: 4.3\nsources:\nhome: ~\nannotations: {b: true, a: 1}\ndeprecated: true\n",
            r#"{"name":"a","appVersion":"4.3","deprecated":true,"annotations":{"a":"1","b":"true"}}"#,
        );
        assert!(Metadata::read(b"name: [a]").is_err());
        assert!(Metadata::read(b"- a").is_err());
    }
}
