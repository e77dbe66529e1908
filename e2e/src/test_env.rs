//! The environment of a run: the release under test, the real programs, and a directory whose logs stay after a failure.

use std::{
    env,
    fmt::Write as _,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::report::say;

pub(crate) struct TestEnv {
    /// The directory of the release.
    pub(crate) dist: PathBuf,
    /// The architecture of the programs under test, by its name in the release.
    arch: String,
    /// Files of this run.
    pub(crate) dir: PathBuf,
    /// Directory of the programs that are built from pinned Go modules.
    pub(crate) bin: PathBuf,
    /// Directory of the newest reference plugins.
    pub(crate) plugins: PathBuf,
    /// Directory of upstream Multus' programs.
    pub(crate) upstream: PathBuf,
    /// The program of whereabouts.
    pub(crate) whereabouts: PathBuf,
    /// The directory of `KubeVirt`'s programs.
    pub(crate) kubevirt: PathBuf,
    /// Whether what is missing is installed.
    pub(crate) install: bool,
    /// Held for the run: network namespaces have fixed names, so a machine has one run at a time.
    _lock: File,
}

impl TestEnv {
    /// Creates an empty directory for the suite, after other runs on this machine have ended.
    pub(crate) fn new(suite: &str, dist: &Path, arch: &str, install: bool) -> anyhow::Result<Self> {
        let dist = fs::canonicalize(dist).with_context(|| {
            format!(
                "{}: there is no release; `cargo xtask dist` builds one",
                dist.display()
            )
        })?;
        let home = home()?;
        fs::create_dir_all(&home)?;
        let lock = File::create(Path::new("/run/multus-e2e.lock"))
            .context("cannot take the machine's lock for these tests; they need root")?;
        if lock.try_lock().is_err() {
            say("another run is in progress on this machine: waiting for its end");
            lock.lock()?;
        }
        let dir = home.join(suite);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(dir.join("log"))?;
        Ok(Self {
            dist,
            arch: arch.to_owned(),
            dir,
            bin: home.join("tools/bin"),
            plugins: home.join("tools/cni"),
            upstream: home.join("tools/multus"),
            whereabouts: home.join("tools/whereabouts/cmd"),
            kubevirt: home.join("tools/kubevirt"),
            install,
            _lock: lock,
        })
    }

    /// Returns whether the programs under test are emulated.
    pub(crate) fn is_foreign(&self) -> bool {
        self.arch != arch()
    }

    /// Returns the path of a program of the release.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dist.join("bin").join(&self.arch).join(name)
    }

    pub(crate) fn version(&self) -> anyhow::Result<String> {
        self.described("version")
    }

    pub(crate) fn commit(&self) -> anyhow::Result<String> {
        self.described("commit")
    }

    /// Returns a text of the release's description.
    fn described(&self, key: &str) -> anyhow::Result<String> {
        let release: Value = serde_json::from_slice(&self.read("release.json")?)?;
        let text = release[key].as_str();
        let text = text.with_context(|| format!("release.json names no {key}"))?;
        Ok(text.to_owned())
    }

    /// Returns the path of a packed chart.
    pub(crate) fn chart(&self, name: &str) -> anyhow::Result<PathBuf> {
        let version = self.version()?;
        let path = self
            .dist
            .join(format!("charts/assets/{name}/{name}-{version}.tgz"));
        ensure!(path.exists(), "{}: no such chart", path.display());
        Ok(path)
    }

    /// Reads a file of the release.
    pub(crate) fn read(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let path = self.dist.join(path);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the path of the image archive for this machine.
    pub(crate) fn image_archive(&self) -> PathBuf {
        let name = format!("airgap/multus-airgap-images-{}.tar", arch());
        self.dist.join(name)
    }
}

/// Returns the directory of all runs, in cargo's target directory.
pub(crate) fn home() -> anyhow::Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program
        .ancestors()
        .nth(2)
        .context("cargo builds into target/PROFILE/")?;
    Ok(target.join("e2e-work"))
}

/// Returns this machine's architecture by its name in the release.
pub(crate) fn arch() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns the sha256 of the bytes in lower-case hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
