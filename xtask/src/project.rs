//! The checkout: its directories, version and commit, and hashes over the inputs of a step.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use archive::digest::{Digest, sha256};
use chart::{BuildSettings, ImagePrefix};
use release::description;
use semver::Version;
use xshell::{Cmd, Shell, cmd};

use crate::{changelog, release_line};

/// Directories with the sources of the programs.
pub(crate) const PROGRAMS: &[&str] = &[
    "airgap", "api", "archive", "chart", "cmdline", "cni", "daemon", "dhcp", "distro", "features",
    "ipam", "kubectl", "netlink", "node", "plan", "plugins", "registry", "release", "shim",
    "signing", "trust", "vpn",
];
/// Directories that affect a release, besides [`PROGRAMS`].
pub(crate) const PACKING: &[&str] = &["docs", "images", "xtask"];
/// Files that affect every build.
const BUILD_FILES: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "LICENSE",
    "NOTICE",
    "rust-toolchain.toml",
];

/// The checkout that xtask works on.
pub(crate) struct Project {
    /// The directory of `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// The directory into which cargo builds.
    pub(crate) target: PathBuf,
    /// One version for the workspace, the images and the charts.
    pub(crate) version: String,
    /// The text before the names of the images that a build makes.
    pub(crate) images: ImagePrefix,
    /// The commit, with `-dirty` where files differ from it.
    pub(crate) commit: String,
    /// The commit's time.
    pub(crate) epoch: u64,
    /// The toolchain that `rust-toolchain.toml` pins.
    pub(crate) toolchain: String,
    /// The key that is built into `multus-distro`.
    pub(crate) trusted_key: Option<TrustedKey>,
}

/// The variable in which `cargo run` names the directory of the package.
pub(crate) const RUN_BY: &str = "CARGO_MANIFEST_DIR";
/// The variable in which xtask names it to itself, once the other one is removed.
pub(crate) const MANIFEST: &str = "MULTUS_XTASK_DIR";
/// The variable that names a public key to build into `multus-distro`.
pub(crate) const TRUSTED_KEY: &str = "MULTUS_TRUSTED_KEY";

/// A key that is built into `multus-distro`, which then takes signed archives alone.
#[derive(Debug, Clone)]
pub(crate) struct TrustedKey {
    pub(crate) id: Digest,
    /// The key in the form in which it is built in, which has no comments and one kind of line ends.
    pub(crate) pem: String,
}

impl Project {
    /// Opens the checkout that this program was started from.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let manifest = std::env::var_os(MANIFEST)
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("xtask is a directory of the workspace")?;
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => std::env::current_dir()?.join(dir),
            None => root.join("target"),
        };
        let mut project = Self::at(root.to_owned(), target)?;
        project.trusted_key = trusted_key(std::env::var_os(TRUSTED_KEY).as_deref())?;
        Ok(project)
    }

    /// Opens a checkout, which cargo builds into `target`.
    pub(crate) fn at(root: PathBuf, target: PathBuf) -> anyhow::Result<Self> {
        let (commit, epoch) = commit(&root)?;
        Ok(Self {
            version: version(&root)?,
            images: ImagePrefix::DEFAULT,
            commit,
            epoch,
            toolchain: toolchain(&root)?,
            trusted_key: None,
            root,
            target,
        })
    }

    /// Returns the same checkout for a build with other names of images.
    pub(crate) fn with_images(self, images: &ImageNames) -> Self {
        Self {
            images: images.image_prefix.clone(),
            ..self
        }
    }

    /// Opens another checkout for a build with the settings of this one.
    pub(crate) fn elsewhere(&self, root: PathBuf, target: PathBuf) -> anyhow::Result<Self> {
        Ok(Self {
            images: self.images.clone(),
            trusted_key: self.trusted_key.clone(),
            ..Self::at(root, target)?
        })
    }

    /// Returns the settings that charts and images take.
    pub(crate) fn settings(&self) -> BuildSettings<'_> {
        BuildSettings {
            version: self.version.as_str().into(),
            images: self.images.clone(),
        }
    }

    /// Returns whether files differ from the commit.
    pub(crate) fn is_dirty(&self) -> bool {
        description::is_dirty(&self.commit)
    }

    /// Returns the commit of a tag.
    pub(crate) fn commit_of_tag(&self, tag: &str) -> anyhow::Result<String> {
        let (shell, revision) = (self.shell()?, format!("refs/tags/{tag}^{{commit}}"));
        cmd!(
            shell,
            "git -c safe.directory=* rev-parse --verify --quiet --end-of-options {revision}"
        )
        .quiet()
        .ignore_stderr()
        .read()
        .ok()
        .with_context(|| format!("{} has no tag {tag}: fetch it", self.root.display()))
    }

    /// Returns the versions that have a tag.
    pub(crate) fn released(&self) -> anyhow::Result<Vec<Version>> {
        let tags = self.git(&["tag", "--list", "v*"])?;
        Ok(release_line::versions(tags.lines()))
    }

    /// Returns the name of the branch, unless none is checked out.
    pub(crate) fn branch(&self) -> anyhow::Result<Option<String>> {
        let name = self.git(&["branch", "--show-current"])?;
        Ok(Some(name).filter(|name| !name.is_empty()))
    }

    /// Returns the names of all branches, of other repositories too.
    pub(crate) fn branches(&self) -> anyhow::Result<Vec<String>> {
        let own = self.git(&["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"])?;
        let others = [
            "for-each-ref",
            "--format=%(refname:lstrip=3)",
            "refs/remotes",
        ];
        let others = self.git(&others)?;
        let names = own.lines().chain(others.lines());
        Ok(names.map(str::to_owned).collect())
    }

    /// Reads the changelog.
    pub(crate) fn changelog(&self) -> anyhow::Result<String> {
        let path = self.root.join(changelog::FILE);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn git(&self, args: &[&str]) -> anyhow::Result<String> {
        let text = git(&self.shell()?, args).read();
        text.with_context(|| format!("cannot ask git about {}", self.root.display()))
    }

    /// Returns a file of a commit; the present one for a commit from which files differ.
    pub(crate) fn file_at(&self, commit: &str, path: &str) -> anyhow::Result<Vec<u8>> {
        if description::is_dirty(commit) {
            let path = self.root.join(path);
            return fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
        }
        let (shell, object) = (self.shell()?, format!("{commit}:{path}"));
        let output = cmd!(
            shell,
            "git -c safe.directory=* cat-file blob --end-of-options {object}"
        )
        .quiet()
        .ignore_stderr()
        .output();
        let output = output.ok().with_context(|| {
            format!(
                "{} has no {path} of commit {commit}, of which the release is: fetch it",
                self.root.display()
            )
        })?;
        Ok(output.stdout)
    }

    /// Returns a shell in the root of the checkout.
    pub(crate) fn shell(&self) -> anyhow::Result<Shell> {
        let shell = Shell::new()?;
        shell.change_dir(&self.root);
        Ok(shell)
    }

    /// Returns the directory of xtask's own cache.
    pub(crate) fn cache_dir(&self) -> PathBuf {
        self.target.join("xtask")
    }

    /// Returns the directory of third-party files that lock files name.
    pub(crate) fn download_dir(&self) -> PathBuf {
        self.target.join("download")
    }

    /// Returns a hash over directories, build files and whatever else affects a step.
    pub(crate) fn key(&self, dirs: &[&str], more: &[&str]) -> anyhow::Result<Digest> {
        let mut lines = Vec::new();
        for name in BUILD_FILES {
            hash_file(&self.root.join(name), name, &mut lines)?;
        }
        for dir in dirs {
            hash_dir(&self.root.join(dir), dir, &mut lines)?;
        }
        lines.extend(more.iter().map(|&item| item.to_owned()));
        Ok(sha256(lines.join("\n").as_bytes()))
    }
}

/// The option for the names of the images that a build makes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ImageNames {
    /// Text before the names of the images, as rancher/ or registry.example/team/hardened-
    #[arg(long, value_name = "PREFIX", default_value_t)]
    pub(crate) image_prefix: ImagePrefix,
}

/// Returns a question for git, which must not refuse a checkout that another user owns, as under sudo.
pub(crate) fn git<'a>(shell: &'a Shell, args: &[&str]) -> Cmd<'a> {
    cmd!(
        shell,
        "git --no-optional-locks -c safe.directory=* {args...}"
    )
    .quiet()
}

/// Lists the files of a checkout that git has or would add, as paths relative to it.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<String>> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let args = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = git(&shell, &args).read();
    let listed = listed.context("cannot list the files of the checkout")?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Returns the version below `[workspace.package]`.
fn version(root: &Path) -> anyhow::Result<String> {
    let path = root.join("Cargo.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let version = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("package")?.get("version")?.as_str());
    let version = version.with_context(|| format!("{} has no version", path.display()))?;
    Ok(version.to_owned())
}

fn commit(root: &Path) -> anyhow::Result<(String, u64)> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let git = |args: &[&str]| git(&shell, args).ignore_stderr().read();
    let explicit = std::env::var("SOURCE_DATE_EPOCH").ok();
    let explicit = explicit
        .map(|text| {
            text.parse().ok().with_context(|| {
                format!("SOURCE_DATE_EPOCH is `{text}`: unset it, or set it to seconds since 1970")
            })
        })
        .transpose()?;
    let Ok(line) = git(&["log", "-1", "--format=%H %ct"]) else {
        let Some(epoch) = explicit else {
            bail!(
                "git has no commit of {}: install git or make a checkout, or set SOURCE_DATE_EPOCH to the time of the release",
                root.display()
            );
        };
        return Ok(("unknown".to_owned(), epoch));
    };
    let (hash, time) = line.split_once(' ').context("git log printed no time")?;
    let is_clean = git(&["status", "--porcelain"])?.is_empty();
    let suffix = if is_clean { "" } else { description::DIRTY };
    let epoch = match explicit {
        Some(epoch) => epoch,
        None => time.parse().context("git log printed no time")?,
    };
    Ok((format!("{hash}{suffix}"), epoch))
}

/// Reads the key that a variable names, if it names one.
fn trusted_key(path: Option<&OsStr>) -> anyhow::Result<Option<TrustedKey>> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let key = signing::PublicKey::from_file(Path::new(path)).context(TRUSTED_KEY)?;
    Ok(Some(TrustedKey {
        id: key.id(),
        pem: key.to_pem(),
    }))
}

fn toolchain(root: &Path) -> anyhow::Result<String> {
    let path = root.join("rust-toolchain.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("channel = "));
    let channel = values
        .next()
        .context("rust-toolchain.toml names no channel")?;
    Ok(channel.trim_matches('"').to_owned())
}

fn hash_file(path: &Path, name: &str, lines: &mut Vec<String>) -> anyhow::Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    lines.push(format!("{name} {}", sha256(&bytes)));
    Ok(())
}

fn hash_dir(dir: &Path, name: &str, lines: &mut Vec<String>) -> anyhow::Result<()> {
    let context = || format!("cannot read {}", dir.display());
    let mut entries = fs::read_dir(dir)
        .with_context(context)?
        .collect::<Result<Vec<_>, _>>()
        .with_context(context)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            hash_dir(&entry.path(), &name, lines)?;
        } else {
            hash_file(&entry.path(), &name, lines)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs;

    /// Returns the crates of the workspace that a crate depends on.
    fn dependencies(root: &Path, dir: &str) -> Vec<String> {
        let manifest = fs::read_to_string(root.join(dir).join("Cargo.toml")).unwrap();
        let mut is_read = false;
        let mut names = Vec::new();
        for line in manifest.lines() {
            if let Some(section) = line.strip_prefix('[') {
                is_read = section.ends_with("dependencies]") && !section.starts_with("dev-");
            } else if let Some((name, _)) = line.split_once(['.', ' ']).filter(|_| is_read) {
                names.push(name.to_owned());
            }
        }
        names.retain(|name| root.join(name).join("Cargo.toml").exists());
        names
    }

    #[test]
    fn commit_of_a_tag_is_that_of_its_commit() {
        let dir = tempfile::tempdir().unwrap();
        let shell = Shell::new().unwrap();
        shell.change_dir(dir.path());
        fs::write(
            dir.path().join("rust-toolchain.toml"),
            "channel = \"1.0.0\"\n",
        )
        .unwrap();
        fs::write(
            dir.path().join("Cargo.toml"),
            "[workspace.package]\nversion = \"1.2.3\"\n",
        )
        .unwrap();
        let git = |args: &str| {
            let args = args.split(' ');
            cmd!(shell, "git -c user.name=a -c user.email=a@b -c tag.gpgSign=false -c commit.gpgSign=false {args...}")
                .quiet()
                .ignore_stdout()
                .run()
                .unwrap();
        };
        git("init --quiet");
        git("add .");
        git("commit --quiet --message=first");
        git("tag --annotate --message=t v5.0.0");
        let open = || Project::at(dir.path().to_owned(), dir.path().join("target")).unwrap();
        assert_eq!(open().commit_of_tag("v5.0.0").unwrap(), open().commit);
        assert_eq!(open().version, "1.2.3");
        let error = open().commit_of_tag("v5.0.1").unwrap_err().to_string();
        assert!(error.ends_with("has no tag v5.0.1: fetch it"), "{error}");
        let file = |commit: &str| open().file_at(commit, "rust-toolchain.toml");
        let committed = file(&open().commit).unwrap();
        assert_eq!(committed, b"channel = \"1.0.0\"\n");
        let changed = "channel = \"2.0.0\"\n";
        fs::write(dir.path().join("rust-toolchain.toml"), changed).unwrap();
        assert!(open().is_dirty());
        assert_eq!(file(&open().commit).unwrap(), changed.as_bytes());
        let clean = open().commit.trim_end_matches("-dirty").to_owned();
        assert_eq!(file(&clean).unwrap(), committed);
        let error = file(&"0".repeat(40)).unwrap_err().to_string();
        assert!(
            error.ends_with("of which the release is: fetch it"),
            "{error}"
        );
    }

    #[test]
    fn key_of_a_release_covers_every_shipped_crate() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let all = [PROGRAMS, PACKING].concat();
        let crates = |dirs: &[&str]| -> Vec<String> {
            let crates = dirs
                .iter()
                .filter(|dir| root.join(dir).join("Cargo.toml").exists());
            crates.flat_map(|dir| dependencies(root, dir)).collect()
        };
        for (package, program) in programs::CARGO_RUNS.iter().flat_map(|run| run.programs) {
            assert!(PROGRAMS.contains(package), "that of {program} is missing");
        }
        for (known, needed) in [(PROGRAMS, crates(PROGRAMS)), (&all[..], crates(PACKING))] {
            assert!(needed.contains(&"archive".to_owned()), "{needed:?}");
            for name in needed {
                assert!(known.contains(&name.as_str()), "{name} is missing");
            }
        }
    }
}
