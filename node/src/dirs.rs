//! Which CNI directories to go by: a function over what was told, by whom.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// Where the runtime looks for plugins and configurations, as the node names the paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CniDirs {
    /// Searched in this order; never empty.
    pub bin_dirs: Vec<PathBuf>,
    /// Where the shim goes: one of `bin_dirs`, unless it was given.
    pub install_dir: PathBuf,
    /// Where the first configuration by name wins.
    pub conf_dir: PathBuf,
    /// Where the answer comes from; of several the least certain.
    pub source: Source,
}

/// Where directories come from, the most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// They were given.
    Override,
    /// The loaded CNI state of the runtime (`cniconfig`).
    CniConfig,
    /// The configuration that the runtime runs with (`config`).
    Config,
    /// The files and flags that the runtime was started with.
    File,
    /// A file at a usual place: which one the runtime was started with is not to be seen.
    Guess,
}

/// What one source tells of directories. What it does not tell is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// Where plugins are looked for.
    pub bin_dirs: Vec<PathBuf>,
    /// Where configurations are looked for.
    pub conf_dir: Option<PathBuf>,
    /// Runtime handlers with a configuration directory of their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub handlers: BTreeMap<String, PathBuf>,
    /// How many configurations are loaded, where that is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_conf_num: Option<i64>,
}

impl Told {
    /// Without what is no whole path, as nobody can tell what it is relative to; the others without doubled and trailing slashes.
    #[must_use]
    pub fn only_absolute(mut self) -> Self {
        let plain = |dir: &PathBuf| dir.is_absolute().then(|| dir.components().collect());
        self.bin_dirs = self.bin_dirs.iter().filter_map(plain).collect();
        self.conf_dir = self.conf_dir.as_ref().and_then(plain);
        self.handlers.retain(|_, dir| dir.is_absolute());
        self
    }

    /// Whether it tells both kinds.
    pub fn is_whole(&self) -> bool {
        !self.bin_dirs.is_empty() && self.conf_dir.is_some()
    }
}

/// Someone who tells of directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// How certain it is.
    pub source: Source,
    /// The socket or the files, as the node names them.
    pub from: Vec<PathBuf>,
    /// What it tells.
    #[serde(flatten)]
    pub told: Told,
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

/// Nobody tells the directories.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "neither the runtime's status nor its files tell its CNI {missing}: set config.cni_conf.binDir and config.cni_conf.confDir to name them"
)]
pub struct UnknownDirs {
    missing: &'static str,
}

/// Of each kind takes what the most certain source tells. `writable` tells whether files can be made in a directory.
pub fn decide(
    overrides: &Overrides,
    evidence: &[Evidence],
    writable: impl Fn(&Path) -> bool,
) -> Result<CniDirs, UnknownDirs> {
    if let Some(dirs) = overrides.complete() {
        return Ok(dirs);
    }
    let mut sources: Vec<&Evidence> = evidence.iter().collect();
    sources.sort_by_key(|one| one.source);
    let bins = sources.iter().find(|one| !one.told.bin_dirs.is_empty());
    let mut bin_dirs = bins.map_or_else(Vec::new, |one| one.told.bin_dirs.clone());
    let (install_dir, bin_source) = match (&overrides.bin_dir, bins) {
        (Some(dir), _) => (Some(dir.clone()), Source::Override),
        (None, Some(one)) => (install_dir(&bin_dirs, writable), one.source),
        (None, None) => (None, Source::Guess),
    };
    let install_dir = install_dir.ok_or(UnknownDirs {
        missing: "plugin directory",
    })?;
    let given = overrides.conf_dir.iter().map(|dir| (dir, Source::Override));
    let told = sources
        .iter()
        .filter_map(|one| Some((one.told.conf_dir.as_ref()?, one.source)));
    let (conf_dir, conf_source) = given.chain(told).next().ok_or(UnknownDirs {
        missing: "configuration directory",
    })?;
    if bin_dirs.is_empty() {
        bin_dirs.push(install_dir.clone());
    }
    Ok(CniDirs {
        bin_dirs,
        install_dir,
        conf_dir: conf_dir.clone(),
        source: bin_source.max(conf_source),
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

impl Source {
    /// Its name in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::CniConfig => "cniConfig",
            Self::Config => "config",
            Self::File => "file",
            Self::Guess => "guess",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Override => "given",
            Self::CniConfig => "the runtime's loaded CNI state",
            Self::Config => "the runtime's configuration, as it says",
            Self::File => "the runtime's files",
            Self::Guess => "a file at a usual place",
        })
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bins = list(&self.bin_dirs);
        let bins = if bins.is_empty() { "unknown" } else { &bins };
        let conf = self.conf_dir.as_ref().map(|dir| dir.display().to_string());
        let conf = conf.unwrap_or_else(|| "unknown".to_owned());
        write!(f, "plugins {bins}; configuration {conf}")
    }
}

/// Paths for people.
pub(crate) fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "/var/lib/rancher/k3s/data/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/bin";

    fn told(source: Source, bins: &[&str], conf: Option<&str>) -> Evidence {
        Evidence {
            source,
            from: Vec::new(),
            told: Told {
                bin_dirs: bins.iter().map(PathBuf::from).collect(),
                conf_dir: conf.map(PathBuf::from),
                ..Told::default()
            },
        }
    }

    fn decided(evidence: &[Evidence]) -> Option<(PathBuf, PathBuf, Source)> {
        let dirs = decide(&Overrides::default(), evidence, |_| true).ok()?;
        Some((dirs.install_dir, dirs.conf_dir, dirs.source))
    }

    #[test]
    fn of_each_kind_the_most_certain() {
        let (a, b) = (
            told(Source::File, &["/f"], Some("/fc")),
            told(Source::CniConfig, &["/s"], None),
        );
        for order in [[a.clone(), b.clone()], [b.clone(), a.clone()]] {
            assert_eq!(
                decided(&order),
                Some(("/s".into(), "/fc".into(), Source::File))
            );
        }
        let whole = told(Source::CniConfig, &["/s"], Some("/sc"));
        assert_eq!(
            decided(&[a, whole]),
            Some(("/s".into(), "/sc".into(), Source::CniConfig))
        );
    }

    #[test]
    fn nothing_told_is_an_error_and_never_a_default() {
        assert_eq!(decided(&[]), None);
        assert_eq!(decided(&[told(Source::Config, &["/b"], None)]), None);
        assert_eq!(decided(&[told(Source::Config, &[], Some("/c"))]), None);
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
        let evidence = [told(
            Source::CniConfig,
            &["/opt/cni/bin"],
            Some("/etc/cni/net.d"),
        )];
        let overrides = Overrides {
            bin_dir: Some("/mine".into()),
            conf_dir: None,
        };
        let dirs = decide(&overrides, &evidence, |_| true).unwrap();
        assert_eq!(dirs.install_dir, Path::new("/mine"));
        assert_eq!(dirs.conf_dir, Path::new("/etc/cni/net.d"));
        assert_eq!(dirs.bin_dirs, [Path::new("/opt/cni/bin")]);
        assert_eq!(dirs.source, Source::CniConfig);
    }
}
