//! Pushing to a registry: a second push sends nothing, and other programs find images and charts there. Logins and refusals are in the tests of
//! `multus-airgap`, which has the same command.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
    stores::release_images,
};
use crate::{
    report::{Checked, Report},
    sh,
    suites::chart::CHARTS,
    test_env::{TestEnv, sha256},
};

pub(super) fn run(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    report.check(
        "a push sends images and charts, a second push nothing",
        || push(env, fixture),
    )?;
    // Skopeo and Rancher's scripts refuse a reference with both tag and digest, so they get the list without digests.
    report.check(
        "skopeo reads the list of tags, and finds the digests of the other list",
        || lists(env, fixture),
    )?;
    report.check(
        "Helm pulls the charts with the release's bytes, as artifacts that equal those that Helm pushes",
        || charts(env, fixture),
    )
}

fn push(env: &TestEnv, fixture: &AirgapFixture) -> anyhow::Result<()> {
    let push = |to: &str| {
        let args = ["airgap", "push", "--json", to, "--dist", text(&env.dist)?];
        let answer: Value = serde_json::from_str(&fixture.xtask(&args)?)?;
        answer["sent"].as_u64().with_context(|| answer.to_string())
    };
    let uploads = || {
        let [put, post] = ["PUT /v2/", "POST /v2/"].map(|verb| fixture.logged_requests(&[verb]));
        anyhow::Ok((put?, post?))
    };
    let sent = push(&format!("oci://{REGISTRY}"))?;
    ensure!(sent > 1_000_000, "{sent} bytes were sent");
    let first = uploads()?;
    ensure!(first.0 > 0, "the registry got no upload");
    let again = push(REGISTRY)?;
    ensure!(again == 0, "{again} bytes were sent again");
    ensure!(first == uploads()?, "the registry got another upload");
    Ok(())
}

fn lists(env: &TestEnv, fixture: &AirgapFixture) -> anyhow::Result<()> {
    let tags = fs::read_to_string(env.dist.join("airgap/multus-images.txt"))?;
    let digests = release_images(env)?;
    ensure!(
        tags.lines().count() == digests.len(),
        "the lists differ in length: {tags}"
    );
    for (line, reference) in tags.lines().zip(digests) {
        let (named, digest) = reference.split_once('@').context("a digest is named")?;
        ensure!(line == named, "the lists differ: {line} and {named}");
        let name = line.trim_start_matches("docker.io/");
        let (target, login) = (
            format!("docker://{REGISTRY}/{name}"),
            format!("{USER}:{PASSWORD}"),
        );
        let inspect = ["inspect", "--raw", "--tls-verify=false", "--creds"];
        let raw = fixture.skopeo(&[&inspect[..], &[&login, &target]].concat())?;
        let found = format!("sha256:{}", sha256(raw.as_bytes()));
        ensure!(found == digest, "{name} is {found}");
    }
    Ok(())
}

fn charts(env: &TestEnv, fixture: &AirgapFixture) -> anyhow::Result<()> {
    let logins = fixture.node.dir.join("helm-logins.json");
    let helm = |args: &[&str]| {
        let mut command = fixture.node.command(env.bin.join("helm"));
        command.arg("--registry-config").arg(&logins).args(args);
        sh::run(command.arg("--plain-http"))
    };
    let login = ["--username", USER, "--password", PASSWORD];
    helm(&[&["registry", "login", REGISTRY][..], &login].concat())?;
    let (version, directory) = (env.version()?, env.dir.join("charts"));
    fs::create_dir_all(&directory)?;
    let to = text(&directory)?;
    for name in CHARTS {
        let chart = env.chart(name)?;
        let from = format!("oci://{REGISTRY}/charts/{name}");
        helm(&["pull", &from, "--version", &version, "--destination", to])?;
        let pulled = fs::read(directory.join(format!("{name}-{version}.tgz")))?;
        ensure!(pulled == fs::read(&chart)?, "{name} has different bytes");
        helm(&["push", text(&chart)?, &format!("oci://{REGISTRY}/helm")])?;
        let manifest = |path: &str| -> anyhow::Result<Value> {
            let path = format!("/v2/{path}/{name}/manifests/{version}");
            let accept = "Accept: application/vnd.oci.image.manifest.v1+json";
            let text = fixture.curl(&[&path, "--header", accept])?;
            serde_json::from_str(&text).context(text)
        };
        let (ours, mut helms) = (manifest("charts")?, manifest("helm")?);
        // The only annotation with a time.
        let created = "org.opencontainers.image.created";
        let annotations = helms["annotations"].as_object_mut();
        let removed = annotations.and_then(|found| found.remove(created));
        ensure!(removed.is_some(), "helm no longer sets {created}: {helms}");
        for key in ["config", "layers", "annotations"] {
            let (ours, helms) = (&ours[key], &helms[key]);
            ensure!(ours == helms, "{name}: {key} is {ours}, helm's is {helms}");
        }
    }
    Ok(())
}
