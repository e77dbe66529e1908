//! The decision which CNI directories to use: a function over the directories that each source reports.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// The directories in which the runtime looks for plugins and configurations, as paths of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CniDirs {
    /// The plugin directories in the order of the search; never empty.
    pub bin_dirs: Vec<PathBuf>,
    /// The directory for the shim: one of `bin_dirs`, unless an override names another.
    pub install_dir: PathBuf,
    /// The directory of configurations, of which the first by name wins.
    pub conf_dir: PathBuf,
    /// The source; of several sources the least certain.
    pub source: Source,
}

/// The sources of directories, the most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Values of the chart name the directories.
    Override,
    /// The runtime reports its loaded CNI state (`cniconfig`).
    CniConfig,
    /// The runtime reports the configuration that it runs with (`config`).
    Config,
    /// The files and flags that the runtime was started with name the directories.
    File,
    /// A file at a default path names them: the runtime's command line is not visible.
    Guess,
}

/// The directories that one source reports; what it does not report is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedDirs {
    /// The directories in which the runtime looks for plugins.
    pub bin_dirs: Vec<PathBuf>,
    /// The directory in which it looks for configurations.
    pub conf_dir: Option<PathBuf>,
    /// The configuration directories of runtime handlers that have their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub handlers: BTreeMap<String, PathBuf>,
    /// The number of configurations that the runtime loads, where it is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_conf_num: Option<i64>,
}

impl ReportedDirs {
    /// Drops relative paths, whose base is not known, and removes doubled and trailing slashes from the others.
    #[must_use]
    pub fn only_absolute(mut self) -> Self {
        let normalized = |dir: &PathBuf| dir.is_absolute().then(|| dir.components().collect());
        self.bin_dirs = self.bin_dirs.iter().filter_map(normalized).collect();
        self.conf_dir = self.conf_dir.as_ref().and_then(normalized);
        self.handlers.retain(|_, dir| dir.is_absolute());
        self
    }

    /// Returns whether both kinds of directories are reported.
    pub fn is_complete(&self) -> bool {
        !self.bin_dirs.is_empty() && self.conf_dir.is_some()
    }
}

/// A source of directories, with the directories that it reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The kind of source.
    pub source: Source,
    /// The socket or the files, as the node names them.
    pub from: Vec<PathBuf>,
    /// The directories that the source reports.
    #[serde(flatten)]
    pub reported: ReportedDirs,
}

/// Directories that values of the chart name. They override the runtime's files, and must agree with what the runtime itself reports:
/// with a shim or a configuration in a directory in which the runtime does not look, the node would have no networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The directory for the shim.
    pub shim_dir: Option<PathBuf>,
    /// The directory of configurations.
    pub conf_dir: Option<PathBuf>,
}

/// The values of the chart that override directories.
const SHIM_DIR: &str = "config.cni_conf.shimDir (shimDir in config.daemon_conf)";
const CONF_DIR: &str = "config.cni_conf.confDir (cniConfigDir in config.daemon_conf)";

impl Overrides {
    /// Returns the directories if both are overridden.
    pub fn complete(&self) -> Option<CniDirs> {
        let (shim, conf) = (self.shim_dir.clone()?, self.conf_dir.clone()?);
        Some(CniDirs {
            bin_dirs: vec![shim.clone()],
            install_dir: shim,
            conf_dir: conf,
            source: Source::Override,
        })
    }

    /// Returns a sentence for each override, with the value to remove.
    pub(crate) fn notes(&self) -> Vec<String> {
        let shim = self.shim_dir.iter().map(|dir| (SHIM_DIR, dir));
        let conf = self.conf_dir.iter().map(|dir| (CONF_DIR, dir));
        let sentence = |(value, dir): (&str, &PathBuf)| {
            format!(
                "{value} is set: {} is used instead of the directory that the node reports; remove the value if the node reports one",
                dir.display()
            )
        };
        shim.chain(conf).map(sentence).collect()
    }
}

/// The reason why no directories can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirsError {
    /// No source reports them.
    #[error(
        "neither the runtime's status nor its files name its CNI {missing}: set config.cni_conf.shimDir and config.cni_conf.confDir to name them"
    )]
    Unknown {
        /// The kind of directory.
        missing: &'static str,
    },
    /// An override names another directory than the runtime.
    #[error(
        "{value} is {}, but the runtime itself {verb} {}: remove the value, or change the runtime's configuration and restart it",
        overridden.display(),
        list(reported)
    )]
    Contradiction {
        value: &'static str,
        /// The directory that it names.
        overridden: PathBuf,
        /// The runtime's use of its directories, as a verb.
        verb: &'static str,
        /// The runtime's directories.
        reported: Vec<PathBuf>,
    },
}

/// The node's directories, as far as the decision needs them.
pub trait Directories {
    /// Returns whether files can be created in the directory.
    fn is_writable(&self, dir: &Path) -> bool;
    /// Returns whether two paths lead to the same directory.
    fn is_same(&self, one: &Path, other: &Path) -> bool;
}

/// Takes the directories of each kind from the most certain source that reports them.
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
    let bins = sources.iter().find(|one| !one.reported.bin_dirs.is_empty());
    let mut bin_dirs = bins.map_or_else(Vec::new, |one| one.reported.bin_dirs.clone());
    let (install_dir, bin_source) = match (&overrides.shim_dir, bins) {
        (Some(dir), _) => (Some(dir.clone()), Source::Override),
        (None, Some(one)) => (install_dir(&bin_dirs, node), one.source),
        (None, None) => (None, Source::Guess),
    };
    let install_dir = install_dir.ok_or(DirsError::Unknown {
        missing: "plugin directory",
    })?;
    let overridden = overrides.conf_dir.iter().map(|dir| (dir, Source::Override));
    let reported = sources
        .iter()
        .filter_map(|one| Some((one.reported.conf_dir.as_ref()?, one.source)));
    let (conf_dir, conf_source) = overridden
        .chain(reported)
        .next()
        .ok_or(DirsError::Unknown {
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

/// Compares the overrides with the directories that the runtime itself reports. Files may be out of date, so they contradict nothing.
fn check(
    overrides: &Overrides,
    sources: &[&Evidence],
    node: &impl Directories,
) -> Result<(), DirsError> {
    let mut reports = sources.iter().filter(|one| one.source < Source::File);
    let bins = reports
        .clone()
        .find(|one| !one.reported.bin_dirs.is_empty())
        .map(|one| one.reported.bin_dirs.clone());
    let conf = reports.find_map(|one| one.reported.conf_dir.clone());
    let kinds = [
        (SHIM_DIR, &overrides.shim_dir, "looks for plugins in", bins),
        (
            CONF_DIR,
            &overrides.conf_dir,
            "reads configurations from",
            conf.map(|dir| vec![dir]),
        ),
    ];
    for (value, overridden, verb, reported) in kinds {
        if let (Some(overridden), Some(reported)) = (overridden, reported)
            && !reported.iter().any(|dir| node.is_same(dir, overridden))
        {
            return Err(DirsError::Contradiction {
                value,
                overridden: overridden.clone(),
                verb,
                reported,
            });
        }
    }
    Ok(())
}

/// Returns the first writable directory without a hash in its path (the next release has another hash), else the first writable one, else
/// the first.
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
    /// Returns the source's name in JSON and metrics.
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
            Self::Override => "a value of the chart",
            Self::CniConfig => "the runtime's loaded CNI state",
            Self::Config => "the runtime's configuration, as it reports",
            Self::File => "the runtime's files",
            Self::Guess => "a file at a default path",
        })
    }
}

impl fmt::Display for ReportedDirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bins = list(&self.bin_dirs);
        let bins = if bins.is_empty() { "unknown" } else { &bins };
        let conf = self.conf_dir.as_ref().map(|dir| dir.display().to_string());
        let conf = conf.unwrap_or_else(|| "unknown".to_owned());
        write!(f, "plugins {bins}; configuration {conf}")
    }
}

/// Returns paths as text for users.
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
    struct FakeDirectories {
        read_only: Vec<&'static str>,
    }

    impl Directories for FakeDirectories {
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

    fn evidence(source: Source, bins: &[&str], conf: Option<&str>) -> Evidence {
        Evidence {
            source,
            from: Vec::new(),
            reported: ReportedDirs {
                bin_dirs: bins.iter().map(PathBuf::from).collect(),
                conf_dir: conf.map(PathBuf::from),
                ..ReportedDirs::default()
            },
        }
    }

    fn decided(evidence: &[Evidence]) -> Option<(PathBuf, PathBuf, Source)> {
        let dirs = decide(&Overrides::default(), evidence, &FakeDirectories::default()).ok()?;
        Some((dirs.install_dir, dirs.conf_dir, dirs.source))
    }

    #[test]
    fn most_certain_source_of_each_kind_wins() {
        let (a, b) = (
            evidence(Source::File, &["/f"], Some("/fc")),
            evidence(Source::CniConfig, &["/s"], None),
        );
        for order in [[a.clone(), b.clone()], [b.clone(), a.clone()]] {
            assert_eq!(
                decided(&order),
                Some(("/s".into(), "/fc".into(), Source::File))
            );
        }
        let complete = evidence(Source::CniConfig, &["/s"], Some("/sc"));
        assert_eq!(
            decided(&[a, complete]),
            Some(("/s".into(), "/sc".into(), Source::CniConfig))
        );
    }

    #[test]
    fn missing_directory_is_an_error_and_never_a_default() {
        assert_eq!(decided(&[]), None);
        assert_eq!(decided(&[evidence(Source::Config, &["/b"], None)]), None);
        assert_eq!(decided(&[evidence(Source::Config, &[], Some("/c"))]), None);
    }

    #[test]
    fn install_dir_outlives_the_next_release_of_the_distro() {
        let bins = [
            PathBuf::from(HASH),
            PathBuf::from("/ro"),
            PathBuf::from("/opt/cni/bin"),
        ];
        let read_only = |read_only: &[&'static str]| FakeDirectories {
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
        let evidence = [evidence(
            by,
            &["/data/cni", "/opt/cni/bin"],
            Some("/etc/cni/net.d"),
        )];
        let overrides = Overrides {
            shim_dir: shim.map(PathBuf::from),
            conf_dir: conf.map(PathBuf::from),
        };
        decide(&overrides, &evidence, &FakeDirectories::default())
            .map_err(|error| error.to_string())
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
    fn override_may_choose_among_the_directories_of_the_runtime() {
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
