//! The distro's own configuration files, merged as the distro merges them: a later file replaces a key, `key+` adds to it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use node::root::Root;
use serde_yaml::Value;

/// More than any configuration file.
const MAX: u64 = 1 << 20;

/// The merged configuration: for each key its values as texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings(BTreeMap<String, Vec<String>>);

impl Settings {
    /// Returns all values of a key, comma-separated lists split.
    pub(crate) fn values(&self, key: &str) -> Vec<String> {
        let values = self.0.get(key).into_iter().flatten();
        values.flat_map(|value| split(value)).collect()
    }

    /// Returns the last value of a key.
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.0.get(key)?.last().cloned()
    }

    /// Merges one file over those before it.
    fn add(&mut self, text: &str) -> anyhow::Result<()> {
        let map = match serde_yaml::from_str(text)? {
            Value::Mapping(map) => map,
            Value::Null => return Ok(()),
            _ => anyhow::bail!("it is not a mapping"),
        };
        let mut own: BTreeMap<String, (bool, Vec<String>)> = BTreeMap::new();
        for (key, value) in map {
            let Some(key) = key.as_str() else { continue };
            let name = key.trim_end_matches('+');
            let entry = own.entry(name.to_owned()).or_default();
            entry.0 |= name == key;
            entry.1.extend(texts(&value));
        }
        for (name, (replaces, values)) in own {
            let all = self.0.entry(name).or_default();
            if replaces {
                all.clear();
            }
            all.extend(values);
        }
        Ok(())
    }
}

/// Splits a comma-separated list as the distros do on their command lines.
pub(crate) fn split(list: &str) -> impl Iterator<Item = String> {
    let items = list.split(',').map(|item| item.trim().to_owned());
    items.filter(|item| !item.is_empty())
}

/// Reads a switch as the distros do, which are Go programs.
pub(crate) fn is_true(value: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&value)
}

/// Returns the configuration file that a distro reads without `--config`.
pub(crate) fn default_file(distro: &str) -> PathBuf {
    Path::new("/etc/rancher").join(distro).join("config.yaml")
}

/// Reads the file and those in `<file>.d`; none of them has to be there.
pub(crate) fn read(root: &Root, file: &Path) -> anyhow::Result<Settings> {
    let mut fragments = file.as_os_str().to_owned();
    fragments.push(".d");
    let mut files = vec![file.to_owned()];
    let names = root.list(&fragments).unwrap_or_default();
    let is_yaml = |name: &String| {
        let ending = Path::new(name).extension();
        ending.is_some_and(|ending| ending == "yaml" || ending == "yml")
    };
    files.extend(
        names
            .iter()
            .filter(|name| is_yaml(name))
            .map(|name| Path::new(&fragments).join(name)),
    );
    let mut settings = Settings::default();
    for file in files {
        let bytes = match root.read(&file, MAX) {
            Err(error) if error.is_not_found() => continue,
            other => other?,
        };
        let text = String::from_utf8(bytes)
            .with_context(|| format!("{} is not UTF-8: correct it", file.display()))?;
        settings
            .add(&text)
            .with_context(|| format!("cannot parse {}, correct it", file.display()))?;
    }
    Ok(settings)
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

/// Fuzz target of a configuration file; `docs/fuzzing.md` says how it runs.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    use super::Settings;

    /// A file on its own, and merged over itself.
    pub(crate) fn settings(input: &[u8]) -> bool {
        let mut settings = Settings::default();
        let text = String::from_utf8_lossy(input);
        if settings.add(&text).is_err() {
            // A malformed file adds nothing.
            assert_eq!(settings, Settings::default());
            return false;
        }
        for key in settings.0.keys() {
            assert!(!key.ends_with('+'), "{key}");
            for value in settings.values(key) {
                assert!(!value.is_empty() && !value.contains(','));
            }
        }
        // Merged over itself, a file adds values to `key+` alone, and no key.
        let mut again = settings.clone();
        again.add(&text).expect("it was read before");
        assert!(again.0.keys().eq(settings.0.keys()));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn merged(files: &[&str]) -> Settings {
        let mut settings = Settings::default();
        for file in files {
            settings.add(file).unwrap();
        }
        settings
    }

    #[test]
    fn single_values_and_lists_are_read() {
        let settings = merged(&["data-dir: /data\ncni:\n- multus,x\n- canal\nport: 1\n"]);
        assert_eq!(settings.value("data-dir").as_deref(), Some("/data"));
        assert_eq!(settings.values("cni"), ["multus", "x", "canal"]);
        assert_eq!(settings.values("port"), ["1"]);
        assert_eq!(merged(&[""]), Settings::default());
    }

    #[test]
    fn later_file_replaces_a_key_and_adds_to_a_key_with_plus() {
        let first = "disable: [traefik]\n";
        assert_eq!(
            merged(&[first, "disable: multus\n"]).values("disable"),
            ["multus"]
        );
        let both = merged(&[first, "disable+: [multus]\n"]);
        assert_eq!(both.values("disable"), ["traefik", "multus"]);
    }

    #[test]
    fn files_are_read_in_order_and_malformed_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let more = dir.path().join("config.yaml.d");
        fs::create_dir(&more).unwrap();
        fs::write(dir.path().join("config.yaml"), "data-dir: /a\n").unwrap();
        fs::write(more.join("20.yaml"), "data-dir: /c\n").unwrap();
        fs::write(more.join("10.yaml"), "data-dir: /b\n").unwrap();
        fs::write(more.join("99.txt"), "data-dir: /no\n").unwrap();
        let root = Root::open(dir.path()).unwrap();
        let file = Path::new("/config.yaml");
        let settings = read(&root, file).unwrap();
        assert_eq!(settings.value("data-dir").as_deref(), Some("/c"));
        fs::write(more.join("30.yaml"), "not: [closed").unwrap();
        let error = read(&root, file).unwrap_err().to_string();
        assert!(error.contains("30.yaml"), "{error}");
        assert_eq!(
            read(&root, Path::new("/none.yaml")).unwrap(),
            Settings::default()
        );
    }

    #[test]
    fn fuzz_settings() {
        testkit::fuzz::corpus::run("distro_settings", super::fuzz::settings);
    }
}
