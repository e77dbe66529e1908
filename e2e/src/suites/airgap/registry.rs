//! Pushing to a registry: a second push sends nothing, and other programs find images and charts there.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
    stores::release_images,
};
use crate::{
    report::{CheckFailed, Report},
    sh,
    test_env::{TestEnv, arch},
};

const CHARTS: [&str; 6] = [
    "rke2-multus",
    "rke2-multus-crd",
    "k3s-multus",
    "k3s-multus-crd",
    "multus",
    "multus-crd",
];

/// Pushes; returns the number of sent bytes.
fn push(fixture: &AirgapFixture, args: &[&str]) -> anyhow::Result<u64> {
    let answer = fixture.xtask(&[&["airgap", "push", "--json"], args].concat())?;
    let answer: Value = serde_json::from_str(&answer)?;
    answer["sent"].as_u64().with_context(|| answer.to_string())
}

#[expect(
    clippy::too_many_lines,
    reason = "each check uses the result of the one before"
)]
pub(super) fn run(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    report.check("without a login the error says how to log in", || {
        let args = ["airgap", "push", REGISTRY, "--dist", text(&env.dist)?];
        let mut anonymous = fixture.xtask_command(&args, false);
        fixture.ensure_fails(&mut anonymous, "give --user and MULTUS_REGISTRY_PASSWORD")?;
        let mut wrong_password = fixture.xtask_command(&args, true);
        wrong_password.env("MULTUS_REGISTRY_PASSWORD", "wrong");
        fixture.ensure_fails(&mut wrong_password, "with this password")
    })?;
    report.check(
        "a push sends images and charts, a second push nothing",
        || {
            let dist = text(&env.dist)?;
            let target = format!("oci://{REGISTRY}");
            let sent = push(fixture, &[&target, "--dist", dist])?;
            ensure!(sent > 1_000_000, "{sent} bytes were sent");
            let uploads = fixture.logged_requests(&["PUT /v2/"])?;
            ensure!(uploads > 0, "the registry got no upload");
            let again = push(fixture, &[REGISTRY, "--dist", dist])?;
            ensure!(again == 0, "{again} bytes were sent again");
            let more = fixture.logged_requests(&["PUT /v2/"])?
                + fixture.logged_requests(&["POST /v2/"])?;
            let first = uploads + fixture.logged_requests(&["POST /v2/"])?;
            ensure!(more == first, "the registry got another upload");
            Ok(())
        },
    )?;
    report.check("a login in docker's configuration is used", || {
        let config = fixture.node.dir.join("docker");
        fs::create_dir_all(&config)?;
        let login = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            format!("{USER}:{PASSWORD}"),
        );
        let text_of = serde_json::json!({"auths": {REGISTRY: {"auth": login}}}).to_string();
        fs::write(config.join("config.json"), text_of)?;
        let args = ["airgap", "push", REGISTRY, "--dist", text(&env.dist)?];
        let mut command = fixture.xtask_command(&args, false);
        sh::run(command.env("DOCKER_CONFIG", &config)).map(drop)
    })?;
    // Skopeo and Rancher's scripts refuse a reference with both tag and digest, so they get the list without digests.
    report.check(
        "skopeo reads the list of tags, and finds the digests of the other list",
        || {
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
                let target = format!("docker://{REGISTRY}/{name}");
                let login = format!("{USER}:{PASSWORD}");
                let raw = fixture.skopeo(&[
                    "inspect",
                    "--raw",
                    "--tls-verify=false",
                    "--creds",
                    &login,
                    &target,
                ])?;
                let found = format!("sha256:{}", crate::test_env::sha256(raw.as_bytes()));
                ensure!(found == digest, "{name} is {found}");
            }
            Ok(())
        },
    )?;
    report.check(
        "a single archive can be pushed below a path, as in a mirror",
        || {
            let archive = env
                .dist
                .join(format!("airgap/multus-airgap-images-{}.tar", arch()));
            let target = format!("{REGISTRY}/mirror");
            let args = [target.as_str(), "--archive", text(&archive)?];
            ensure!(push(fixture, &args)? > 0, "no bytes were sent");
            ensure!(push(fixture, &args)? == 0, "bytes were sent again");
            fixture
                .curl(&["/v2/mirror/multusrs/multus/tags/list"])
                .map(drop)
        },
    )?;
    report.check("Helm pulls the charts with the release's bytes", || {
        let logins = fixture.node.dir.join("helm-logins.json");
        let helm = |args: &[&str]| {
            let mut command = fixture.node.command(env.bin.join("helm"));
            command.arg("--registry-config").arg(&logins).args(args);
            sh::run(&mut command)
        };
        helm(&[
            "registry",
            "login",
            REGISTRY,
            "--plain-http",
            "--username",
            USER,
            "--password",
            PASSWORD,
        ])?;
        let (version, directory) = (env.version()?, env.dir.join("charts"));
        fs::create_dir_all(&directory)?;
        for name in CHARTS {
            let from = format!("oci://{REGISTRY}/charts/{name}");
            let to = text(&directory)?;
            helm(&[
                "pull",
                &from,
                "--version",
                &version,
                "--plain-http",
                "--destination",
                to,
            ])?;
            let pulled = fs::read(directory.join(format!("{name}-{version}.tgz")))?;
            ensure!(
                pulled == fs::read(env.chart(name)?)?,
                "{name} has different bytes"
            );
        }
        Ok(())
    })
}
