//! RKE2 itself, built of its sources and K3s' where `MULTUS_K3S` has both. Its own images cannot be had on every machine: what it starts as
//! static pods and unpacks as its runtime is made of the suite's Kubernetes and containerd, of the machine's etcd and runc.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{find, image::Image, k3s, published_charts};
use crate::{sh, test_env, test_env::TestEnv};

/// Sources of RKE2 and of K3s, and the image of helm-controller's jobs.
const PARTS: [&str; 3] = [
    "rke2-src.tar.zst",
    "k3s-src.tar.zst",
    "klipper-helm.tar.zst",
];
/// The versions that its programs say; images have the same with a dash for a tag.
pub(crate) const VERSIONS: [&str; 2] = ["v1.36.3+rke2r1", "v1.36.4+rke2r1"];
pub(super) const KLIPPER_HELM: &str = "rancher/klipper-helm:v0.13.3-build20260727";
/// The manifest of the chart of Multus in the runtime's image.
const MANIFEST: &str = "rke2-multus.yaml";

/// The files of a release.
pub(crate) struct Rke2 {
    /// The script by which people install it.
    pub(crate) installer: PathBuf,
    /// The directory from which the script installs without a network.
    pub(crate) artifacts: PathBuf,
    /// The same of the next version.
    pub(crate) next: PathBuf,
    /// Archives that its agents import.
    pub(crate) images: Vec<PathBuf>,
}

impl Rke2 {
    /// Makes a release of the parts in a directory, once; `install` builds the program.
    pub(crate) fn find(env: &TestEnv, dir: Option<&Path>, install: bool) -> anyhow::Result<Self> {
        let parts = k3s::directory(dir)?;
        let missing = PARTS.iter().find(|part| !parts.join(part).is_file());
        ensure!(
            missing.is_none(),
            "{} has no {}: it has to have {}",
            parts.display(),
            missing.unwrap_or(&""),
            PARTS.join(", ")
        );
        let made = build(&parts, install)?;
        let images = made.join("images");
        let mut all = vec![images.join("klipper-helm.tar")];
        all.extend(make_images(env)?);
        Ok(Self {
            installer: made.join("install.sh"),
            artifacts: made.join(VERSIONS[0]),
            next: made.join(VERSIONS[1]),
            images: all,
        })
    }
}

/// Builds the program and packs it as a release; returns the directory.
fn build(parts: &Path, install: bool) -> anyhow::Result<PathBuf> {
    let what = ("rke2-versions", "RKE2's programs");
    k3s::made_of(what, (parts, &PARTS), install, |made| build_in(parts, made))
}

fn build_in(parts: &Path, made: &Path) -> anyhow::Result<()> {
    let [rke2, k3s] = ["src", "k3s"].map(|name| made.join(name));
    for (archive, directory) in [(PARTS[0], &rke2), (PARTS[1], &k3s)] {
        fs::create_dir_all(directory)?;
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--zstd", "--directory"]);
        sh::run(tar.arg(directory).arg("--file").arg(parts.join(archive)))?;
    }
    let bundle = made.join("bundle");
    sh::run(
        Command::new("cp")
            .arg("-r")
            .arg(rke2.join("bundle"))
            .arg(&bundle),
    )?;
    let replace = format!("-replace=github.com/k3s-io/k3s={}", k3s.display());
    let mut edit = Command::new("go");
    sh::run(edit.current_dir(&rke2).args(["mod", "edit", &replace]))?;
    for version in VERSIONS {
        program(&rke2, version, &bundle.join("bin/rke2"))?;
        pack(&bundle, &made.join(version))?;
    }
    let images = made.join("images");
    fs::create_dir(&images)?;
    let mut zstd = Command::new("zstd");
    zstd.args(["--decompress", "--quiet", "-o"]);
    sh::run(zstd.args([images.join("klipper-helm.tar"), parts.join(PARTS[2])]))?;
    fs::copy(rke2.join("install.sh"), made.join("install.sh"))?;
    for directory in [rke2, k3s, bundle] {
        fs::remove_dir_all(directory)?;
    }
    Ok(())
}

/// Makes the files that the script downloads otherwise: the bundle, and the list of sums.
fn pack(bundle: &Path, artifacts: &Path) -> anyhow::Result<()> {
    fs::create_dir(artifacts)?;
    let name = format!("rke2.linux-{}.tar.gz", test_env::arch());
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--file"]);
    sh::run(
        tar.arg(artifacts.join(&name))
            .arg("--directory")
            .arg(bundle)
            .arg("."),
    )?;
    let sum = sh::run(Command::new("sha256sum").current_dir(artifacts).arg(&name))?;
    let list = format!("sha256sum-{}.txt", test_env::arch());
    Ok(fs::write(artifacts.join(list), sum)?)
}

/// Builds the program as RKE2's own script does, with the names of images that the suite makes.
fn program(sources: &Path, version: &str, out: &Path) -> anyhow::Result<()> {
    let set = [
        (
            "github.com/k3s-io/k3s/pkg/version.Program",
            "rke2".to_owned(),
        ),
        (
            "github.com/k3s-io/k3s/pkg/version.ProgramUpper",
            "RKE2".to_owned(),
        ),
        (
            "github.com/k3s-io/k3s/pkg/version.Version",
            version.to_owned(),
        ),
        (
            "github.com/k3s-io/k3s/pkg/version.GitCommit",
            "e2e".to_owned(),
        ),
        (
            "github.com/k3s-io/helm-controller/pkg/controllers/chart.DefaultJobImage",
            KLIPPER_HELM.to_owned(),
        ),
        (
            "github.com/rancher/rke2/pkg/images.DefaultRegistry",
            "docker.io".to_owned(),
        ),
        (
            "github.com/rancher/rke2/pkg/images.DefaultEtcdImage",
            reference("hardened-etcd", version),
        ),
        (
            "github.com/rancher/rke2/pkg/images.DefaultKubernetesImage",
            reference("hardened-kubernetes", version),
        ),
        (
            "github.com/rancher/rke2/pkg/images.DefaultRuntimeImage",
            reference("rke2-runtime", version),
        ),
    ];
    let set = set.map(|(name, value)| format!("-X {name}={value}"));
    let linker_flags = format!("-extldflags -static {}", set.join(" "));
    let mut go = super::go(&["build", "-mod=mod"], &linker_flags);
    go.current_dir(sources)
        .env("CGO_ENABLED", "1")
        // Go does not ask the public database of sums about these forks.
        .env("GONOSUMDB", "github.com/k3s-io/*,github.com/rancher/*")
        .arg("-tags=netgo,osusergo,no_stage,static_build,sqlite_omit_load_extension,no_embedded_executor,no_cri_dockerd")
        .arg("-o")
        .arg(out)
        .arg(".");
    sh::run(&mut go).context("cannot build RKE2's program")?;
    Ok(fs::set_permissions(out, fs::Permissions::from_mode(0o755))?)
}

/// Returns the name of an image of RKE2's.
fn reference(name: &str, version: &str) -> String {
    format!("rancher/{name}:{}", version.replace('+', "-"))
}

/// Makes the images of the control plane and of the runtime.
fn make_images(env: &TestEnv) -> anyhow::Result<Vec<PathBuf>> {
    let kubernetes = [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
    ];
    let mut control_plane: Vec<_> = in_bin(kubernetes.map(|name| env.bin.join(name)));
    // The rules of kube-proxy: one program with many names.
    let iptables = machine("iptables")?;
    for name in ["iptables", "ip6tables"] {
        for end in ["", "-save", "-restore"] {
            control_plane.push((iptables.clone(), format!("/usr/bin/{name}{end}")));
        }
    }
    control_plane.extend(libraries(&iptables)?);
    let extensions = iptables_extensions()?;
    control_plane.extend(same_place(extensions));
    let etcd = machine("etcd")?;
    let mut etcd_files = in_bin([etcd.clone()]);
    etcd_files.extend(libraries(&etcd)?);
    let manifest = env.dir.join(MANIFEST);
    fs::write(&manifest, brought_chart()?.to_string())?;
    let programs = [
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "kubectl",
        "kubelet",
    ];
    let mut runtime = in_bin(programs.map(|name| env.bin.join(name)));
    runtime.extend(in_bin([machine("runc")?]));
    runtime.push((manifest, format!("/charts/{MANIFEST}")));
    let images = [
        ("hardened-kubernetes", control_plane),
        ("hardened-etcd", etcd_files),
        ("rke2-runtime", runtime),
    ];
    let archives = images.iter().map(|(name, programs)| {
        let programs: Vec<_> = programs
            .iter()
            .map(|(file, place)| (file.clone(), place.as_str()))
            .collect();
        let image = Image {
            name,
            references: &VERSIONS.map(|version| format!("docker.io/{}", reference(name, version))),
            programs: &programs,
            entrypoint: &["/bin/sh"],
            user: "",
        };
        image.archive(env)
    });
    archives.collect()
}

/// Returns the chart of Multus as RKE2 carried it until its CRD became one of its own; RKE2 installs it when `cni` lists multus.
fn brought_chart() -> anyhow::Result<Value> {
    let chart = fs::read(published_charts::archive(published_charts::OLD)?)?;
    Ok(json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
        "metadata": {
            "name": "rke2-multus", "namespace": "kube-system",
            "annotations": {"rke2.cattle.io/inject-cluster-config": "true"},
        },
        "spec": {"bootstrap": true, "chartContent": STANDARD.encode(chart)},
    }))
}

/// Gives programs their places in an image, which are those of the runtime's image, too.
fn in_bin(programs: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, String)> {
    let place = |program: &PathBuf| {
        let name = program.file_name().unwrap_or_default();
        format!("/bin/{}", name.display())
    };
    let programs = programs.into_iter();
    programs
        .map(|program| (program.clone(), place(&program)))
        .collect()
}

/// Returns a program of the machine, by its own name.
fn machine(name: &str) -> anyhow::Result<PathBuf> {
    find(name).with_context(|| format!("there is no {name}"))
}

/// Returns the libraries of a program with their places.
fn libraries(program: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let text = sh::run(Command::new("ldd").arg(program))?;
    let words = text.split_whitespace();
    let paths: BTreeSet<PathBuf> = words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    Ok(same_place(paths))
}

/// Returns the extensions that iptables loads.
fn iptables_extensions() -> anyhow::Result<Vec<PathBuf>> {
    let directory = format!("/usr/lib/{}-linux-gnu/xtables", std::env::consts::ARCH);
    let entries = fs::read_dir(&directory).context(directory)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn same_place(files: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, String)> {
    let files = files.into_iter();
    let placed = files.map(|file| {
        let place = file.display().to_string();
        (file, place)
    });
    placed.collect()
}
