//! The distro's own configuration files, merged as the distro merges them: a later file replaces a key, `key+` adds to it.
//!
//! What the distro accepts is accepted, since a file that is refused here keeps a node down: K3s' reader is Go's yaml.v2, for which the
//! first document counts, and the last of keys that stand there twice.

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::Context as _;
use node::root::Root;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_yaml::Value;

/// More than any configuration file.
const MAX: u64 = 1 << 20;

/// The merged configuration: for each key its values as texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files(BTreeMap<String, Vec<String>>);

impl Files {
    /// Returns all values of the keys with this property, in order.
    pub(crate) fn values(&self, is_key: impl Fn(&str) -> bool) -> Vec<String> {
        let found = self.0.iter().filter(|(key, _)| is_key(key));
        found.flat_map(|(_, values)| values.clone()).collect()
    }

    /// Merges one file over those before it, key by key.
    fn add(&mut self, text: &str) -> anyhow::Result<()> {
        let first = serde_yaml::Deserializer::from_str(text).next();
        let document = first.map(Option::<Document>::deserialize).transpose()?;
        for (key, value) in document.flatten().unwrap_or_default().0 {
            let Some(key) = key.as_str() else { continue };
            // `key+` adds to the values before, and K3s takes one `+` away.
            let name = key.strip_suffix('+');
            let all = self.0.entry(name.unwrap_or(key).to_owned()).or_default();
            if name.is_none() {
                all.clear();
            }
            all.extend(texts(&value));
        }
        Ok(())
    }
}

/// The entries of a file in order, equal keys among them.
#[derive(Default)]
struct Document(Vec<(Value, Value)>);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut document = Document::default();
                while let Some(entry) = map.next_entry()? {
                    document.0.push(entry);
                }
                Ok(document)
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

/// Reads the file and those in `<file>.d`; none of them has to be there.
pub(crate) fn read(root: &Root, file: &Path) -> anyhow::Result<Files> {
    let mut fragments = file.as_os_str().to_owned();
    fragments.push(".d");
    let mut files = vec![file.to_owned()];
    let names = root.list(&fragments).unwrap_or_default();
    let is_yaml = |name: &String| {
        let name = name.to_lowercase();
        [".yaml", ".yml"].iter().any(|end| name.ends_with(end))
    };
    files.extend(
        names
            .iter()
            .filter(|name| is_yaml(name))
            .map(|name| Path::new(&fragments).join(name)),
    );
    let mut merged = Files::default();
    for file in files {
        if root.is_dir(&file) {
            continue;
        }
        let bytes = match root.read(&file, MAX) {
            Err(error) if error.is_not_found() => continue,
            other => other?,
        };
        let text = String::from_utf8(bytes)
            .with_context(|| format!("{} is not UTF-8: correct it", file.display()))?;
        merged
            .add(&text)
            .with_context(|| format!("cannot parse {}, correct it", file.display()))?;
    }
    Ok(merged)
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Bool(is) => vec![is.to_string()],
        Value::Number(number) => vec![number.to_string()],
        Value::Sequence(list) => list.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// Fuzz target of a configuration file; `docs/contributing/testing.md` says how it runs.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    use super::Files;

    /// A file on its own, and merged over itself.
    pub(crate) fn settings(input: &[u8]) -> bool {
        let mut files = Files::default();
        let text = String::from_utf8_lossy(input);
        if files.add(&text).is_err() {
            // A malformed file adds nothing.
            assert_eq!(files, Files::default());
            return false;
        }
        for (key, values) in &files.0 {
            assert_eq!(files.values(|name| name == key), *values);
        }
        // Merged over itself, a file adds only values to `key+`, and no key.
        let mut again = files.clone();
        again.add(&text).expect("it was read before");
        assert!(again.0.keys().eq(files.0.keys()));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn merged(files: &[&str], key: &str) -> Vec<String> {
        let mut merged = Files::default();
        for file in files {
            merged.add(file).unwrap();
        }
        merged.values(|name| name == key)
    }

    #[test]
    fn single_values_and_lists_are_read() {
        let file = "data-dir: /data\ncni:\n- multus,x\n- canal\nport: 1\n";
        assert_eq!(merged(&[file], "data-dir"), ["/data"]);
        assert_eq!(merged(&[file], "cni"), ["multus,x", "canal"]);
        assert_eq!(merged(&[file], "port"), ["1"]);
        assert_eq!(merged(&[""], "port"), [""; 0]);
    }

    #[test]
    fn later_key_replaces_and_one_with_plus_adds() {
        let first = "disable: [traefik]\n";
        for (files, expected) in [
            (&[first, "disable: multus\n"][..], &["multus"][..]),
            (&[first, "disable+: [multus]\n"], &["traefik", "multus"]),
            (&["disable+: a\n", "disable+: b\n"], &["a", "b"]),
            (&["disable: a\ndisable+: b\n"], &["a", "b"]),
            (&["disable+: b\ndisable: a\n"], &["a"]),
            (&["disable: a\ndisable: b\n"], &["b"]),
            (&["disable: a\n---\ndisable: b\n"], &["a"]),
            (&["# none\n", "---\ndisable: a\n...\n"], &["a"]),
        ] {
            assert_eq!(merged(files, "disable"), expected, "{files:?}");
        }
    }

    #[test]
    fn files_are_read_in_order_and_malformed_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let more = dir.path().join("config.yaml.d");
        fs::create_dir(&more).unwrap();
        fs::write(dir.path().join("config.yaml"), "data-dir: /a\n").unwrap();
        fs::write(more.join("20.YAML"), "data-dir: /c\n").unwrap();
        fs::write(more.join("10.yaml"), "data-dir: /b\n").unwrap();
        fs::write(more.join("99.txt"), "data-dir: /no\n").unwrap();
        fs::create_dir(more.join("99.yaml")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let file = Path::new("/config.yaml");
        let data_dir = read(&root, file).unwrap().values(|key| key == "data-dir");
        assert_eq!(data_dir, ["/c"]);
        fs::write(more.join("30.yaml"), "not: [closed").unwrap();
        let error = read(&root, file).unwrap_err().to_string();
        assert!(error.contains("30.yaml"), "{error}");
        assert_eq!(
            read(&root, Path::new("/none.yaml")).unwrap(),
            Files::default()
        );
    }

    #[test]
    fn fuzz_settings() {
        testkit::fuzz::corpus::run("distro_settings", super::fuzz::settings);
    }
}
