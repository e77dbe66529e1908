//! Releases of K3s for its suite. Each has a lock file, and is fetched where its name stands in place of a directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use semver::Version;

use crate::{cmd::download, project::Project};

/// The program of another release, to which the suite upgrades.
const NEXT: &str = "k3s-next";

/// The releases that can be fetched.
#[derive(Debug)]
pub(crate) struct Releases {
    /// The directory of their lock files, `VERSION.lock`.
    locks: PathBuf,
    /// The directory into which they are fetched, each into one of its own.
    dir: PathBuf,
    /// The newest comes last.
    pub(crate) versions: Vec<String>,
}

impl Releases {
    pub(crate) fn of(project: &Project) -> anyhow::Result<Self> {
        Self::at(
            project.root.join("e2e/k3s"),
            project.download_dir().join("k3s"),
        )
    }

    fn at(locks: PathBuf, dir: PathBuf) -> anyhow::Result<Self> {
        let context = || format!("cannot read {}", locks.display());
        let mut versions = Vec::new();
        for entry in fs::read_dir(&locks).with_context(context)? {
            let name = entry.with_context(context)?.file_name();
            let name = name.to_string_lossy();
            let Some(name) = name.strip_suffix(".lock") else {
                continue;
            };
            let version = Version::parse(name.strip_prefix('v').unwrap_or(name));
            let version =
                version.with_context(|| format!("{name}.lock is not named by a version"))?;
            versions.push((version, name.to_owned()));
        }
        versions.sort_unstable();
        Ok(Self {
            locks,
            dir,
            versions: versions.into_iter().map(|(_, name)| name).collect(),
        })
    }

    /// Fetches the release of this name, unless it is that of a directory, with the program of the one after it, or of the one before the
    /// newest. The suite finds them in the directory of downloads.
    pub(crate) fn fetch(&self, name: &Path) -> anyhow::Result<()> {
        if name.is_dir() {
            return Ok(());
        }
        let versions = &self.versions;
        let Some(at) = versions.iter().position(|one| Path::new(one) == name) else {
            bail!(
                "{} is neither a directory with K3s nor a release in {}: name one of {}",
                name.display(),
                self.locks.display(),
                versions.join(", ")
            );
        };
        let dir = |at: usize| self.dir.join(&versions[at]);
        let lock = |at: usize| self.locks.join(format!("{}.lock", versions[at]));
        download::fetch(&[lock(at)], &dir(at))?;
        let after = Some(at + 1).filter(|after| *after < versions.len());
        if let Some(other) = after.or(at.checked_sub(1)) {
            let program = download::locked(&lock(other), Path::new("k3s"), &dir(other))?;
            link(&program, &dir(at).join(NEXT))?;
        }
        Ok(())
    }
}

/// Makes the second path one of the same file.
fn link(program: &Path, next: &Path) -> anyhow::Result<()> {
    match fs::remove_file(next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::hard_link(program, next),
    }
    .with_context(|| format!("cannot make {}", next.display()))
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;

    #[test]
    fn release_comes_with_the_program_of_its_neighbour() {
        let dir = tempfile::tempdir().unwrap();
        let (locks, downloads) = (dir.path().join("locks"), dir.path().join("downloads"));
        fs::create_dir(&locks).unwrap();
        // What is there already is not fetched.
        for version in ["v1.9.0+k3s1", "v1.10.0+k3s1", "v1.10.0+k3s2"] {
            let line = format!(
                "{} {version} https://k3s.invalid/k3s\n",
                sha256(version.as_bytes()).hex()
            );
            fs::write(locks.join(format!("{version}.lock")), line).unwrap();
            fs::create_dir_all(downloads.join(version)).unwrap();
            fs::write(downloads.join(version).join("k3s"), version).unwrap();
        }
        let releases = Releases::at(locks, downloads.clone()).unwrap();
        let next = |version: &str| {
            releases.fetch(Path::new(version)).unwrap();
            fs::read_to_string(downloads.join(version).join(NEXT)).unwrap()
        };
        assert_eq!(next("v1.9.0+k3s1"), "v1.10.0+k3s1");
        assert_eq!(next("v1.10.0+k3s2"), "v1.10.0+k3s1");
        assert_eq!(next("v1.10.0+k3s2"), "v1.10.0+k3s1", "again");
        let error = releases.fetch(Path::new("v1.8.0")).unwrap_err().to_string();
        assert!(
            error.ends_with("name one of v1.9.0+k3s1, v1.10.0+k3s1, v1.10.0+k3s2"),
            "{error}"
        );
        releases.fetch(dir.path()).unwrap();
    }
}
