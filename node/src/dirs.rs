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
    /// Where the shim goes: one of `bin_dirs`, unless an override names it.
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

/// Directories that the configuration names. They replace what the runtime's files say, and must agree with what the runtime itself
/// reports: a shim or a configuration in a directory in which the runtime does not look would be a node without networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Where the shim goes.
    pub shim_dir: Option<PathBuf>,
    /// Where configurations are.
    pub conf_dir: Option<PathBuf>,
}

/// The values of the chart that override directories.
const SHIM_DIR: &str = "config.cni_conf.shimDir (shimDir in config.daemon_conf)";
const CONF_DIR: &str = "config.cni_conf.confDir (cniConfigDir in config.daemon_conf)";

impl Overrides {
    /// Everything that is to be known, when both are given.
    pub fn complete(&self) -> Option<CniDirs> {
        let (shim, conf) = (self.shim_dir.clone()?, self.conf_dir.clone()?);
        Some(CniDirs {
            bin_dirs: vec![shim.clone()],
            install_dir: shim,
            conf_dir: conf,
            source: Source::Override,
        })
    }

    /// One sentence for each override, with the value to remove.
    pub(crate) fn notes(&self) -> Vec<String> {
        let shim = self.shim_dir.iter().map(|dir| (SHIM_DIR, dir));
        let conf = self.conf_dir.iter().map(|dir| (CONF_DIR, dir));
        let sentence = |(value, dir): (&str, &PathBuf)| {
            format!(
                "{value} is set: {} is used whatever the node says; remove it unless the node does not say",
                dir.display()
            )
        };
        shim.chain(conf).map(sentence).collect()
    }
}

/// No directories can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirsError {
    /// Nothing says where they are.
    #[error(
        "neither the runtime's status nor its files tell its CNI {missing}: set config.cni_conf.shimDir and config.cni_conf.confDir to name them"
    )]
    Unknown {
        /// Which kind.
        missing: &'static str,
    },
    /// An override names another directory than the runtime.
    #[error(
        "{value} is {}, but the runtime itself {verb} {}: remove the value, or change the runtime's configuration and restart it",
        given.display(),
        list(reported)
    )]
    Contradiction {
        /// The value.
        value: &'static str,
        /// What it names.
        given: PathBuf,
        /// What the runtime does with its directories.
        verb: &'static str,
        /// The runtime's directories.
        reported: Vec<PathBuf>,
    },
}

/// What can be seen of directories on the node.
pub trait Directories {
    /// Whether files can be made in it.
    fn is_writable(&self, dir: &Path) -> bool;
    /// Whether two paths lead to one directory.
    fn is_same(&self, one: &Path, other: &Path) -> bool;
}

/// Of each kind takes what the most certain source tells.
pub fn decide(
    overrides: &Overrides,
    evidence: &[Evidence],
    node: &impl Directories,
) -> Result<CniDirs, DirsError> {
    let mut sources: Vec<&Evidence> = evidence.iter().collect();
    sources.sort_by_key(|one| one.source);
    check(overrides, &sources, node)?;
    if let Some(dirs) = overrides.complete() {
        return Ok(dirs);
    }
    let bins = sources.iter().find(|one| !one.told.bin_dirs.is_empty());
    let mut bin_dirs = bins.map_or_else(Vec::new, |one| one.told.bin_dirs.clone());
    let (install_dir, bin_source) = match (&overrides.shim_dir, bins) {
        (Some(dir), _) => (Some(dir.clone()), Source::Override),
        (None, Some(one)) => (install_dir(&bin_dirs, node), one.source),
        (None, None) => (None, Source::Guess),
    };
    let install_dir = install_dir.ok_or(DirsError::Unknown {
        missing: "plugin directory",
    })?;
    let given = overrides.conf_dir.iter().map(|dir| (dir, Source::Override));
    let told = sources
        .iter()
        .filter_map(|one| Some((one.told.conf_dir.as_ref()?, one.source)));
    let (conf_dir, conf_source) = given.chain(told).next().ok_or(DirsError::Unknown {
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

/// Compares the overrides with what the runtime itself reports. Files may be out of date, so they contradict nothing.
fn check(
    overrides: &Overrides,
    sources: &[&Evidence],
    node: &impl Directories,
) -> Result<(), DirsError> {
    let mut reports = sources.iter().filter(|one| one.source < Source::File);
    let bins = reports
        .clone()
        .find(|one| !one.told.bin_dirs.is_empty())
        .map(|one| one.told.bin_dirs.clone());
    let conf = reports.find_map(|one| one.told.conf_dir.clone());
    let kinds = [
        (SHIM_DIR, &overrides.shim_dir, "looks for plugins in", bins),
        (
            CONF_DIR,
            &overrides.conf_dir,
            "reads configurations from",
            conf.map(|dir| vec![dir]),
        ),
    ];
    for (value, given, verb, reported) in kinds {
        if let (Some(given), Some(reported)) = (given, reported)
            && !reported.iter().any(|dir| node.is_same(dir, given))
        {
            return Err(DirsError::Contradiction {
                value,
                given: given.clone(),
                verb,
                reported,
            });
        }
    }
    Ok(())
}

/// The first directory that is neither named by a hash (the next release has another) nor unwritable; else the first.
fn install_dir(bin_dirs: &[PathBuf], node: &impl Directories) -> Option<PathBuf> {
    bin_dirs
        .iter()
        .find(|dir| !is_content_addressed(dir) && node.is_writable(dir))
        .or_else(|| bin_dirs.iter().find(|dir| node.is_writable(dir)))
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

    /// A node where `/link` leads to `/opt/cni/bin`.
    #[derive(Default)]
    struct Seen {
        read_only: Vec<&'static str>,
    }

    impl Directories for Seen {
        fn is_writable(&self, dir: &Path) -> bool {
            !self.read_only.iter().any(|one| Path::new(one) == dir)
        }

        fn is_same(&self, one: &Path, other: &Path) -> bool {
            let target = |dir: &Path| match dir.to_str() {
                Some("/link") => PathBuf::from("/opt/cni/bin"),
                _ => dir.to_owned(),
            };
            target(one) == target(other)
        }
    }

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
        let dirs = decide(&Overrides::default(), evidence, &Seen::default()).ok()?;
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
        let read_only = |read_only: &[&'static str]| Seen {
            read_only: read_only.to_vec(),
        };
        assert_eq!(
            install_dir(&bins, &read_only(&["/ro"])),
            Some(PathBuf::from("/opt/cni/bin"))
        );
        assert_eq!(
            install_dir(&bins[..1], &read_only(&[])),
            Some(PathBuf::from(HASH))
        );
        assert_eq!(
            install_dir(&bins[..2], &read_only(&[HASH, "/ro"])),
            Some(PathBuf::from(HASH))
        );
    }

    fn overridden(shim: Option<&str>, conf: Option<&str>, by: Source) -> Result<CniDirs, String> {
        let evidence = [told(
            by,
            &["/data/cni", "/opt/cni/bin"],
            Some("/etc/cni/net.d"),
        )];
        let overrides = Overrides {
            shim_dir: shim.map(PathBuf::from),
            conf_dir: conf.map(PathBuf::from),
        };
        decide(&overrides, &evidence, &Seen::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn override_wins_for_its_own_directory_only() {
        let dirs = overridden(Some("/mine"), None, Source::File).unwrap();
        assert_eq!(dirs.install_dir, Path::new("/mine"));
        assert_eq!(dirs.conf_dir, Path::new("/etc/cni/net.d"));
        assert_eq!(dirs.bin_dirs[0], Path::new("/data/cni"));
        assert_eq!(dirs.source, Source::File);
    }

    #[test]
    fn override_chooses_among_the_directories_of_the_runtime() {
        for dir in ["/opt/cni/bin", "/link"] {
            let dirs = overridden(Some(dir), Some("/etc/cni/net.d"), Source::CniConfig).unwrap();
            assert_eq!(dirs.install_dir, Path::new(dir));
        }
    }

    #[test]
    fn override_that_contradicts_the_runtime_is_an_error() {
        for (shim, conf, expected) in [
            (
                Some("/mine"),
                None,
                "config.cni_conf.shimDir (shimDir in config.daemon_conf) is /mine, but the runtime itself looks for plugins in /data/cni, /opt/cni/bin: remove the value, or change the runtime's configuration and restart it",
            ),
            (
                Some("/opt/cni/bin"),
                Some("/mine"),
                "config.cni_conf.confDir (cniConfigDir in config.daemon_conf) is /mine, but the runtime itself reads configurations from /etc/cni/net.d: remove the value, or change the runtime's configuration and restart it",
            ),
        ] {
            for source in [Source::CniConfig, Source::Config] {
                assert_eq!(overridden(shim, conf, source).unwrap_err(), expected);
            }
            assert!(overridden(shim, conf, Source::File).is_ok());
        }
    }
}
