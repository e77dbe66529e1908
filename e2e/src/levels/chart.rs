//! Level `chart`: real Helm on the packed charts, a real Go toolchain on the bindata.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use crate::{
    report::{Ended, Report},
    sh,
    tools::{Module, Needs},
    workplace::{Workplace, sha256},
};

pub(crate) const NEEDS: Needs = Needs {
    debian: &[],
    modules: &[Module::Helm],
};

const CHARTS: [&str; 4] = [
    "rke2-multus",
    "rke2-multus-crd",
    "k3s-multus",
    "k3s-multus-crd",
];
/// Values that are refused, and a word of the cure.
const REFUSED: &[(&str, &str)] = &[
    ("thickPlugin.enabled=false", "thin mode"),
    ("rke2-whereabouts.enabled=true", "whereabouts"),
    ("dynamicNetworksController.enabled=true", "set it to false"),
    ("manifests.dhcpDaemonSet=true", "set it to false"),
    (
        "image.repository=rancher/hardened-multus-cni",
        "image.repository",
    ),
    (
        "config.daemon_conf.perNodeCertificate.enabled=true",
        "move it to perNodeCertificate",
    ),
    ("imge.tag=v1", "imge"),
    ("config.cni_conf.binDri=/opt", "binDri"),
    ("pod.resources.enabled=perhaps", "enabled"),
];
/// A Go program that reads what a distro would compile in.
const CONSUMER: &str = include_str!("../../go/main.go.txt");

pub(crate) fn run(work: &Workplace, report: &mut Report) -> Result<(), Ended> {
    for name in CHARTS {
        report.check(&format!("helm lint {name}"), || {
            let words = helm(work, &["lint", "--strict"], &work.chart(name)?)?;
            ensure!(!words.contains("[WARNING]"), "{words}");
            Ok(())
        })?;
    }
    report.check("helm template: both names render the same objects", || {
        same_objects(work)
    })?;
    report.check("what is not there is refused with its cure", || {
        refused(work)
    })?;
    report.check("values of the published chart are accepted", || {
        published(work)
    })?;
    report.check("certificates bring an approver, and take rights", || {
        certificates(work)
    })?;
    report.check("helm reads the index, and its digests hold", || index(work))?;
    report.check(
        "a Go program finds the packed charts in bindata and embed tree",
        || consumer(work),
    )
}

fn helm(work: &Workplace, words: &[&str], chart: &Path) -> anyhow::Result<String> {
    sh::run(Command::new(work.bin.join("helm")).args(words).arg(chart))
}

/// Kinds and names of what a chart renders to, and the text itself.
fn rendered(work: &Workplace, name: &str, more: &[&str]) -> anyhow::Result<String> {
    let words = [
        &[
            "template",
            name,
            "--namespace=kube-system",
            "--include-crds",
        ],
        more,
    ]
    .concat();
    helm(work, &words, &work.chart(name)?)
}

fn same_objects(work: &Workplace) -> anyhow::Result<()> {
    let kinds = |text: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix("kind: "));
        lines.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    for (end, expected) in [
        (
            "",
            "ClusterRole ClusterRoleBinding ConfigMap DaemonSet ServiceAccount",
        ),
        ("-crd", "CustomResourceDefinition"),
    ] {
        let rke2 = rendered(work, &format!("rke2-multus{end}"), &[])?;
        let k3s = rendered(work, &format!("k3s-multus{end}"), &[])?;
        ensure!(
            rke2.replace("rke2-multus", "k3s-multus") == k3s,
            "the charts differ in more than their name"
        );
        let found: Vec<_> = kinds(&rke2).into_iter().collect();
        let expected: Vec<_> = expected.split(' ').collect();
        for kind in &expected {
            ensure!(
                found.iter().any(|one| one == kind),
                "no {kind} among {found:?}"
            );
        }
    }
    let text = rendered(
        work,
        "rke2-multus",
        &["--set=global.systemDefaultRegistry=mirror.example"],
    )?;
    let image = format!("mirror.example/multusrs/multus:v{}", work.version()?);
    ensure!(
        text.contains(&image),
        "the registry is not put before the image"
    );
    Ok(())
}

fn refused(work: &Workplace) -> anyhow::Result<()> {
    for (value, cure) in REFUSED {
        for name in ["rke2-multus", "k3s-multus"] {
            match rendered(work, name, &[&format!("--set={value}")]) {
                Ok(_) => bail!("{name} accepts {value}"),
                Err(error) => ensure!(error.to_string().contains(cure), "{value}: {error:#}"),
            }
        }
    }
    Ok(())
}

/// Keys that published values files have, with harmless values.
fn published(work: &Workplace) -> anyhow::Result<()> {
    let text = rendered(
        work,
        "rke2-multus",
        &[
            "--set=config.cni_conf.confDir=/host/etc/cni/net.d",
            "--set=config.cni_conf.binDir=/opt/cni/bin",
            "--set=config.daemon_conf.logLevel=debug",
            "--set=global.clusterCIDR=10.42.0.0/16",
            "--set=pod.resources.enabled=true",
        ],
    )?;
    ensure!(
        text.contains("/opt/cni/bin"),
        "binDir has no effect: {text}"
    );
    ensure!(
        text.contains("limits"),
        "pod.resources has no effect: {text}"
    );
    Ok(())
}

/// Off by default; the service account keeps its rights until it is told to lose them.
fn certificates(work: &Workplace) -> anyhow::Result<()> {
    let (enabled, exclusive) = (
        "--set=perNodeCertificate.enabled=true",
        "--set=perNodeCertificate.exclusive=true",
    );
    for (values, approvers, groups, accounts) in [
        (&[][..], 0, 0, 2),
        (&[enabled], 1, 3, 4),
        (&[enabled, exclusive], 1, 3, 2),
        (
            &[enabled, "--set=perNodeCertificate.bootstrapKubeconfig=/k"],
            1,
            3,
            3,
        ),
        (
            &[enabled, "--set=perNodeCertificate.approver.enabled=false"],
            0,
            3,
            3,
        ),
    ] {
        let text = rendered(work, "rke2-multus", values)?;
        let count = |line: &str| text.lines().filter(|one| one.trim_end() == line).count();
        let found = (
            count("kind: Deployment"),
            count("  name: system:multus"),
            count("- kind: ServiceAccount"),
        );
        ensure!(
            found == (approvers, groups, accounts),
            "{values:?} give {found:?} Deployments, groups and accounts"
        );
    }
    Ok(())
}

/// Each chart is listed once, with the digest of its file.
fn index(work: &Workplace) -> anyhow::Result<()> {
    let index = String::from_utf8(work.read("charts/index.yaml")?)?;
    for name in CHARTS {
        let path = work.chart(name)?;
        let digest = sha256(&fs::read(&path)?);
        ensure!(
            index.contains(&digest),
            "{name}: the index does not have digest {digest}"
        );
        let shown = helm(work, &["show", "chart"], &path)?;
        ensure!(shown.contains(&format!("name: {name}\n")), "{shown}");
    }
    Ok(())
}

fn consumer(work: &Workplace) -> anyhow::Result<()> {
    let dir = work.dir.join("consumer");
    let bindata = work.dist.join("bindata");
    for package in ["static", "deploy"] {
        let name = "zz_generated_bindata.go";
        fs::create_dir_all(dir.join(package))?;
        fs::copy(
            bindata.join("go").join(package).join(name),
            dir.join(package).join(name),
        )?;
    }
    sh::run(
        Command::new("cp")
            .arg("-R")
            .arg(bindata.join("embed"))
            .arg(dir.join("embed")),
    )?;
    fs::write(
        dir.join("go.mod"),
        "module e2e.invalid/bindata\n\ngo 1.21\n",
    )?;
    fs::write(dir.join("main.go"), CONSUMER)?;
    let go = |words: &[&str]| {
        let mut command = Command::new("go");
        sh::run(
            command
                .current_dir(&dir)
                .env("GOFLAGS", "-buildvcs=false")
                .args(words),
        )
    };
    let unformatted = sh::run(Command::new("gofmt").current_dir(&dir).args(["-l", "."]))?;
    ensure!(unformatted.is_empty(), "gofmt would change {unformatted}");
    go(&["vet", "./..."])?;
    let mut found = BTreeMap::<String, BTreeMap<String, String>>::new();
    for line in go(&["run", "."])?.lines() {
        let [place, name, digest] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("the program printed {line}");
        };
        found
            .entry(place.to_owned())
            .or_default()
            .insert(name.to_owned(), digest.to_owned());
    }
    let version = work.version()?;
    let charts = CHARTS
        .iter()
        .map(|name| {
            Ok((
                format!("charts/{name}-{version}.tgz"),
                sha256(&fs::read(work.chart(name)?)?),
            ))
        })
        .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    let manifest = BTreeMap::from([(
        "multus.yaml".to_owned(),
        sha256(&work.read("manifests/k3s/multus.yaml")?),
    )]);
    let below = |prefix: &str, files: &BTreeMap<String, String>| {
        let files = files.iter();
        files
            .map(|(name, digest)| (format!("{prefix}{name}"), digest.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let mut embedded = below("embed/static/", &charts);
    embedded.extend(below("embed/deploy/", &manifest));
    for (place, expected) in [
        ("static", charts.clone()),
        ("restored", charts),
        ("deploy", manifest),
        ("embed", embedded),
    ] {
        let found = found.get(place).context("the program printed too little")?;
        ensure!(
            *found == expected,
            "{place}: found {found:?}, packed are {expected:?}"
        );
    }
    Ok(())
}
