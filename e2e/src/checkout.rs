//! A copy of this checkout, in which versions are cut as those of real releases, and the program of `cargo xtask`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use crate::sh;

/// A copy with a history of its own.
pub(crate) struct Checkout {
    pub(crate) dir: PathBuf,
    xtask: PathBuf,
}

/// Returns the program of `cargo xtask`, which cargo puts next to this one.
pub(crate) fn xtask() -> anyhow::Result<PathBuf> {
    let xtask = env::current_exe()?.with_file_name("xtask");
    ensure!(
        xtask.exists(),
        "{} is missing: start this suite with `cargo xtask e2e`",
        xtask.display()
    );
    Ok(xtask)
}

/// Returns the numbers of a version, without its prerelease.
pub(crate) fn numbers(version: &str) -> anyhow::Result<[u64; 3]> {
    let numbers = version.split(['.', '-']).take(3).map(str::parse);
    let numbers = numbers.collect::<Result<Vec<_>, _>>().ok();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.with_context(|| format!("the version is {version}"))
}

/// Makes a directory a repository with one commit of all its files.
pub(crate) fn init(dir: &Path) -> anyhow::Result<()> {
    git(dir, &["init", "--quiet", "--initial-branch=main"])?;
    git(dir, &["add", "--all", "--force"])?;
    git(dir, &["commit", "--quiet", "--message", "copy"]).map(drop)
}

fn git(dir: &Path, args: &[&str]) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    git.current_dir(dir);
    for setting in [
        "safe.directory=*",
        "user.name=e2e",
        "user.email=e2e@example",
        "commit.gpgSign=false",
        "tag.gpgSign=false",
    ] {
        git.args(["-c", setting]);
    }
    sh::run(git.args(args))
}

impl Checkout {
    /// Copies this checkout, without the branches and tags that it happens to have.
    pub(crate) fn copy(dir: PathBuf) -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let root = fs::canonicalize(root)?;
        let mut clone = Command::new("git");
        clone.args(["-c", "safe.directory=*", "clone", "--quiet", "--depth=1"]);
        let from = format!("file://{}", root.display());
        sh::run(clone.arg(from).arg(&dir))?;
        fs::remove_dir_all(dir.join(".git"))?;
        let copy = Self {
            dir,
            xtask: xtask()?,
        };
        init(&copy.dir)?;
        Ok(copy)
    }

    /// Makes a command of xtask use the copy in place of this checkout.
    pub(crate) fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("CARGO_MANIFEST_DIR", self.dir.join("xtask"))
    }

    /// Returns a command of xtask in the copy, with the cache of this checkout.
    pub(crate) fn xtask(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.xtask);
        command.args(args).current_dir(&self.dir);
        self.of(&mut command);
        if let Some(target) = self.xtask.ancestors().nth(2) {
            command.env("CARGO_TARGET_DIR", target);
        }
        command
    }

    pub(crate) fn git(&self, args: &[&str]) -> anyhow::Result<String> {
        git(&self.dir, args)
    }

    /// Adds a line to the changelog.
    pub(crate) fn change(&self, entry: &str) -> anyhow::Result<()> {
        let path = self.dir.join("CHANGELOG.md");
        let title = "\n## Unreleased\n";
        let changelog = fs::read_to_string(&path)?;
        let with = changelog.replacen(title, &format!("{title}\n- Change for {entry}.\n"), 1);
        ensure!(changelog != with, "the changelog has no {title}");
        fs::write(&path, with)?;
        self.git(&["commit", "--quiet", "--all", "--message", entry])
            .map(drop)
    }

    /// Cuts a version, with a line of the changelog, and tags it.
    pub(crate) fn cut(&self, version: &str) -> anyhow::Result<()> {
        self.change(version)?;
        sh::run(&mut self.xtask(&["release", "bump", version]))?;
        let changed = self.git(&["diff", "--name-only"])?;
        ensure!(
            changed == "CHANGELOG.md\nCargo.lock\nCargo.toml\nfuzz/Cargo.lock\n",
            "{changed}"
        );
        self.git(&["commit", "--quiet", "--all", "--message", version])?;
        let tag = format!("v{version}");
        self.git(&["tag", &tag])?;
        let check = ["release", "check", "--tag", &tag];
        sh::run(&mut self.xtask(&check)).map(drop)
    }

    /// Makes a release of the version that was cut last, with the programs of another release.
    pub(crate) fn rehearse(&self, programs: &Path, out: &Path) -> anyhow::Result<()> {
        let mut rehearse = self.xtask(&["release", "rehearse", "--programs"]);
        rehearse.arg(programs).arg("--out").arg(out);
        sh::run(&mut rehearse).map(drop)
    }
}
