//! What a chart says of itself in `Chart.yaml`: the fields that Helm knows, in the order in which Helm writes them as JSON.
//!
//! Reading is as lenient as Helm's: unknown keys are passed over, numbers and truth values stand for their text, null for nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// `Chart.yaml`, with the dependencies that charts of apiVersion v1 keep in `requirements.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    /// The chart's name.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its home page.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub home: String,
    /// Where its sources are.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Its version, as it stands there.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What it is.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Words to find it by.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Who keeps it.
    #[serde(deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    pub maintainers: Vec<Maintainer>,
    /// Address of a picture.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub icon: String,
    /// `v1` or `v2`.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// When it is on, as a subchart.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// What it is switched by, as a subchart.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub tags: String,
    /// The version of what it installs.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub app_version: String,
    /// Whether nobody should use it any more.
    #[serde(deserialize_with = "or_none", skip_serializing_if = "is_false")]
    pub deprecated: bool,
    /// Anything else.
    #[serde(
        deserialize_with = "by_name",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// The versions of Kubernetes that it is for.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub kube_version: String,
    /// Its subcharts.
    #[serde(deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Dependency>,
    /// `application` or `library`.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub r#type: String,
}

/// Who keeps a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Maintainer {
    /// The name.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The address for mail.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// The address of a page.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// A subchart, as its parent wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dependency {
    /// The subchart's name.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// A range of versions.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Where it comes from.
    #[serde(deserialize_with = "text")]
    pub repository: String,
    /// The value that switches it.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The tags that switch it.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether it is on.
    #[serde(deserialize_with = "or_none", skip_serializing_if = "is_false")]
    pub enabled: bool,
    /// Values that the parent takes from it.
    #[serde(
        rename = "import-values",
        deserialize_with = "or_none",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub import_values: Vec<serde_json::Value>,
    /// The key of its values, where that is not its name.
    #[serde(deserialize_with = "text", skip_serializing_if = "String::is_empty")]
    pub alias: String,
}

impl About {
    /// Reads `Chart.yaml`.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_yaml::Error> {
        serde_yaml::from_slice(bytes)
    }

    /// As JSON, to the byte as Helm writes it.
    pub fn to_json(&self) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("these types have text keys and no floats");
        // Helm's encoder makes all JSON safe inside HTML; these characters occur within strings alone.
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
    /// The key of its values, and the folder's name below `charts/` where that is not the chart's own.
    pub fn key(&self) -> &str {
        if self.alias.is_empty() {
            &self.name
        } else {
            &self.alias
        }
    }
}

/// A scalar of any kind stands for its text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Truth(bool),
    Whole(i64),
    Number(f64),
}

impl From<Scalar> for String {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Text(text) => text,
            Scalar::Truth(truth) => truth.to_string(),
            Scalar::Whole(number) => number.to_string(),
            Scalar::Number(number) => number.to_string(),
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
        let about = About::read(yaml.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(about.to_json()).unwrap(), json);
    }

    #[test]
    fn it_is_written_as_helm_writes_it() {
        check(
            "apiVersion: v2\nname: a\nversion: v4.3.017\nx: y\nkubeVersion: '>= 1.30 & < 2'\ndependencies:\n- {name: b}\n",
            "{\"name\":\"a\",\"version\":\"v4.3.017\",\"apiVersion\":\"v2\",\"kubeVersion\":\"\\u003e= 1.30 \\u0026 \\u003c 2\",\"dependencies\":[{\"name\":\"b\",\"repository\":\"\"}]}",
        );
    }

    #[test]
    fn scalars_stand_for_their_text_and_null_for_nothing() {
        check(
            "name: a\nappVersion: 4.3\nsources:\nhome: ~\nannotations: {b: true, a: 1}\ndeprecated: true\n",
            r#"{"name":"a","appVersion":"4.3","deprecated":true,"annotations":{"a":"1","b":"true"}}"#,
        );
        assert!(About::read(b"name: [a]").is_err());
        assert!(About::read(b"- a").is_err());
    }
}
