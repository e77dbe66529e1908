//! The bindata and the embed tree, as read by a Go program that has them compiled in.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, bail, ensure};

use super::CHARTS;
use crate::{
    sh,
    test_env::{TestEnv, sha256},
};

/// The source of the program.
const CONSUMER: &str = include_str!("../../../go/main.go.txt");

pub(super) fn consumer(env: &TestEnv) -> anyhow::Result<()> {
    let dir = env.dir.join("consumer");
    let bindata = env.dist.join("bindata");
    for package in ["static", "deploy"] {
        fs::create_dir_all(dir.join(package))?;
        for name in ["zz_generated_bindata.go", "no_stage.go"] {
            fs::copy(
                bindata.join("go").join(package).join(name),
                dir.join(package).join(name),
            )?;
        }
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
    let go = |args: &[&str]| {
        let mut command = Command::new("go");
        sh::run(
            command
                .current_dir(&dir)
                .env("GOFLAGS", "-buildvcs=false")
                .args(args),
        )
    };
    let unformatted = sh::run(Command::new("gofmt").current_dir(&dir).args(["-l", "."]))?;
    ensure!(unformatted.is_empty(), "gofmt would change {unformatted}");
    go(&["vet", "./..."])?;
    go(&["vet", "-tags=no_stage", "./..."])?;
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
    let version = env.version()?;
    let charts = CHARTS
        .iter()
        .filter(|name| name.starts_with("k3s-"))
        .map(|name| {
            Ok((
                format!("charts/{name}-{version}.tgz"),
                sha256(&fs::read(env.chart(name)?)?),
            ))
        })
        .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    let manifest = BTreeMap::from([(
        "multus.yaml".to_owned(),
        sha256(&env.read("manifests/k3s/multus.yaml")?),
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
        let found = found
            .get(place)
            .context("the program's output is incomplete")?;
        ensure!(
            *found == expected,
            "{place}: found are {found:?}, packed {expected:?}"
        );
    }
    Ok(())
}
