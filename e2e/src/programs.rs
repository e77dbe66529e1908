//! The real programs that suites run: Debian packages, and Go modules pinned in `e2e/tools`, which are built again when a pin changes.

pub(crate) mod emulation;
pub(crate) mod image;
pub(crate) mod k3s;
pub(crate) mod old_kernel;
pub(crate) mod published_charts;
pub(crate) mod rke2;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum as _;
use serde_json::Value;

use crate::{
    options::{BenchOptions, Suite},
    report::say,
    sh, test_env,
};

/// A Go module of `e2e/tools`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Module {
    /// The program with which charts repositories of K3s and RKE2 make charts of packages.
    Containerd,
    Cosign,
    /// A program of ours with Kubernetes' libraries.
    DraDriver,
    /// A program of ours that runs flannel as K3s' agent does.
    Flanneld,
    /// The Linux that guests start, a file of a module.
    GuestKernel,
    Helm,
    Kubernetes,
    /// virt-api and virt-controller, and a program of ours that prints what their installer has in it.
    Kubevirt,
    /// A program of ours with the libraries by which the agents of K3s and RKE2 read images.
    MirrorReader,
    /// Upstream Multus, which clusters move over from.
    Multus,
    NodeFeatureDiscovery,
    Oras,
    Plugins,
    /// A program of ours with the libraries by which scanners read bills of materials.
    SbomReader,
    Tailscale,
    /// A program of ours with the control server of the VPN's own tests.
    VpnControl,
    /// The IPAM plugin at whose pools our daemons are guests.
    Whereabouts,
    /// WireGuard in a program.
    Wireguard,
}

/// The programs that a suite runs.
pub(crate) struct Needs {
    /// Programs in the PATH that Debian has, between spaces.
    pub(crate) debian: &'static str,
    pub(crate) modules: &'static [Module],
}

/// Programs whose Debian package has another name.
const PACKAGES: &[(&str, &str)] = &[
    ("busybox", "busybox-static"),
    ("dhcp", "containernetworking-plugins"),
    ("dnsmasq", "dnsmasq-base"),
    ("etcd", "etcd-server"),
    ("htpasswd", "apache2-utils"),
    ("ip", "iproute2"),
    ("macvlan", "containernetworking-plugins"),
    ("nft", "nftables"),
    ("perl", "perl-base"),
    ("ping", "iputils-ping"),
    ("qemu-aarch64-static", "qemu-user-static"),
    ("qemu-arm-static", "qemu-user-static"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("sysctl", "procps"),
    ("systemctl", "systemd"),
    ("unshare", "util-linux"),
    ("wg", "wireguard-tools"),
];

/// Returns the Debian package of a program.
fn package(program: &str) -> &str {
    let named = PACKAGES.iter().find(|(name, _)| *name == program);
    named.map_or(program, |(_, package)| package)
}

impl Module {
    /// Returns its directory in `e2e/tools`.
    fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Cosign => "cosign",
            Self::DraDriver => "dra-driver",
            Self::Flanneld => "flanneld",
            Self::GuestKernel => "guest-kernel",
            Self::Helm => "helm",
            Self::Kubernetes => "kubernetes",
            Self::Kubevirt => "kubevirt",
            Self::MirrorReader => "mirror-reader",
            Self::Multus => "multus",
            Self::NodeFeatureDiscovery => "node-feature-discovery",
            Self::Oras => "oras",
            Self::Plugins => "plugins",
            Self::SbomReader => "sbom-reader",
            Self::Tailscale => "tailscale",
            Self::VpnControl => "vpn-control",
            Self::Whereabouts => "whereabouts",
            Self::Wireguard => "wireguard",
        }
    }

    /// Returns the directory of its built programs.
    fn output_directory(self) -> &'static str {
        match self {
            Self::Plugins => "cni",
            Self::Multus => "multus",
            // The program has the name of its package, `cmd`.
            Self::Whereabouts => "whereabouts",
            // One of its programs has the name of its package, too.
            Self::Kubevirt => "kubevirt",
            _ => "bin",
        }
    }

    /// Returns the flag with the build tags that this module needs.
    fn tags(self) -> Option<&'static str> {
        (self == Self::Containerd).then_some("-tags=no_btrfs")
    }

    /// Returns the further flags of the linker that this module needs.
    fn linker_flags(self, module: &str) -> anyhow::Result<String> {
        if self != Self::Kubernetes {
            return Ok(String::new());
        }
        // kubelet and API server compare their versions; a build without this flag has version 0.0.0.
        let version = pinned(module, "k8s.io/kubernetes")?;
        let minor = version
            .split('.')
            .nth(1)
            .context("a version has a minor part")?;
        let package = "k8s.io/component-base/version";
        Ok(format!(
            "-X {package}.gitVersion={version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}"
        ))
    }
}

/// Returns a command of Go that builds without debugging information. All programs have the same flags, so that Go compiles a package that
/// several of them use once.
fn go(words: &[&str], linker_flags: &str) -> Command {
    let mut go = Command::new("go");
    go.args(words)
        .args(["-buildvcs=false", "-gcflags=all=-dwarf=false"])
        .arg(format!("-ldflags=-s -w {linker_flags}"));
    go
}

/// Fails when a program is missing; with `install`, installs or builds it first.
pub(crate) fn ensure(needs: &Needs, install: bool) -> anyhow::Result<()> {
    packages(needs, install)?;
    let home = test_env::home()?;
    for module in needs.modules {
        build(*module, &home.join("tools"), install)?;
    }
    Ok(())
}

fn packages(needs: &Needs, install: bool) -> anyhow::Result<()> {
    let missing = || {
        let absent = needs.debian.split(' ').filter(|name| find(name).is_none());
        absent.map(package).collect::<BTreeSet<_>>()
    };
    let lacking = missing();
    if lacking.is_empty() {
        return Ok(());
    }
    let list = lacking.into_iter().collect::<Vec<_>>();
    if !install {
        bail!(
            "programs are missing; get them with --install or with: apt-get install {}",
            list.join(" ")
        );
    }
    say(&format!("installing {}", list.join(" ")));
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("--quiet=2").args(args);
        sh::run(command.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], &list[..]].concat())?;
    let still = missing();
    ensure!(
        still.is_empty(),
        "still missing after installing: {}",
        still.into_iter().collect::<Vec<_>>().join(" ")
    );
    Ok(())
}

/// Finds a program in the PATH, in Debian's `sbin` directories or among its CNI plugins.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path
        .split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/lib/cni"]);
    dirs.map(|dir| Path::new(dir).join(program))
        .find(|path| path.is_file())
}

/// The first argument of this program when it only builds what suites need, whose names follow.
pub(crate) const BUILD: &str = "build-programs";

/// Builds the programs of these suites. Another run that needs one of them waits for it.
pub(crate) fn build_for(suites: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let home = test_env::home()?;
    for name in suites {
        let name = name.to_string_lossy();
        let suite = Suite::from_str(&name, false).map_err(anyhow::Error::msg)?;
        for module in suite.needs(&BenchOptions::default()).modules {
            build(*module, &home.join("tools"), true)?;
        }
    }
    Ok(())
}

fn build(module: Module, tools: &Path, install: bool) -> anyhow::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tools")
        .join(module.name());
    let read = |name: &str| {
        let path = source.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let pins = read("go.mod")?;
    // A module builds the packages of a list, a program of ours, or both.
    let [list, program] = ["tools.go", "main.go"].map(|name| read(name).unwrap_or_default());
    let mut go = go(&["build", "-mod=readonly"], &module.linker_flags(&pins)?);
    go.args(module.tags());
    let stamp = format!("{pins}\n{list}{program}\n{go:?}");
    let stamp_file = tools.join(format!("{}.stamp", module.name()));
    let out = tools.join(module.output_directory());
    let is_built = || fs::read_to_string(&stamp_file).is_ok_and(|made| made == stamp);
    if is_built() {
        return Ok(());
    }
    ensure!(
        install,
        "the programs of e2e/tools/{} are not built; --install builds them, with Go",
        module.name()
    );
    ensure!(
        find("go").is_some(),
        "Go is missing: install the release that e2e/tools/{}/go.mod names, or a newer one",
        module.name()
    );
    fs::create_dir_all(&out)?;
    let lock = File::create(tools.join(format!("{}.lock", module.name())))?;
    lock.lock()?;
    if is_built() {
        return Ok(());
    }
    say(&format!(
        "building {} (minutes the first time)",
        module.name()
    ));
    go.current_dir(&source)
        .env("CGO_ENABLED", "0")
        .arg("-o")
        .arg(format!("{}/", out.display()))
        .args(packages_of(&list))
        .args((!program.is_empty()).then_some("."));
    sh::run(&mut go).with_context(|| format!("cannot build {}", module.name()))?;
    fs::write(stamp_file, stamp)?;
    Ok(())
}

/// Returns the directory of a module's requirement in Go's module cache.
pub(crate) fn directory_of(module: Module, requirement: &str) -> anyhow::Result<PathBuf> {
    let pins = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tools")
        .join(module.name());
    let mut go = Command::new("go");
    go.current_dir(pins)
        .args(["mod", "download", "-json", requirement]);
    let answer: Value = serde_json::from_str(&sh::run(&mut go)?)?;
    let directory = answer["Dir"].as_str();
    Ok(PathBuf::from(
        directory.context("Go names no directory of the module")?,
    ))
}

/// The tests of a module, built from a copy of it that is edited. Files in Go's module cache stay as they are.
pub(crate) struct EditedTests {
    /// The copy, which has its own `go.mod` and `go.sum`.
    pub(crate) source: PathBuf,
    /// The directory with a program `PACKAGE.test` for each package.
    pub(crate) programs: PathBuf,
}

impl EditedTests {
    /// Copies, edits and builds, unless the same was built before. `recipe` is what the editing depends on; `edit` changes the copy and
    /// returns the directories of the packages.
    pub(crate) fn build(
        name: &str,
        (module, requirement): (Module, &str),
        recipe: &str,
        edit: impl FnOnce(&Path) -> anyhow::Result<Vec<PathBuf>>,
    ) -> anyhow::Result<Self> {
        let home = test_env::home()?.join("tools").join(name);
        let tests = Self {
            source: home.join("source"),
            programs: home.join("programs"),
        };
        let stamp_file = home.join("stamp");
        let module = directory_of(module, requirement)?;
        let stamp = format!("{}\n{recipe}", module.display());
        if fs::read_to_string(&stamp_file).is_ok_and(|made| made == stamp) {
            return Ok(tests);
        }
        say(&format!("building {name} (minutes the first time)"));
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        fs::create_dir_all(&tests.programs)?;
        sh::run(Command::new("cp").arg("-r").args([&module, &tests.source]))?;
        sh::run(Command::new("chmod").args(["-R", "u+w"]).arg(&tests.source))?;
        let packages = edit(&tests.source)?;
        let mut go = go(&["test", "-c", "-vet=off"], "");
        go.current_dir(&tests.source)
            .env("CGO_ENABLED", "0")
            .arg("-o")
            .arg(format!("{}/", tests.programs.display()));
        for directory in packages {
            let package = directory.strip_prefix(&tests.source)?;
            go.arg(format!("./{}", package.display()));
        }
        sh::run(&mut go).with_context(|| format!("cannot build {name}"))?;
        fs::write(stamp_file, stamp)?;
        Ok(tests)
    }
}

/// Returns the packages that a `tools.go` imports.
pub(crate) fn packages_of(source: &str) -> Vec<&str> {
    let lines = source.lines();
    lines
        .filter_map(|line| line.trim().strip_prefix("_ \"")?.strip_suffix('"'))
        .collect()
}

/// Returns the version of a requirement in a `go.mod`.
fn pinned<'a>(module: &'a str, name: &str) -> anyhow::Result<&'a str> {
    module
        .lines()
        .map(|line| line.trim().trim_start_matches("require "))
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(|version| version.trim_end_matches(" // indirect"))
        .with_context(|| format!("go.mod does not require {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_package_of_their_name_or_of_the_table() {
        let found: Vec<_> = "ip openssl ping".split(' ').map(package).collect();
        assert_eq!(found, ["iproute2", "openssl", "iputils-ping"]);
    }

    #[test]
    fn packages_and_pins_are_parsed() {
        let list = "package tools\n\nimport (\n\t_ \"a.example/x\"\n\t_ \"a.example/y/cmd\"\n)\n";
        assert_eq!(packages_of(list), ["a.example/x", "a.example/y/cmd"]);
        let module = "module m\n\nrequire a.example/x v1.2.3\n\nrequire (\n\tb.example/y v0.1.0 // indirect\n)\n";
        assert_eq!(pinned(module, "a.example/x").unwrap(), "v1.2.3");
        assert_eq!(pinned(module, "b.example/y").unwrap(), "v0.1.0");
        assert!(pinned(module, "c").is_err());
    }

    fn go_mod(name: &str) -> String {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
        fs::read_to_string(tools.join(name).join("go.mod")).unwrap()
    }

    #[test]
    fn control_server_and_its_clients_have_the_same_release() {
        let [control, clients] = ["vpn-control", "tailscale"].map(go_mod);
        let version = |module| pinned(module, "tailscale.com").unwrap();
        assert_eq!(version(&control), version(&clients));
    }

    #[test]
    fn dra_driver_and_kubernetes_have_the_same_release() {
        let version = |module: &str, name| {
            let version = pinned(module, name).unwrap();
            version.split_once('.').unwrap().1.to_owned()
        };
        assert_eq!(
            version(&go_mod("dra-driver"), "k8s.io/dynamic-resource-allocation"),
            version(&go_mod("kubernetes"), "k8s.io/kubernetes")
        );
    }
}
