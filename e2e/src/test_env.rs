//! Where a level works: the release under test, the real programs, and a folder whose logs outlive a failure.

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

/// Folders of one run.
pub(crate) struct TestEnv {
    /// The release.
    pub(crate) dist: PathBuf,
    /// Whose programs are tested, as the release names it.
    arch: String,
    /// This run's files.
    pub(crate) dir: PathBuf,
    /// Programs built from pinned Go modules.
    pub(crate) bin: PathBuf,
    /// Reference plugins of the newest release.
    pub(crate) plugins: PathBuf,
    /// One run at a time on a machine: its namespaces have fixed names.
    _lock: File,
}

impl TestEnv {
    /// Makes an empty folder for the level.
    pub(crate) fn new(level: &str, dist: &Path, arch: &str) -> anyhow::Result<Self> {
        let dist = fs::canonicalize(dist).with_context(|| {
            format!(
                "{}: no release is there; `cargo xtask dist` makes one",
                dist.display()
            )
        })?;
        let home = home()?;
        fs::create_dir_all(&home)?;
        let lock = File::create(Path::new("/run/multus-e2e.lock"))
            .context("cannot take the machine's lock for these tests; they need root")?;
        if lock.try_lock().is_err() {
            say("another run is under way on this machine: waiting for its end");
            lock.lock()?;
        }
        let dir = home.join(level);
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
            _lock: lock,
        })
    }

    /// A program of the release.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dist.join("bin").join(&self.arch).join(name)
    }

    /// The release's version.
    pub(crate) fn version(&self) -> anyhow::Result<String> {
        let release: Value = serde_json::from_slice(&self.read("release.json")?)?;
        let version = release["version"].as_str();
        Ok(version.context("release.json names no version")?.to_owned())
    }

    /// A packed chart.
    pub(crate) fn chart(&self, name: &str) -> anyhow::Result<PathBuf> {
        let version = self.version()?;
        let path = self
            .dist
            .join(format!("charts/assets/{name}/{name}-{version}.tgz"));
        ensure!(path.exists(), "{}: no such chart", path.display());
        Ok(path)
    }

    /// A file of the release.
    pub(crate) fn read(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let path = self.dist.join(path);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The image archive for this machine, unpacked: `ctr` reads no zstd.
    pub(crate) fn image_archive(&self) -> anyhow::Result<PathBuf> {
        let tar = self.dir.join("images.tar");
        let packed = self
            .dist
            .join(format!("airgap/multus-airgap-images-{}.tar.zst", arch()));
        crate::sh::run(
            std::process::Command::new("zstd")
                .args(["--decompress", "--force", "--quiet", "-o"])
                .args([&tar, &packed]),
        )?;
        Ok(tar)
    }
}

/// Beside what cargo builds.
pub(crate) fn home() -> anyhow::Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program
        .ancestors()
        .nth(2)
        .context("cargo builds into target/PROFILE/")?;
    Ok(target.join("e2e-work"))
}

/// This machine's architecture, as the release names it.
pub(crate) fn arch() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The sha256 of bytes, as sums files write it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
