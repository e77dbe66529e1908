//! What rendered templates would run, and which combinations of switches have to be rendered.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_yaml::{Deserializer, Value};

use super::{Error, normalised};

/// Every subset of the features, the empty one first.
pub fn combinations(features: &BTreeMap<String, String>) -> Vec<BTreeSet<String>> {
    let mut all = vec![BTreeSet::new()];
    for name in features.keys() {
        let with = all.iter().cloned().map(|mut one| {
            one.insert(name.clone());
            one
        });
        all.extend(with.collect::<Vec<_>>());
    }
    all
}

/// Why a rendered text tells no images.
#[derive(Debug, thiserror::Error)]
pub enum BadText {
    /// It is no YAML.
    #[error("what is rendered is no YAML")]
    Yaml(#[from] serde_yaml::Error),
    /// A container has no image, or a bad one.
    #[error(transparent)]
    Name(#[from] Error),
}

/// The full names of all images that the objects of a rendered text run, or tell somebody else to run.
pub fn images(text: &str) -> Result<BTreeSet<String>, BadText> {
    let mut names = BTreeSet::new();
    for document in Deserializer::from_str(text) {
        collect(&Value::deserialize(document)?, &mut names);
    }
    let full = names.iter().map(|name| Ok(normalised(name)?));
    full.collect()
}

/// Containers lie at different depths in different kinds of objects, so every mapping is looked at.
fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Sequence(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Mapping(mapping) => {
            for (key, value) in mapping {
                match (key.as_str().unwrap_or_default(), value) {
                    ("image", Value::String(name)) => drop(names.insert(name.clone())),
                    ("args" | "command", Value::Sequence(words)) => {
                        let words: Vec<_> = words.iter().filter_map(Value::as_str).collect();
                        names.extend(in_arguments(&words));
                    }
                    ("env", Value::Sequence(variables)) => {
                        names.extend(variables.iter().filter_map(in_variable));
                    }
                    _ => {}
                }
                collect(value, names);
            }
        }
        _ => {}
    }
}

/// `--some-image=NAME` and `--some-image NAME`.
fn in_arguments(words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Some(flag) = word.strip_prefix('-') else {
            continue;
        };
        let (flag, value) = match flag.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (flag, words.get(at + 1).copied()),
        };
        found.extend(value.filter(|value| is_for_image(flag) && is_name(value)));
    }
    found.into_iter().map(str::to_owned).collect()
}

fn in_variable(variable: &Value) -> Option<String> {
    let (name, value) = (variable["name"].as_str()?, variable["value"].as_str()?);
    (is_for_image(name) && is_name(value)).then(|| value.to_owned())
}

fn is_for_image(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with("image")
}

/// A name with a tag or digest: a flag that ends in `image` may take a word that is none.
fn is_name(text: &str) -> bool {
    let after = text.rsplit('/').next().unwrap_or_default();
    after.contains([':', '@']) && normalised(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_once() {
        let features = ["a", "b", "c"].map(|name| (name.to_owned(), String::new()));
        let all = combinations(&features.into());
        assert_eq!(all.len(), 8);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 8);
        assert!(all[0].is_empty());
    }

    #[test]
    fn whatever_would_run_is_found() {
        let text = "\
kind: DaemonSet
spec:
  template:
    spec:
      initContainers: [{image: a/init:1}]
      containers:
      - image: a/main:1
        args: [run, --helper-image, a/flag:1, --other-image=a/joined:1, --image, none, -v=a/no:1]
        env:
        - {name: HELPER_IMAGE, value: 'a/variable:1'}
        - {name: TEXT, value: 'a/text:1'}
---
kind: CronJob
spec: {jobTemplate: {spec: {template: {spec: {containers: [{image: a/deep:1}]}}}}}
---
";
        let expected = ["deep", "flag", "init", "joined", "main", "variable"];
        let expected = expected.map(|name| format!("docker.io/a/{name}:1"));
        assert_eq!(images(text).unwrap(), expected.into());
    }

    #[test]
    fn what_cannot_be_a_name_is_no_image_to_pass_over() {
        assert!(matches!(images("image: A B"), Err(BadText::Name(_))));
        assert!(matches!(images("a: ["), Err(BadText::Yaml(_))));
    }
}
