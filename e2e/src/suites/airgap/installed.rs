//! `multus-distro images install` puts the archive of a copied directory where K3s and RKE2 import from.

use std::fs;

use anyhow::ensure;

use super::{agent::Agent, copy::Copy, fixture::AirgapFixture, stores::listed};
use crate::{
    node::layout::ContainerdVersion,
    report::{CheckFailed, Report},
    sh,
    test_env::{TestEnv, arch},
};

pub(super) fn run(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    for (distro, containerd_version) in [
        ("k3s", ContainerdVersion::V2),
        ("rke2", ContainerdVersion::V1),
    ] {
        let agent = Agent::new(distro, &format!("{distro}-installed"));
        let archive = format!("multus-airgap-images-{}.tar", arch());
        report.check(
            &format!("images install puts the archive where {distro} imports from, and only once"),
            || {
                let copy = Copy::new(env)?;
                let written = sh::run(&mut agent.install_command(env, fixture, &copy.dir)?)?;
                ensure!(written == agent.path(&archive) + "\n", "it wrote {written}");
                let there = agent.images(fixture)?;
                ensure!(there == [archive.as_str()], "there is {there:?}");
                let installed = fs::read(fixture.node.path(&agent.path(&archive)))?;
                ensure!(
                    installed == fs::read(env.dist.join("airgap").join(&archive))?,
                    "it has different bytes"
                );
                let again = sh::run(&mut agent.install_command(env, fixture, &copy.dir)?)?;
                ensure!(again.is_empty(), "it wrote {again} again");
                Ok(())
            },
        )?;
        report.check(
            &format!("containerd {containerd_version} imports the archive that was installed for {distro}"),
            || {
                let store = fixture.store(env, containerd_version, &format!("installed-{distro}"))?;
                store.ctr(fixture, &["images", "import", &agent.path(&archive)])?;
                for reference in listed(env)? {
                    store.ensure_image(fixture, &reference)?;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}
