//! Empty stores of containerd: the archive is imported from where `multus-distro images install` puts it, and images are pulled from the
//! registry through a mirror.

use anyhow::ensure;

use super::fixture::{AirgapFixture, text};
use crate::{
    node::layout::ContainerdVersion,
    report::{Checked, Report},
    sh,
    test_env::{TestEnv, arch},
};

const CONTAINERD_VERSIONS: [ContainerdVersion; 2] = [ContainerdVersion::V1, ContainerdVersion::V2];

/// Returns the image references for this machine's architecture.
pub(super) fn listed(env: &TestEnv) -> anyhow::Result<Vec<String>> {
    let list = env.read(&format!(
        "airgap/multus-images-digests.linux-{}.txt",
        arch()
    ))?;
    Ok(String::from_utf8(list)?
        .lines()
        .map(str::to_owned)
        .collect())
}

pub(super) fn import(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    for (distro, containerd_version) in ["k3s", "rke2"].into_iter().zip(CONTAINERD_VERSIONS) {
        report.check(
            &format!("containerd {containerd_version} imports the complete archive from where images install puts it for {distro}"),
            || {
                let data_dir = format!("/var/lib/rancher/{distro}-installed");
                let mut install = fixture.node.command(env.program("multus-distro"));
                install.args(["images", "install", text(&env.dist.join("airgap"))?]);
                let installed = sh::run(install.args(["--distro", distro, "--data-dir", &data_dir]))?;
                let store = fixture.store(env, containerd_version, "import")?;
                store.ctr(fixture, &["images", "import", installed.trim()])?;
                for reference in listed(env)? {
                    store.ensure_image(fixture, &reference)?;
                }
                Ok(())
            },
        )?;
    }
    report.check("skopeo reads the archive as OCI's and as docker's", || {
        let archive = env.image_archive();
        for reference in listed(env)? {
            let (name, digest) = reference.split_once('@').unwrap_or_default();
            let oci = format!("oci-archive:{}:{name}", archive.display());
            let found = fixture.skopeo(&["inspect", "--format", "{{.Digest}}", &oci])?;
            ensure!(found.trim() == digest, "{name} is {found}");
            let docker = format!("docker-archive:{}:{name}", archive.display());
            let found = fixture.skopeo(&["inspect", "--format", "{{.Architecture}}", &docker])?;
            ensure!(found.trim() == arch(), "{name} is for {found}");
        }
        Ok(())
    })
}

pub(super) fn pull(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    for containerd_version in CONTAINERD_VERSIONS {
        report.check(
            &format!("containerd {containerd_version} pulls the images through a mirror"),
            || {
                let store = fixture.store(env, containerd_version, "pull")?;
                let hosts = format!("/var/lib/containerd/hosts-{containerd_version:?}");
                let file = format!("{hosts}/docker.io/hosts.toml");
                fixture.node.write(&file, fixture.registry.mirror())?;
                let blobs = ["GET /v2/multusrs/", "/blobs/"];
                let before = fixture.logged_requests(&blobs)?;
                for reference in release_images(env)? {
                    let (name, _) = reference.split_once('@').unwrap_or_default();
                    store.ctr(fixture, &["images", "pull", "--hosts-dir", &hosts, name])?;
                    store.ensure_image(fixture, &reference)?;
                }
                // Without requests for blobs the images would have been in the store already.
                let pulled = fixture.logged_requests(&blobs)? - before;
                ensure!(pulled > 1, "{pulled} blobs were requested");
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Returns the image references for all architectures, with the digests of indexes, as a registry has them.
pub(super) fn release_images(env: &TestEnv) -> anyhow::Result<Vec<String>> {
    let list = String::from_utf8(env.read("airgap/multus-images-digests.txt")?)?;
    Ok(list.lines().map(str::to_owned).collect())
}
