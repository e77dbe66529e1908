//! Empty stores: the archive is imported, the registry is pulled from through a mirror.

use std::{fs, process::Command};

use anyhow::ensure;

use super::{
    copy::largest,
    scene::{PASSWORD, REGISTRY, Scene, USER, text},
};
use crate::{
    layout::Generation,
    report::{Ended, Report},
    sh,
    workplace::{Workplace, arch},
};

const GENERATIONS: [Generation; 2] = [Generation::One, Generation::Two];

/// The lines of this machine's list.
pub(super) fn listed(work: &Workplace) -> anyhow::Result<Vec<String>> {
    let list = work.read(&format!("airgap/multus-images.linux-{}.txt", arch()))?;
    Ok(String::from_utf8(list)?
        .lines()
        .map(str::to_owned)
        .collect())
}

pub(super) fn import(work: &Workplace, scene: &Scene, report: &mut Report) -> Result<(), Ended> {
    for generation in GENERATIONS {
        report.check(
            &format!("containerd {generation:?} imports the archive whole"),
            || {
                let store = scene.store(work, generation, "import")?;
                let archive = work.image_archive()?;
                store.ctr(scene, &["images", "import", text(&archive)?])?;
                for reference in listed(work)? {
                    store.holds(scene, &reference)?;
                }
                Ok(())
            },
        )?;
        report.check(
            &format!("containerd {generation:?} refuses an archive that lacks a blob, or is cut"),
            || {
                let store = scene.store(work, generation, "refuse")?;
                let sparse = sparse(work)?;
                scene.refused_by(
                    &mut store.command(scene, &["images", "import", text(&sparse)?]),
                    "not found",
                )?;
                let cut = work.dir.join("cut.tar");
                let bytes = fs::read(work.image_archive()?)?;
                fs::write(&cut, &bytes[..bytes.len() / 2])?;
                let mut command = store.command(scene, &["images", "import", text(&cut)?]);
                let output = sh::output(&mut command, b"")?;
                ensure!(!output.status.success(), "a cut archive is imported");
                Ok(())
            },
        )?;
    }
    report.check(
        "skopeo reads the packed archive, and the unpacked one as docker's",
        || {
            let packed = work
                .dist
                .join(format!("airgap/multus-airgap-images-{}.tar.zst", arch()));
            let plain = work.image_archive()?;
            for reference in listed(work)? {
                let (name, digest) = reference.split_once('@').unwrap_or_default();
                let oci = format!("oci-archive:{}:{name}", packed.display());
                let found = scene.skopeo(&["inspect", "--format", "{{.Digest}}", &oci])?;
                ensure!(found.trim() == digest, "{name} is {found}");
                let docker = format!("docker-archive:{}:{name}", plain.display());
                let found = scene.skopeo(&["inspect", "--format", "{{.Architecture}}", &docker])?;
                ensure!(found.trim() == arch(), "{name} is for {found}");
            }
            Ok(())
        },
    )
}

/// The archive without its largest blob.
fn sparse(work: &Workplace) -> anyhow::Result<std::path::PathBuf> {
    let (plain, sparse) = (work.image_archive()?, work.dir.join("sparse.tar"));
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

pub(super) fn pull(work: &Workplace, scene: &Scene, report: &mut Report) -> Result<(), Ended> {
    for generation in GENERATIONS {
        report.check(
            &format!("containerd {generation:?} pulls the images through a mirror configuration"),
            || {
                let store = scene.store(work, generation, "pull")?;
                let hosts = format!("/var/lib/containerd/hosts-{generation:?}");
                let login = base64::Engine::encode(
                    &base64::engine::general_purpose::STANDARD,
                    format!("{USER}:{PASSWORD}"),
                );
                scene.node.write(
                    &format!("{hosts}/docker.io/hosts.toml"),
                    format!(
                        "server = \"https://registry.invalid\"\n[host.\"http://{REGISTRY}\"]\n  capabilities = [\"pull\", \"resolve\"]\n  [host.\"http://{REGISTRY}\".header]\n    Authorization = \"Basic {login}\"\n"
                    ),
                )?;
                let blobs = ["GET /v2/multusrs/", "/blobs/"];
                let before = scene.asked(&blobs)?;
                for reference in release_images(work)? {
                    let (name, _) = reference.split_once('@').unwrap_or_default();
                    store.ctr(scene, &["images", "pull", "--hosts-dir", &hosts, name])?;
                    store.holds(scene, &reference)?;
                }
                // What was there already would prove nothing.
                let came = scene.asked(&blobs)? - before;
                ensure!(came > 1, "{came} blobs were asked for");
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// What a registry has: the list of all architectures, whose digests are those of indexes.
pub(super) fn release_images(work: &Workplace) -> anyhow::Result<Vec<String>> {
    let list = String::from_utf8(work.read("airgap/multus-images.txt")?)?;
    Ok(list.lines().map(str::to_owned).collect())
}
