//! The root directory of another Debian release, in which another user makes the release: nothing of this machine is in it but the kernel.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context as _, bail, ensure};
use xshell::{Shell, cmd};

use crate::{
    arch::{Arch, Facts, Std},
    build_environment, c_compiler,
    project::{Project, TRUSTED_KEY},
    ui,
};

/// Programs that make the root, with their packages.
const TOOLS: &[(&str, &str)] = &[
    ("debootstrap", "debootstrap"),
    ("git", "git"),
    ("unshare", "util-linux"),
];
/// Signs what is unpacked; a package too, since Ubuntu has it apart.
const KEYRING: (&str, &str) = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "debian-archive-keyring",
);
/// Packages besides the essential ones: the linker of build scripts, git for the checkout, and a locale.
const PACKAGES: &str = "ca-certificates,gcc,git,libc6-dev,locales";
/// The user who builds there, who is in no file of users.
const USER: &str = "4321:4321";

/// The paths in the root, which differ from those of any usual machine.
const HOME: &str = "/srv/another home";
const TARGET: &str = "/srv/elsewhere/built";
const ORIGIN: &str = "/srv/origin.git";
const RUSTUP: &str = "/opt/toolchains";
const CARGO: &str = "/opt/crates";
const MIRROR: &str = "/srv/mirror";
const OUT: &str = "/srv/elsewhere/dist";
const KEY: &str = "/srv/trusted key.pem";

/// Runs in the root as another user: `$1` is the commit, `$2` the architectures, `$3` the prefix of images.
const SCRIPT: &str = r#"set -e
umask 077
git clone --quiet /srv/origin.git /srv/elsewhere/checkout
cd /srv/elsewhere/checkout
git checkout --quiet --detach "$1"
cp -r /srv/mirror/. /srv/elsewhere/built/download
exec cargo xtask dist --arch "$2" --image-prefix "$3" --out /srv/elsewhere/dist"#;

/// Sets another name of the machine, and becomes another user: `$1` is the root, the rest the program.
const ENTER: &str =
    r#"hostname elsewhere; root=$1; shift; exec chroot --userspec=4321:4321 "$root" "$@""#;

/// A Debian release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suite(String);

impl FromStr for Suite {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let suite = text.strip_prefix("debian:").unwrap_or_default();
        let is_name = !suite.is_empty() && suite.bytes().all(|byte| byte.is_ascii_lowercase());
        ensure!(
            is_name,
            "`{text}` is not a root: write debian: and the name of a release, such as debian:trixie"
        );
        Ok(Self(suite.to_owned()))
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "debian:{}", self.0)
    }
}

/// Fails unless roots can be made here; with `install`, installs what is missing, as root on Debian.
pub(crate) fn ensure_tools(install: bool) -> anyhow::Result<()> {
    let shell = Shell::new()?;
    let is_root = cmd!(shell, "id -u").quiet().read()? == "0";
    ensure!(
        is_root,
        "only root can make the root directory of another system: use sudo, or leave out --root"
    );
    let missing = missing(&shell);
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !install {
        bail!("run `apt-get install --yes {packages}`, or add --install");
    }
    ui::note(&format!("installing packages {packages}"));
    let install = || {
        let missing = &missing;
        cmd!(
            shell,
            "apt-get install --yes --no-install-recommends --quiet=2 {missing...}"
        )
        .env("DEBIAN_FRONTEND", "noninteractive")
        .quiet()
        .ignore_stdout()
        .run()
    };
    if install().is_err() {
        cmd!(shell, "apt-get update --quiet=2")
            .quiet()
            .ignore_stdout()
            .run()
            .context("cannot read the lists of packages")?;
        install().with_context(|| format!("cannot install {packages}"))?;
    }
    Ok(())
}

/// Returns the packages of programs and keys that are not installed.
fn missing(shell: &Shell) -> Vec<&'static str> {
    let is_there = |program: &str| {
        cmd!(shell, "{program} --version")
            .quiet()
            .ignore_stdout()
            .ignore_stderr()
            .run()
            .is_ok()
    };
    let tools = TOOLS.iter().filter(|(program, _)| !is_there(program));
    let mut packages: Vec<_> = tools.map(|(_, package)| *package).collect();
    if !Path::new(KEYRING.0).exists() {
        packages.push(KEYRING.1);
    }
    packages
}

/// Makes the release of the present commit in a new root below `dir`, and returns the path of the release.
pub(crate) fn make(
    project: &Project,
    suite: &Suite,
    arches: &[Arch],
    dir: &Path,
) -> anyhow::Result<PathBuf> {
    let root = dir.join("root");
    ui::step(&format!("root of {suite}"), || {
        bootstrap(suite, &root)?;
        furnish(project, arches, &root)
    })?;
    let shell = project.shell()?;
    let arches: Vec<_> = arches.iter().map(|arch| arch.name()).collect();
    let (arches, commit) = (arches.join(","), &project.commit);
    let images = project.images.to_string();
    let mut variables: Vec<_> = [
        ("HOME", HOME),
        ("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("TZ", "Asia/Kathmandu"),
        ("CARGO_HOME", CARGO),
        ("CARGO_NET_OFFLINE", "true"),
        ("CARGO_TARGET_DIR", TARGET),
    ]
    .iter()
    .map(|(name, value)| format!("{name}={value}"))
    .collect();
    let toolchain = toolchain(&root)?;
    variables[1] = format!("PATH={toolchain}/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    if project.trusted_key.is_some() {
        variables.push(format!("{TRUSTED_KEY}={KEY}"));
    }
    // The limit on parallel work is the machine's and not the build's.
    if let Ok(jobs) = std::env::var("CARGO_BUILD_JOBS") {
        variables.push(format!("CARGO_BUILD_JOBS={jobs}"));
    }
    let proc = format!("--mount-proc={}/proc", root.display());
    ui::note(&format!("making the release in a root of {suite}"));
    cmd!(
        shell,
        "unshare --mount --pid --uts --fork --kill-child {proc} sh -c {ENTER} sh {root} env -i {variables...} sh -c {SCRIPT} sh {commit} {arches} {images}"
    )
    .quiet()
    .run()
    .with_context(|| format!("cannot make the release in a root of {suite}"))?;
    Ok(inside(&root, OUT))
}

/// Returns the path on this machine of a path in the root.
fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn bootstrap(suite: &Suite, root: &Path) -> anyhow::Result<()> {
    let (shell, name, keyring) = (Shell::new()?, &suite.0, KEYRING.0);
    let output = cmd!(
        shell,
        "debootstrap --variant=minbase --keyring={keyring} --include={PACKAGES} {name} {root}"
    )
    .quiet()
    .ignore_status()
    .output()
    .context("cannot run debootstrap")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last: Vec<_> = text.lines().rev().take(3).collect();
    ensure!(
        output.status.success(),
        "debootstrap cannot make a root of {suite}: {}",
        last.into_iter().rev().collect::<Vec<_>>().join("; ")
    );
    cmd!(
        shell,
        "chroot {root} localedef -i tr_TR -f UTF-8 tr_TR.UTF-8"
    )
    .quiet()
    .run()
    .context("cannot make a locale")
}

/// Puts into the root what a builder gets from elsewhere: the toolchain, the sources, and the files that locks name by digest.
fn furnish(project: &Project, arches: &[Arch], root: &Path) -> anyhow::Result<()> {
    let shell = project.shell()?;
    for dir in [HOME, "/srv/elsewhere", TARGET, RUSTUP, CARGO, MIRROR] {
        fs::create_dir_all(inside(root, dir))?;
    }
    let downloads = inside(root, TARGET).join("download");
    fs::create_dir_all(&downloads)?;
    let version = &project.toolchain;
    let mut targets = Vec::new();
    for arch in arches {
        let facts = Facts::of(*arch);
        if facts.std == Std::Component {
            targets.extend(["--target", facts.triple]);
        }
    }
    cmd!(
        shell,
        "rustup toolchain install {version} --no-self-update --profile minimal --component rust-src {targets...}"
    )
    .env("RUSTUP_HOME", inside(root, RUSTUP))
    .quiet()
    .ignore_stdout()
    .ignore_stderr()
    .run()
    .context("cannot install the toolchain into the root; get Rust with rustup from https://rustup.rs")?;
    let (origin, bare) = (&project.root, inside(root, ORIGIN));
    cmd!(
        shell,
        "git -c safe.directory=* clone --quiet --bare --no-hardlinks {origin} {bare}"
    )
    .quiet()
    .run()
    .context("cannot clone the checkout")?;
    let registry = build_environment::cargo_home()?.join("registry");
    let to = inside(root, CARGO).join("registry");
    fs::create_dir_all(&to)?;
    for part in ["cache", "index"] {
        let from = registry.join(part);
        cmd!(shell, "cp -r {from} {to}")
            .quiet()
            .run()
            .with_context(|| {
                format!(
                    "{} has no crates: run `cargo fetch --locked`",
                    from.display()
                )
            })?;
    }
    let item = c_compiler::pinned(project)?;
    let wheel = project.download_dir().join(&item.name);
    fs::copy(&wheel, inside(root, MIRROR).join(&item.name)).with_context(|| {
        format!(
            "cannot copy {}: run `cargo xtask dist` first",
            wheel.display()
        )
    })?;
    if let Some(key) = &project.trusted_key {
        fs::write(inside(root, KEY), &key.pem)?;
    }
    let (crates, srv) = (inside(root, CARGO), inside(root, "/srv"));
    cmd!(shell, "chown -R {USER} {crates} {srv}")
        .quiet()
        .run()?;
    Ok(())
}

/// Returns the path in the root of the toolchain's own programs, without rustup's.
fn toolchain(root: &Path) -> anyhow::Result<String> {
    let dir = inside(root, RUSTUP).join("toolchains");
    let context = || format!("cannot read {}", dir.display());
    let mut entries = fs::read_dir(&dir).with_context(context)?;
    let entry = entries.next().context("rustup installed no toolchain")?;
    let name = entry.with_context(context)?.file_name();
    Ok(format!("{RUSTUP}/toolchains/{}", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_a_release_of_debian() {
        let suite: Suite = "debian:trixie".parse().unwrap();
        assert_eq!(suite.to_string(), "debian:trixie");
        for text in [
            "trixie",
            "debian:",
            "debian:../x",
            "debian:--help",
            "fedora:42",
        ] {
            let error = text.parse::<Suite>().unwrap_err().to_string();
            assert!(error.contains("debian:trixie"), "{error}");
        }
    }

    #[test]
    fn paths_stay_in_the_root() {
        let root = Path::new("/tmp/root");
        assert_eq!(inside(root, OUT), Path::new("/tmp/root/srv/elsewhere/dist"));
        // The scripts name the same paths.
        for path in [ORIGIN, TARGET, MIRROR, OUT] {
            assert!(SCRIPT.contains(path), "{path}");
        }
        assert!(ENTER.contains(&format!("--userspec={USER} ")));
    }
}
