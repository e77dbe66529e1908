//! A copy of the release's directory of archives, which a test changes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::{
    sh,
    test_env::{TestEnv, arch, sha256},
};

pub(super) struct Copy {
    pub(super) dir: PathBuf,
    /// The file name of this machine's archive.
    pub(super) archive: String,
}

impl Copy {
    pub(super) fn new(env: &TestEnv) -> anyhow::Result<Self> {
        let dir = env.dir.join("copy");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let from = env.dist.join("airgap");
        sh::run(Command::new("cp").arg("--recursive").args([&from, &dir]))?;
        Ok(Self {
            dir,
            archive: format!("multus-airgap-images-{}.tar", arch()),
        })
    }

    pub(super) fn archive(&self) -> PathBuf {
        self.dir.join(&self.archive)
    }

    /// Writes sums that match the changed files, as a user may who repairs the wrong file.
    pub(super) fn rewrite_sums(&self) -> anyhow::Result<()> {
        let sums = format!("sha256sum-{}.txt", arch());
        let old = fs::read_to_string(self.dir.join(&sums))?;
        let names = old.lines().filter_map(|line| line.split_once("  "));
        let mut new = String::new();
        for (_, name) in names {
            let bytes = fs::read(self.dir.join(name)).with_context(|| name.to_owned())?;
            let digest = sha256(&bytes);
            new.extend([digest.as_str(), "  ", name, "\n"]);
        }
        Ok(fs::write(self.dir.join(sums), new)?)
    }

    /// Changes the archive, and the checksums with it.
    pub(super) fn repack(
        &self,
        change: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        change(&self.archive())?;
        self.rewrite_sums()
    }
}

/// Runs tar on an archive.
pub(super) fn tar(args: &[&str], archive: &Path) -> anyhow::Result<()> {
    let (what, names) = args.split_first().context("tar needs an operation")?;
    let mut command = Command::new("tar");
    sh::run(command.args([what, "--file"]).arg(archive).args(names)).map(drop)
}

/// Returns the path of an archive's largest entry.
pub(super) fn largest(plain: &Path) -> anyhow::Result<String> {
    let mut tar = Command::new("tar");
    let list = sh::run(tar.args(["--list", "--verbose", "--file"]).arg(plain))?;
    let sizes = list.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        Some((
            words.get(2)?.parse::<u64>().ok()?,
            (*words.get(5)?).to_owned(),
        ))
    });
    let largest = sizes.max().context("the archive is empty")?;
    Ok(largest.1)
}
