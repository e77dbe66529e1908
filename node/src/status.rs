//! The directories in the verbose part of CRI `Status`: a function over its texts.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::Value;

use crate::dirs::{ReportedDirs, Source};

/// Returns the directories of the loaded CNI state and of the configuration, as far as the runtime reports them.
pub fn reported(info: &BTreeMap<String, String>) -> Vec<(Source, ReportedDirs)> {
    let parse = |key: &str| serde_json::from_str::<Value>(info.get(key)?).ok();
    let loaded = parse("cniconfig").map(|state| ReportedDirs {
        bin_dirs: paths(&state, &["PluginDirs", "pluginDirs"]),
        conf_dir: paths(&state, &["PluginConfDir", "pluginConfDir"]).pop(),
        max_conf_num: number(&state, &["PluginMaxConfNum", "pluginMaxConfNum"]),
        ..ReportedDirs::default()
    });
    let configured = parse("config").map(|config| {
        let cni = config.get("cni").unwrap_or(&Value::Null);
        ReportedDirs {
            bin_dirs: paths(cni, &["binDirs", "binDir"]),
            conf_dir: paths(cni, &["confDir"]).pop(),
            handlers: handlers(&config),
            max_conf_num: number(cni, &["maxConfNum"]),
        }
    });
    [(Source::CniConfig, loaded), (Source::Config, configured)]
        .into_iter()
        .filter_map(|(source, dirs)| Some((source, dirs?.only_absolute())))
        .filter(|(_, dirs)| *dirs != ReportedDirs::default())
        .collect()
}

/// Returns the one or several paths of the first key that has any.
fn paths(value: &Value, keys: &[&str]) -> Vec<PathBuf> {
    let texts = |key: &&str| -> Vec<PathBuf> {
        match value.get(*key) {
            Some(Value::String(text)) if !text.is_empty() => vec![text.into()],
            Some(Value::Array(list)) => list
                .iter()
                .filter_map(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(PathBuf::from)
                .collect(),
            _ => Vec::new(),
        }
    };
    let found = keys.iter().map(texts).find(|paths| !paths.is_empty());
    found.unwrap_or_default()
}

fn number(value: &Value, keys: &[&str]) -> Option<i64> {
    keys.iter().find_map(|key| value.get(*key)?.as_i64())
}

fn handlers(config: &Value) -> BTreeMap<String, PathBuf> {
    let runtimes = config.pointer("/containerd/runtimes");
    let own = |(name, runtime): (&String, &Value)| {
        let dir = paths(runtime, &["cniConfDir"]).pop()?;
        Some((name.clone(), dir))
    };
    let runtimes = runtimes.and_then(Value::as_object);
    runtimes.into_iter().flatten().filter_map(own).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check(pairs: &[(&str, &str)]) -> Vec<(Source, ReportedDirs)> {
        let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        reported(&pairs.collect())
    }

    #[test]
    fn state_and_configuration_are_read() {
        let found = check(&[
            (
                "cniconfig",
                r#"{"PluginDirs":["/var/lib/rancher/k3s/data/cni"],"PluginConfDir":"/agent/net.d","PluginMaxConfNum":1}"#,
            ),
            (
                "config",
                r#"{"cni":{"binDir":"/stale","confDir":"/stale"},"containerd":{"runtimes":{"runc":{"cniConfDir":""},"kata":{"cniConfDir":"/etc/kata"}}}}"#,
            ),
        ]);
        let [(Source::CniConfig, state), (Source::Config, config)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(state.bin_dirs, [Path::new("/var/lib/rancher/k3s/data/cni")]);
        assert_eq!(state.conf_dir.as_deref(), Some(Path::new("/agent/net.d")));
        assert_eq!(state.max_conf_num, Some(1));
        assert_eq!(
            config.handlers,
            BTreeMap::from([("kata".to_owned(), "/etc/kata".into())])
        );
    }

    #[test]
    fn bin_dir_and_bin_dirs_are_read() {
        for config in [
            r#"{"cni":{"binDir":"/opt/cni/bin","confDir":"/etc/cni/net.d"}}"#,
            r#"{"cni":{"binDir":"","binDirs":["/opt/cni/bin"],"confDir":"/etc/cni/net.d"}}"#,
            r#"{"cni":{"binDir":"/opt/cni/bin","binDirs":null,"confDir":"/etc/cni/net.d"}}"#,
        ] {
            let found = check(&[("config", config)]);
            assert_eq!(found[0].1.bin_dirs, [Path::new("/opt/cni/bin")], "{config}");
        }
    }

    #[test]
    fn texts_without_directories_are_skipped() {
        for texts in [
            &[][..],
            &[("config", "{}")],
            &[("config", r#"{"sandboxImage":"pause"}"#)],
            &[("cniconfig", "no json")],
            &[("config", r#"{"cni":{"binDir":"relative","confDir":""}}"#)],
        ] {
            assert!(check(texts).is_empty(), "{texts:?}");
        }
    }
}
