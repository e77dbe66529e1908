//! A third-party image: its digest is locked, it is pulled over an unreliable connection, and it becomes part of archive and lists.
//!
//! The charts use none today, so the suite builds one and pushes it to the registry.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
    flaky_proxy::{self, ADDRESS},
};
use crate::{
    node::layout::ContainerdVersion,
    programs::image::Image,
    report::{CheckFailed, Report},
    sh,
    test_env::{TestEnv, arch, sha256},
};

/// Its reference; the registry of this name is reachable through a mirror only.
const NAME: &str = "registry.invalid/others/helper:1";
const REPOSITORY: &str = "others/helper";

struct PullPaths {
    images: PathBuf,
    lock: PathBuf,
    store: PathBuf,
    out: PathBuf,
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
    let paths = PullPaths {
        images: env.dir.join("images.toml"),
        lock: env.dir.join("images.lock"),
        store: env.dir.join("store"),
        out: env.dir.join("with-others"),
    };
    let digest = report.check(
        "a third-party image for two architectures is in the registry",
        || publish(env, fixture),
    )?;
    report.check("airgap update locks its digest, through a mirror", || {
        let text_of = "schema = 1\nown = \"docker.io/multusrs/\"\n[features]\ncertificates = \"perNodeCertificate.enabled=true\"\n";
        fs::write(&paths.images, format!("{text_of}[[image]]\nreference = \"{NAME}\"\nfeature = \"certificates\"\n"))?;
        let helm = env.bin.join("helm");
        let mirror = format!("registry.invalid={REGISTRY}");
        fixture.xtask(&["airgap", "update", "--helm", text(&helm)?, "--mirror", &mirror, "--images", text(&paths.images)?, "--lock", text(&paths.lock)?])?;
        let lock = fs::read_to_string(&paths.lock)?;
        ensure!(lock.contains(&format!("certificates {NAME} {digest}\n")), "{lock}");
        Ok(())
    })?;
    let pull = |host: &str| {
        let (mirror, user) = (format!("registry.invalid={host}"), format!("{host}={USER}"));
        let args = [
            "airgap",
            "pull",
            "--user",
            &user,
            "--json",
            "--arch",
            arch(),
            "--mirror",
            &mirror,
            "--lock",
            text(&paths.lock)?,
            "--store",
            text(&paths.store)?,
        ];
        let answer = sh::run(&mut fixture.xtask_command(&args, false))?;
        let answer: Value = serde_json::from_str(&answer)?;
        let fetched = answer["items"][0]["fetched"].as_u64();
        fetched.with_context(|| answer.to_string())
    };
    report.check(
        "airgap pull resumes after a broken connection, and waits after 503",
        || {
            flaky_proxy::start(&fixture.node)?;
            let ranges = ["GET /v2/others/helper/blobs/", "206"];
            let before = fixture.logged_requests(&ranges)?;
            let fetched = pull(ADDRESS)?;
            ensure!(fetched > 400_000, "only {fetched} bytes were fetched");
            let resumed = fixture.logged_requests(&ranges)? - before;
            ensure!(resumed > 1, "{resumed} requests resumed a download");
            Ok(())
        },
    )?;
    report.check("a second pull sends no request", || {
        let before = fixture.logged_requests(&["GET /v2/"])?;
        let fetched = pull("127.0.0.1:1")?;
        ensure!(fetched == 0, "{fetched} bytes were fetched again");
        ensure!(
            fixture.logged_requests(&["GET /v2/"])? == before,
            "the registry got a request"
        );
        Ok(())
    })?;
    report.check(
        "an image that was not pulled is an error, and named",
        || {
            let args = images(&paths, "/nowhere")?;
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            copy_programs(env, &paths)?;
            fixture.ensure_refused(&args, "fetch it with `cargo xtask airgap pull`")
        },
    )?;
    report.check(
        "the image is in layout, archive and lists, and explain names its feature",
        || {
            let args = images(&paths, text(&paths.store)?)?;
            fixture.xtask(&args.iter().map(String::as_str).collect::<Vec<_>>())?;
            let out = text(&paths.out)?;
            fixture.xtask(&["airgap", "bundle", "--arch", arch(), "--out", out])?;
            let directory = paths.out.join("airgap");
            fixture.xtask(&["airgap", "verify", text(&directory)?])?;
            let explained = fixture.xtask(&[
                "airgap",
                "explain",
                "--out",
                out,
                "--lock",
                text(&paths.lock)?,
            ])?;
            let part = explained.split("certificates\n").nth(1).unwrap_or_default();
            let archive = format!("multus-airgap-images-{}.tar: ", arch());
            ensure!(
                part.contains(NAME) && part.contains(&archive),
                "{explained}"
            );
            Ok(())
        },
    )?;
    report.check(
        "containerd imports both images from the one archive",
        || {
            let plain = paths
                .out
                .join(format!("airgap/multus-airgap-images-{}.tar", arch()));
            let store = fixture.store(env, ContainerdVersion::V1, "others")?;
            store.ctr(fixture, &["images", "import", text(&plain)?])?;
            let list = paths
                .out
                .join(format!("airgap/multus-images-digests.linux-{}.txt", arch()));
            let list = fs::read_to_string(list)?;
            ensure!(list.lines().count() == 2 && list.contains(NAME), "{list}");
            for reference in list.lines() {
                store.ensure_image(fixture, reference)?;
            }
            Ok(())
        },
    )
}

fn images(paths: &PullPaths, store: &str) -> anyhow::Result<Vec<String>> {
    let args = [
        "images",
        "--arch",
        arch(),
        "--out",
        text(&paths.out)?,
        "--lock",
        text(&paths.lock)?,
        "--store",
        store,
    ];
    Ok(args.map(str::to_owned).to_vec())
}

fn copy_programs(env: &TestEnv, paths: &PullPaths) -> anyhow::Result<()> {
    fs::create_dir_all(&paths.out)?;
    let (from, to) = (env.dist.join("bin"), paths.out.join("bin"));
    sh::run(Command::new("cp").arg("--recursive").args([from, to])).map(drop)
}

/// Pushes one manifest for two architectures with an index; returns the index's digest.
fn publish(env: &TestEnv, fixture: &AirgapFixture) -> anyhow::Result<String> {
    let image = Image {
        name: "helper",
        references: &[NAME.to_owned()],
        programs: &[],
        user: "",
        entrypoint: &["/bin/busybox", "true"],
    };
    let archive = image.archive(env)?;
    let (from, to) = (
        format!("docker-archive:{}", archive.display()),
        format!("docker://{REGISTRY}/{REPOSITORY}:one"),
    );
    let login = format!("{USER}:{PASSWORD}");
    fixture.skopeo(&[
        "copy",
        "--quiet",
        "--dest-tls-verify=false",
        "--dest-creds",
        &login,
        &from,
        &to,
    ])?;
    let raw = fixture.skopeo(&[
        "inspect",
        "--raw",
        "--tls-verify=false",
        "--creds",
        &login,
        &to,
    ])?;
    let manifest: Value = serde_json::from_str(&raw)?;
    let (digest, kind) = (
        format!("sha256:{}", sha256(raw.as_bytes())),
        &manifest["mediaType"],
    );
    let other = if arch() == "amd64" { "arm64" } else { "amd64" };
    let manifests: Vec<_> = [other, arch()]
        .into_iter()
        .map(|architecture| json!({"mediaType": kind, "digest": digest, "size": raw.len(), "platform": {"architecture": architecture, "os": "linux"}}))
        .collect();
    let kind = "application/vnd.docker.distribution.manifest.list.v2+json";
    let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}).to_string();
    let file = env.dir.join("index.json");
    fs::write(&file, &index)?;
    let data = format!("@{}", file.display());
    let header = format!("Content-Type: {kind}");
    let path = format!("/v2/{REPOSITORY}/manifests/1");
    fixture.curl(&[
        &path,
        "--request",
        "PUT",
        "--header",
        &header,
        "--data-binary",
        &data,
    ])?;
    Ok(format!("sha256:{}", sha256(index.as_bytes())))
}
