//! K3s itself: a release as its project publishes it, or the parts from which its last program is built here.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use super::{find, rke2::KLIPPER_HELM};
use crate::{report::say, sh, test_env};

/// The variable that names the directory, or the release, where the option is not given.
const VARIABLE: &str = "MULTUS_K3S";
/// What is in the directory, for errors.
const CONTENTS: &str = "k3s, k3s-next (another version), install.sh and k3s-airgap-images-ARCH.tar.zst of a release, or k3s-src.tar.zst, k3s-data.tar.zst and klipper-helm.tar.zst";
/// Sources of K3s, the archive that its outer program carries, and the image of its helm-controller's jobs.
const PARTS: [&str; 3] = [
    "k3s-src.tar.zst",
    "k3s-data.tar.zst",
    "klipper-helm.tar.zst",
];
/// The line of K3s' `go.mod` whose version is that of the release.
const KUBERNETES: &str = "k8s.io/kubernetes => github.com/k3s-io/kubernetes v";

/// The package of its inner program that names the image of the jobs.
const HELM_CONTROLLER: &str = "github.com/k3s-io/helm-controller/pkg/controllers/chart";

/// The files of a release.
pub(crate) struct K3s {
    pub(crate) program: PathBuf,
    /// Another build, which unpacks its programs into another directory.
    pub(crate) next: PathBuf,
    /// The script by which people install it.
    pub(crate) installer: PathBuf,
    /// Archives that its agents import.
    pub(crate) images: Vec<PathBuf>,
    /// The directory of the parts, of which another one can be built; a release has none.
    pub(crate) parts: Option<PathBuf>,
}

impl K3s {
    /// Finds K3s in this directory, or in the one that the environment names. Where the directory has parts, the program is built of
    /// them once, with `install`.
    pub(crate) fn find(dir: Option<&Path>, install: bool) -> anyhow::Result<Self> {
        let dir = directory(dir)?;
        if dir.join("k3s").is_file() {
            return Self::from_release(&dir);
        }
        let missing = PARTS.iter().find(|part| !dir.join(part).is_file());
        if let Some(part) = missing {
            bail!(
                "{} has neither k3s nor {part}: it has to have {CONTENTS}",
                dir.display()
            );
        }
        let mut built = Self::from_release(&build(&dir, install)?)?;
        built.parts = Some(dir);
        Ok(built)
    }

    /// Builds the same release in a new directory, as K3s' own scripts do, of sources that are changed first.
    pub(crate) fn build_changed(
        &self,
        dir: &Path,
        change: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let parts = self
            .parts
            .as_ref()
            .context("a release of K3s has no sources")?;
        let [source, archive, _] = PARTS.map(|part| parts.join(part));
        let (sources, data) = (dir.join("src"), dir.join("data"));
        unpack(&source, &sources)?;
        unpack(&archive, &data)?;
        change(&sources)?;
        let version = version_of(&sources)?;
        inner_program(&sources, &version, &data.join("bin/k3s"))?;
        // The outer program compares what it unpacks with this list.
        let sums =
            "find . -type f -not -name '.*' -exec sha256sum {} + | sed 's| \\./| |' >.sha256sums";
        sh::run(
            Command::new("sh")
                .current_dir(data.join("bin"))
                .args(["-c", sums]),
        )?;
        let archive = dir.join("data.tar.zst");
        sh::run(
            Command::new("tar")
                .args(["--create", "--zstd", "--owner=0", "--group=0", "--file"])
                .arg(&archive)
                .arg("--directory")
                .arg(&data)
                .args(["bin", "etc"]),
        )?;
        let built = dir.join("k3s");
        program(&sources, &archive, &version, &built)?;
        for directory in [sources, data] {
            fs::remove_dir_all(directory)?;
        }
        Ok(Self {
            program: built,
            next: self.program.clone(),
            installer: self.installer.clone(),
            images: self.images.clone(),
            parts: None,
        })
    }

    fn from_release(dir: &Path) -> anyhow::Result<Self> {
        let archive = format!("k3s-airgap-images-{}.tar", test_env::arch());
        let mut images = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&archive) {
                images.push(entry.path());
            }
        }
        let installer = dir.join("install.sh");
        ensure!(
            installer.is_file() && !images.is_empty(),
            "{} has no install.sh or no {archive}*: it has to have {CONTENTS}",
            dir.display()
        );
        Ok(Self {
            program: dir.join("k3s"),
            next: dir.join("k3s-next"),
            installer,
            images,
            parts: None,
        })
    }

    /// Returns the version that the program says.
    pub(crate) fn version(&self, dir: &Path) -> anyhow::Result<String> {
        // Downloads cannot be executed.
        let program = dir.join("k3s");
        fs::copy(&self.program, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let text = sh::run(Command::new(&program).arg("--version"))?;
        fs::remove_file(program)?;
        let version = text.split_whitespace().nth(2);
        version
            .map(ToOwned::to_owned)
            .with_context(|| format!("it says {text}"))
    }
}

/// Returns the directory that is named so, or by the environment; a release is in that of downloads.
pub(super) fn directory(dir: Option<&Path>) -> anyhow::Result<PathBuf> {
    let from_variable = std::env::var_os(VARIABLE).map(PathBuf::from);
    let mut dir = dir.map(Path::to_owned).or(from_variable).with_context(|| {
        format!(
            "no directory with K3s: name it, or a release of e2e/k3s, with --k3s or {VARIABLE}; it has {CONTENTS}"
        )
    })?;
    if !dir.is_dir() {
        let fetched = downloads()?.join(&dir);
        ensure!(
            fetched.is_dir(),
            "{} is neither a directory nor a release of K3s that was fetched: correct it, or fetch the release with `cargo xtask e2e k3s --install`",
            dir.display()
        );
        dir = fetched;
    }
    Ok(dir)
}

/// Returns the directory into which `cargo xtask` fetches releases of K3s.
fn downloads() -> anyhow::Result<PathBuf> {
    Ok(test_env::home()?.with_file_name("download").join("k3s"))
}

/// Makes a directory of the suite's tools of parts, unless it is made of the same ones already; returns it. `what` is named while it is made.
pub(super) fn made_of(
    (name, what): (&str, &str),
    (parts, names): (&Path, &[&str]),
    install: bool,
    fill: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let made = test_env::home()?.join("tools").join(name);
    let sums = sh::run(Command::new("sha256sum").current_dir(parts).args(names))?;
    let stamp_file = made.join("parts.sha256");
    if fs::read_to_string(&stamp_file).is_ok_and(|stamp| stamp == sums) {
        return Ok(made);
    }
    ensure!(
        install && find("go").is_some(),
        "{what} is not built of the parts in {}; --install builds it, with Go",
        parts.display()
    );
    say(&format!("building {what} (minutes the first time)"));
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    fs::create_dir_all(&made)?;
    fill(&made)?;
    fs::write(stamp_file, sums)?;
    Ok(made)
}

/// Makes the files of a release from parts; returns their directory.
fn build(parts: &Path, install: bool) -> anyhow::Result<PathBuf> {
    let what = ("k3s", "K3s' program");
    made_of(what, (parts, &PARTS), install, |made| build_in(parts, made))
}

fn build_in(parts: &Path, made: &Path) -> anyhow::Result<()> {
    let sources = made.join("src");
    let [source, data, image] = PARTS.map(|part| parts.join(part));
    unpack(&source, &sources)?;
    let version = version_of(&sources)?;
    program(&sources, &data, &version, &made.join("k3s"))?;
    // The same content in other bytes is another directory.
    let other = made.join("next.tar.zst");
    let pipe = "zstd --decompress --stdout --long=25 \"$1\" | zstd --quiet -3 --long=25 -o \"$2\"";
    let mut shell = Command::new("bash");
    shell.args(["-o", "errexit", "-o", "pipefail", "-c", pipe, "bash"]);
    sh::run(shell.arg(&data).arg(&other))?;
    program(&sources, &other, &version, &made.join("k3s-next"))?;
    fs::remove_file(other)?;
    fs::copy(sources.join("install.sh"), made.join("install.sh"))?;
    let archive = format!("k3s-airgap-images-{}.tar", test_env::arch());
    sh::run(
        Command::new("zstd")
            .args(["--decompress", "--force", "--quiet", "-o"])
            .args([made.join(archive), image]),
    )?;
    Ok(fs::remove_dir_all(sources)?)
}

/// Builds the outer program, which unpacks this archive into a directory that it calls by the archive's hash.
fn program(sources: &Path, archive: &Path, version: &str, out: &Path) -> anyhow::Result<()> {
    let embedded = sources.join("pkg/data/embed");
    if embedded.exists() {
        fs::remove_dir_all(&embedded)?;
    }
    fs::create_dir_all(&embedded)?;
    let hash = test_env::sha256(&fs::read(archive)?);
    fs::copy(archive, embedded.join(format!("{hash}.tar.zst")))?;
    let mut go = go_build(sources, "urfave_cli_no_docs", &version_flags(version));
    go.env("CGO_ENABLED", "0").arg("-o").arg(out);
    sh::run(go.arg("./cmd/k3s")).context("cannot build K3s' program")?;
    Ok(fs::set_permissions(out, fs::Permissions::from_mode(0o755))?)
}

/// Builds the program that the outer one unpacks, with everything that K3s is.
fn inner_program(sources: &Path, version: &str, out: &Path) -> anyhow::Result<()> {
    let mut copy = Command::new("cp");
    copy.current_dir(sources);
    sh::run(copy.args(["-R", "manifests/.", "pkg/deploy/embed"]))?;
    let set = [
        format!("k8s.io/client-go/pkg/version.gitVersion=v{version}"),
        format!("k8s.io/component-base/version.gitVersion=v{version}"),
        format!("{HELM_CONTROLLER}.DefaultJobImage={KLIPPER_HELM}"),
    ];
    let set = set.map(|value| format!("-X {value}")).join(" ");
    let flags = format!("{} {set}", version_flags(version));
    let tags =
        "ctrd,netcgo,osusergo,providerless,urfave_cli_no_docs,sqlite_omit_load_extension,apparmor";
    let mut go = go_build(sources, tags, &flags);
    go.env("CGO_ENABLED", "1").env(
        "CGO_CFLAGS",
        "-DSQLITE_ENABLE_DBSTAT_VTAB=1 -DSQLITE_USE_ALLOCA=1",
    );
    sh::run(go.arg("-o").arg(out).arg("./cmd/server"))
        .context("cannot build K3s' inner program")
        .map(drop)
}

/// Returns the flags of the linker that set K3s' version.
fn version_flags(version: &str) -> String {
    let package = "github.com/k3s-io/k3s/pkg/version";
    format!("-X {package}.Version=v{version} -X {package}.GitCommit=e2e")
}

fn go_build(sources: &Path, tags: &str, linker_flags: &str) -> Command {
    let mut go = super::go(&["build", "-mod=mod"], linker_flags);
    go.current_dir(sources)
        // Go does not ask the public database of sums about these forks.
        .env("GONOSUMDB", "github.com/k3s-io/*")
        .arg(format!("-tags={tags}"));
    go
}

/// Unpacks an archive into a new directory.
fn unpack(archive: &Path, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    // The archive of data needs a larger window than zstd takes by itself.
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--use-compress-program=zstd --long=27"]);
    tar.arg("--directory").arg(directory);
    sh::run(tar.arg("--file").arg(archive)).map(drop)
}

fn version_of(sources: &Path) -> anyhow::Result<String> {
    version(&fs::read_to_string(sources.join("go.mod"))?)
}

/// Returns the version of the K3s whose `go.mod` this is: that of its Kubernetes, with the suffix as build metadata.
fn version(module: &str) -> anyhow::Result<String> {
    let mut lines = module.lines();
    let version = lines.find_map(|line| line.trim().strip_prefix(KUBERNETES));
    let version = version.context("K3s' go.mod names no version of its Kubernetes")?;
    Ok(version.replacen('-', "+", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_its_kubernetes() {
        let module = "replace (\n\tk8s.io/api => github.com/k3s-io/kubernetes/staging/src/k8s.io/api v1.0.0-k3s1\n\tk8s.io/kubernetes => github.com/k3s-io/kubernetes v1.36.3-k3s1\n)\n";
        assert_eq!(version(module).unwrap(), "1.36.3+k3s1");
        assert!(version("module m\n").is_err());
    }

    #[test]
    fn a_directory_with_something_else_is_refused_with_what_it_has_to_have() {
        let error = K3s::find(Some(Path::new("/proc/self")), true)
            .err()
            .unwrap();
        let text = format!("{error:#}");
        assert!(text.contains("neither k3s nor k3s-src.tar.zst"), "{text}");
        let error = K3s::find(Some(Path::new("v0.0.0")), true).err().unwrap();
        assert!(error.to_string().contains("was fetched"), "{error}");
    }
}
