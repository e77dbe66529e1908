//! The images that rendered templates would run, and the combinations of switches to render.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_yaml::{Deserializer, Value};

use super::{Error, normalised};

/// Returns every subset of the features, the empty one first.
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

/// Why the images of a rendered text cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum RenderedError {
    #[error("the rendered text is not YAML")]
    Yaml(#[from] serde_yaml::Error),
    #[error(transparent)]
    Name(#[from] Error),
}

/// Returns the full names of all images that the objects of a rendered text run, or pass on for other programs to run.
pub fn images(text: &str) -> Result<BTreeSet<String>, RenderedError> {
    let mut names = BTreeSet::new();
    for document in Deserializer::from_str(text) {
        collect(&Value::deserialize(document)?, &mut names);
    }
    let full = names.iter().map(|name| Ok(normalised(name)?));
    full.collect()
}

/// Searches every mapping, since containers are at different depths in different kinds of objects.
fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Sequence(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Mapping(mapping) => {
            for (key, value) in mapping {
                match (key.as_str().unwrap_or_default(), value) {
                    ("image", Value::String(name)) => drop(names.insert(name.clone())),
                    ("args" | "command", Value::Sequence(args)) => {
                        let args: Vec<_> = args.iter().filter_map(Value::as_str).collect();
                        names.extend(in_args(&args));
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

/// Finds `--some-image=NAME` and `--some-image NAME`.
fn in_args(args: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let Some(flag) = arg.strip_prefix('-') else {
            continue;
        };
        let (flag, value) = match flag.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (flag, args.get(at + 1).copied()),
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

/// Requires a tag or digest, since a flag that ends in `image` may take a value that is not an image.
fn is_name(text: &str) -> bool {
    let after = text.rsplit('/').next().unwrap_or_default();
    after.contains([':', '@']) && normalised(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_occurs_once() {
        let features = ["a", "b", "c"].map(|name| (name.to_owned(), String::new()));
        let all = combinations(&features.into());
        assert_eq!(all.len(), 8);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 8);
        assert!(all[0].is_empty());
    }

    #[test]
    fn images_are_found_in_containers_arguments_and_variables() {
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
    fn invalid_names_and_texts_are_refused() {
        assert!(matches!(images("image: A B"), Err(RenderedError::Name(_))));
        assert!(matches!(images("a: ["), Err(RenderedError::Yaml(_))));
    }
}
