//! Which CNI directories the runtime uses, from its own answer. A function over the answer; nothing is looked up on disk but writability.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

use crate::root::Root;

/// Where the runtime looks for plugins and configurations, as the node names the paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CniDirs {
    /// Searched in this order; never empty.
    pub bin_dirs: Vec<PathBuf>,
    /// Where the shim goes: one of `bin_dirs`.
    pub install_dir: PathBuf,
    /// Where the first configuration by name wins.
    pub conf_dir: PathBuf,
    /// Where the answer comes from.
    pub source: Source,
}

/// Where directories come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Both were given.
    Override,
    /// The loaded CNI state of the runtime (`cniconfig`).
    CniConfig,
    /// The runtime's configuration (`config`), as it has not loaded any CNI state.
    Config,
}

/// Directories that were given, each of which wins over what the runtime says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Where the shim goes.
    pub bin_dir: Option<PathBuf>,
    /// Where configurations are.
    pub conf_dir: Option<PathBuf>,
}

impl Overrides {
    /// Everything that is to be known, when both are given.
    pub fn complete(&self) -> Option<CniDirs> {
        let (bin, conf) = (self.bin_dir.clone()?, self.conf_dir.clone()?);
        Some(CniDirs {
            bin_dirs: vec![bin.clone()],
            install_dir: bin,
            conf_dir: conf,
            source: Source::Override,
        })
    }
}

/// The runtime's answer does not tell the directories.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the runtime's verbose status does not tell its CNI {missing}: {reason}; set config.cni_conf.binDir and config.cni_conf.confDir to name them"
)]
pub struct UnknownDirs {
    missing: &'static str,
    reason: String,
}

/// Reads the verbose part of CRI `Status`. `writable` tells whether files can be made in a directory.
pub fn from_status(
    info: &BTreeMap<String, String>,
    overrides: &Overrides,
    writable: impl Fn(&Path) -> bool,
) -> Result<CniDirs, UnknownDirs> {
    if let Some(dirs) = overrides.complete() {
        return Ok(dirs);
    }
    let loaded = parse(info, "cniconfig");
    let configured = parse(info, "config").and_then(|config| config.get("cni").cloned());
    let absent = || "neither `cniconfig` nor `config.cni` holds it".to_owned();
    let list = |value: Option<&Value>, keys: [&str; 2]| -> Vec<PathBuf> {
        keys.iter()
            .find_map(|key| paths(value?.get(key)?))
            .unwrap_or_default()
    };
    let mut source = Source::CniConfig;
    let mut bin_dirs = list(loaded.as_ref(), ["PluginDirs", "pluginDirs"]);
    let mut conf_dirs = list(loaded.as_ref(), ["PluginConfDir", "pluginConfDir"]);
    if bin_dirs.is_empty() || conf_dirs.is_empty() {
        source = Source::Config;
        let from_config = list(configured.as_ref(), ["binDirs", "binDir"]);
        bin_dirs = if bin_dirs.is_empty() {
            from_config
        } else {
            bin_dirs
        };
        let from_config = list(configured.as_ref(), ["confDir", "conf_dir"]);
        conf_dirs = if conf_dirs.is_empty() {
            from_config
        } else {
            conf_dirs
        };
    }
    let install_dir = match &overrides.bin_dir {
        Some(dir) => dir.clone(),
        None => install_dir(&bin_dirs, writable).ok_or_else(|| UnknownDirs {
            missing: "plugin directory",
            reason: absent(),
        })?,
    };
    let conf_dir = overrides
        .conf_dir
        .clone()
        .or_else(|| conf_dirs.into_iter().next())
        .ok_or_else(|| UnknownDirs {
            missing: "configuration directory",
            reason: absent(),
        })?;
    if bin_dirs.is_empty() {
        bin_dirs.push(install_dir.clone());
    }
    Ok(CniDirs {
        bin_dirs,
        install_dir,
        conf_dir,
        source,
    })
}

/// The first directory that is neither named by a hash (the next release has another) nor unwritable; else the first.
fn install_dir(bin_dirs: &[PathBuf], writable: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    bin_dirs
        .iter()
        .find(|dir| !is_content_addressed(dir) && writable(dir))
        .or_else(|| bin_dirs.iter().find(|dir| writable(dir)))
        .or(bin_dirs.first())
        .cloned()
}

fn is_content_addressed(path: &Path) -> bool {
    path.iter().any(|part| {
        part.len() == 64
            && part
                .to_string_lossy()
                .chars()
                .all(|c| c.is_ascii_hexdigit())
    })
}

/// The edge: the same with the node's own answer about writability.
pub fn discover(
    root: &Root,
    info: &BTreeMap<String, String>,
    overrides: &Overrides,
) -> Result<CniDirs, UnknownDirs> {
    from_status(info, overrides, |dir| root.is_writable(dir))
}

fn parse(info: &BTreeMap<String, String>, key: &str) -> Option<Value> {
    serde_json::from_str(info.get(key)?).ok()
}

/// One path or several, only absolute ones; `None` when nothing is left.
fn paths(value: &Value) -> Option<Vec<PathBuf>> {
    let texts: Vec<&str> = match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let paths: Vec<PathBuf> = texts
        .into_iter()
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .collect();
    (!paths.is_empty()).then_some(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    const HASH: &str = "/var/lib/rancher/k3s/data/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/bin";

    #[test]
    fn the_loaded_state_wins_over_the_configuration() {
        let info = info(&[
            (
                "cniconfig",
                r#"{"PluginDirs":["/var/lib/rancher/k3s/data/cni"],"PluginConfDir":"/var/lib/rancher/k3s/agent/etc/cni/net.d"}"#,
            ),
            (
                "config",
                r#"{"cni":{"binDir":"/stale","confDir":"/stale"}}"#,
            ),
        ]);
        let dirs = from_status(&info, &Overrides::default(), |_| true).unwrap();
        assert_eq!(dirs.install_dir, Path::new("/var/lib/rancher/k3s/data/cni"));
        assert_eq!(
            dirs.conf_dir,
            Path::new("/var/lib/rancher/k3s/agent/etc/cni/net.d")
        );
        assert_eq!(dirs.source, Source::CniConfig);
    }

    #[test]
    fn both_spellings_of_the_configuration() {
        for config in [
            r#"{"cni":{"binDir":"/opt/cni/bin","confDir":"/etc/cni/net.d"}}"#,
            r#"{"cni":{"binDir":"","binDirs":["/opt/cni/bin"],"confDir":"/etc/cni/net.d"}}"#,
        ] {
            let dirs = from_status(&info(&[("config", config)]), &Overrides::default(), |_| {
                true
            })
            .unwrap();
            assert_eq!(dirs.bin_dirs, [Path::new("/opt/cni/bin")], "{config}");
            assert_eq!(dirs.source, Source::Config);
        }
    }

    #[test]
    fn the_shim_goes_where_the_next_release_still_looks() {
        let bins = [
            PathBuf::from(HASH),
            PathBuf::from("/ro"),
            PathBuf::from("/opt/cni/bin"),
        ];
        assert_eq!(
            install_dir(&bins, |dir| dir != Path::new("/ro")),
            Some(PathBuf::from("/opt/cni/bin"))
        );
        assert_eq!(install_dir(&bins[..1], |_| true), Some(PathBuf::from(HASH)));
        assert_eq!(
            install_dir(&bins[..2], |_| false),
            Some(PathBuf::from(HASH))
        );
    }

    #[test]
    fn an_override_wins_for_its_own_directory_only() {
        let info = info(&[(
            "cniconfig",
            r#"{"PluginDirs":["/opt/cni/bin"],"PluginConfDir":"/etc/cni/net.d"}"#,
        )]);
        let overrides = Overrides {
            bin_dir: Some("/mine".into()),
            conf_dir: None,
        };
        let dirs = from_status(&info, &overrides, |_| true).unwrap();
        assert_eq!(dirs.install_dir, Path::new("/mine"));
        assert_eq!(dirs.conf_dir, Path::new("/etc/cni/net.d"));
        assert_eq!(dirs.bin_dirs, [Path::new("/opt/cni/bin")]);
    }

    #[test]
    fn no_answer_is_an_error_and_never_a_default() {
        for texts in [
            &[][..],
            &[("config", "{}")],
            &[("cniconfig", "no json")],
            &[("config", r#"{"cni":{"binDir":"relative","confDir":"/x"}}"#)],
        ] {
            assert!(
                from_status(&info(texts), &Overrides::default(), |_| true).is_err(),
                "{texts:?}"
            );
        }
    }
}
