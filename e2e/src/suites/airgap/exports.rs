//! The release in the hands of other tools: podman, which takes what docker takes, with the list for Rancher's scripts, and the libraries by
//! which the agents of K3s and RKE2 read `registries.yaml` and image archives.

use std::fs;

use anyhow::{Context as _, ensure};

use super::{
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
    stores::listed,
};
use crate::{
    report::{Checked, Report},
    sh,
    test_env::{TestEnv, arch},
};

/// The host in `registries.yaml` that its reader replaces.
const EXAMPLE_REGISTRY: &str = "registry.example:5000";
/// The first part of the repositories that the steps of Rancher's scripts fill.
const SCRIPTS: &str = "scripts";

pub(super) fn run(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    report.check(
        "podman loads the archive, with the digests of the list",
        || {
            let podman = Podman {
                fixture,
                name: "load",
            };
            podman.load(&archive(env))?;
            for reference in listed(env)? {
                let (name, digest) = reference.split_once('@').context("a digest is named")?;
                let format = "{{.Digest}} {{.Architecture}}";
                let found = podman.run(&["image", "inspect", "--format", format, name])?;
                let expected = format!("{digest} {}", arch());
                ensure!(found.trim() == expected, "{name} is {found}");
            }
            Ok(())
        },
    )?;
    report.check(
        "loaded, tagged and pushed by the list for Rancher's scripts, images are where a mirror has them",
        || {
            let podman = Podman { fixture, name: "scripts" };
            podman.load(&archive(env))?;
            let list = String::from_utf8(env.read("exports/rancher-images.txt")?)?;
            ensure!(list.lines().count() == listed(env)?.len(), "it has {list}");
            for line in list.lines() {
                // As the script does with each line.
                let target = format!("{REGISTRY}/{SCRIPTS}/{line}");
                podman.run(&["tag", line, &target])?;
                let creds = format!("{USER}:{PASSWORD}");
                podman.run(&["push", "--tls-verify=false", "--creds", &creds, &target])?;
            }
            // The other repositories of the registry have the same images by another way.
            let rewrite = format!("    rewrite:\n      '^(.*)$': '{SCRIPTS}/$1'\n");
            pull_by_mirror(env, fixture, &rewrite)
        },
    )?;
    report.check(
        "the agents' library pulls by registries.yaml what was pushed to the registry",
        || pull_by_mirror(env, fixture, ""),
    )?;
    report.check(
        "the agents' library finds every image in a node's directory of archives",
        || {
            // The library takes the first archive with the name of the image, and a node has those of its architecture alone.
            let dir = env.dir.join("agent-images");
            fs::create_dir(&dir)?;
            fs::copy(archive(env), dir.join("multus.tar"))?;
            let digests = read_images(env, fixture, &["archives", text(&dir)?])?;
            ensure!(digests == configurations(env, fixture)?, "{digests:?}");
            Ok(())
        },
    )
}

fn archive(env: &TestEnv) -> String {
    env.image_archive().display().to_string()
}

/// A podman with a store of its own.
struct Podman<'a> {
    fixture: &'a AirgapFixture,
    name: &'a str,
}

impl Podman<'_> {
    fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        // Paths of the node, because podman refuses long ones.
        let root = format!("/var/lib/containerd/podman-{}", self.name);
        let run = format!("/run/podman-{}", self.name);
        let mut podman = self.fixture.node.command("podman");
        podman.args(["--root", &root, "--runroot", &run]);
        podman.args(["--storage-driver", "vfs"]).args(args);
        sh::run(&mut podman)
    }

    fn load(&self, archive: &str) -> anyhow::Result<()> {
        ensure!(self.run(&["images", "--quiet"])?.is_empty());
        self.run(&["load", "--input", archive]).map(drop)
    }
}

/// Pulls the images of the list by the release's `registries.yaml`, with the registry and its login in it, and more for each mirror.
fn pull_by_mirror(env: &TestEnv, fixture: &AirgapFixture, more: &str) -> anyhow::Result<()> {
    let example = String::from_utf8(env.read("exports/registries.yaml")?)?;
    let (mirrors, login) = example.split_once("#configs").context("it has no login")?;
    let endpoint = format!("https://{EXAMPLE_REGISTRY}\n");
    let mirrors = mirrors.replace(&endpoint, &format!("http://{REGISTRY}\n{more}"));
    let (login, _tls) = login.split_once("#    tls:").context("it has no CA")?;
    let login = login
        .replace("\n#", "\n")
        .replace(EXAMPLE_REGISTRY, REGISTRY)
        .replace("NAME", USER)
        .replace("PASSWORD", PASSWORD);
    let path = env.dir.join("registries.yaml");
    fs::write(&path, format!("{mirrors}configs{login}"))?;
    let blobs = ["GET /v2/", "/blobs/"];
    let before = fixture.logged_requests(&blobs)?;
    let digests = read_images(env, fixture, &["mirror", text(&path)?])?;
    ensure!(digests == configurations(env, fixture)?, "{digests:?}");
    let pulled = fixture.logged_requests(&blobs)? - before;
    ensure!(pulled > digests.len(), "{pulled} blobs were requested");
    Ok(())
}

/// Returns the digests of the configurations of the images, as the library reads them.
fn read_images(
    env: &TestEnv,
    fixture: &AirgapFixture,
    args: &[&str],
) -> anyhow::Result<Vec<String>> {
    let mut reader = fixture.node.command(env.bin.join("mirror-reader"));
    reader.args(args);
    for reference in listed(env)? {
        let (name, _) = reference.split_once('@').context("a digest is named")?;
        reader.arg(name);
    }
    let found = sh::run(&mut reader)?;
    Ok(found.lines().map(str::to_owned).collect())
}

/// Returns the same digests as skopeo reads them from the archive.
fn configurations(env: &TestEnv, fixture: &AirgapFixture) -> anyhow::Result<Vec<String>> {
    let images = listed(env)?.into_iter().map(|reference| {
        let (name, _) = reference.split_once('@').context("a digest is named")?;
        let archive = format!("oci-archive:{}:{name}", archive(env));
        let raw = fixture.skopeo(&["inspect", "--raw", &archive])?;
        let manifest: serde_json::Value = serde_json::from_str(&raw)?;
        let digest = manifest["config"]["digest"].as_str();
        Ok(digest
            .context("the manifest names no configuration")?
            .to_owned())
    });
    images.collect()
}
