//! Empty stores: the archive is imported, the registry is pulled from through a mirror.

use std::{fs, process::Command};

use anyhow::ensure;

use super::{
    copy::largest,
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
};
use crate::{
    node::layout::ContainerdVersion,
    report::{CheckFailed, Report},
    sh,
    test_env::{TestEnv, arch},
};

const GENERATIONS: [ContainerdVersion; 2] = [ContainerdVersion::V1, ContainerdVersion::V2];

/// The lines of this machine's list.
pub(super) fn listed(env: &TestEnv) -> anyhow::Result<Vec<String>> {
    let list = env.read(&format!("airgap/multus-images.linux-{}.txt", arch()))?;
    Ok(String::from_utf8(list)?
        .lines()
        .map(str::to_owned)
        .collect())
}

pub(super) fn import(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    for generation in GENERATIONS {
        report.check(
            &format!("containerd {generation:?} imports the archive whole"),
            || {
                let store = fixture.store(env, generation, "import")?;
                let archive = env.image_archive()?;
                store.ctr(fixture, &["images", "import", text(&archive)?])?;
                for reference in listed(env)? {
                    store.holds(fixture, &reference)?;
                }
                Ok(())
            },
        )?;
        report.check(
            &format!("containerd {generation:?} refuses an archive that lacks a blob, or is cut"),
            || {
                let store = fixture.store(env, generation, "refuse")?;
                let sparse = sparse(env)?;
                fixture.refused_by(
                    &mut store.command(fixture, &["images", "import", text(&sparse)?]),
                    "not found",
                )?;
                let cut = env.dir.join("cut.tar");
                let bytes = fs::read(env.image_archive()?)?;
                fs::write(&cut, &bytes[..bytes.len() / 2])?;
                let mut command = store.command(fixture, &["images", "import", text(&cut)?]);
                let output = sh::output(&mut command, b"")?;
                ensure!(!output.status.success(), "a cut archive is imported");
                Ok(())
            },
        )?;
    }
    report.check(
        "skopeo reads the packed archive, and the unpacked one as docker's",
        || {
            let packed = env
                .dist
                .join(format!("airgap/multus-airgap-images-{}.tar.zst", arch()));
            let plain = env.image_archive()?;
            for reference in listed(env)? {
                let (name, digest) = reference.split_once('@').unwrap_or_default();
                let oci = format!("oci-archive:{}:{name}", packed.display());
                let found = fixture.skopeo(&["inspect", "--format", "{{.Digest}}", &oci])?;
                ensure!(found.trim() == digest, "{name} is {found}");
                let docker = format!("docker-archive:{}:{name}", plain.display());
                let found =
                    fixture.skopeo(&["inspect", "--format", "{{.Architecture}}", &docker])?;
                ensure!(found.trim() == arch(), "{name} is for {found}");
            }
            Ok(())
        },
    )
}

/// The archive without its largest blob.
fn sparse(env: &TestEnv) -> anyhow::Result<std::path::PathBuf> {
    let (plain, sparse) = (env.image_archive()?, env.dir.join("sparse.tar"));
    let blob = largest(&plain)?;
    fs::copy(&plain, &sparse)?;
    sh::run(
        Command::new("tar")
            .args(["--delete", "--file"])
            .arg(&sparse)
            .arg(blob),
    )?;
    Ok(sparse)
}

pub(super) fn pull(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    for generation in GENERATIONS {
        report.check(
            &format!("containerd {generation:?} pulls the images through a mirror configuration"),
            || {
                let store = fixture.store(env, generation, "pull")?;
                let hosts = format!("/var/lib/containerd/hosts-{generation:?}");
                let login = base64::Engine::encode(
                    &base64::engine::general_purpose::STANDARD,
                    format!("{USER}:{PASSWORD}"),
                );
                fixture.node.write(
                    &format!("{hosts}/docker.io/hosts.toml"),
                    format!(
                        "server = \"https://registry.invalid\"\n[host.\"http://{REGISTRY}\"]\n  capabilities = [\"pull\", \"resolve\"]\n  [host.\"http://{REGISTRY}\".header]\n    Authorization = \"Basic {login}\"\n"
                    ),
                )?;
                let blobs = ["GET /v2/multusrs/", "/blobs/"];
                let before = fixture.asked(&blobs)?;
                for reference in release_images(env)? {
                    let (name, _) = reference.split_once('@').unwrap_or_default();
                    store.ctr(fixture, &["images", "pull", "--hosts-dir", &hosts, name])?;
                    store.holds(fixture, &reference)?;
                }
                // What was there already would prove nothing.
                let came = fixture.asked(&blobs)? - before;
                ensure!(came > 1, "{came} blobs were asked for");
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// What a registry has: the list of all architectures, whose digests are those of indexes.
pub(super) fn release_images(env: &TestEnv) -> anyhow::Result<Vec<String>> {
    let list = String::from_utf8(env.read("airgap/multus-images.txt")?)?;
    Ok(list.lines().map(str::to_owned).collect())
}
