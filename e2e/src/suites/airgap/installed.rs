//! `multus-distro images install`: a copied folder's archive, put where K3s and RKE2 import from, and read by a runtime from there.

use std::{fs, path::PathBuf};

use anyhow::ensure;

use super::{
    agent::Agent,
    copy::Copy,
    fixture::{AirgapFixture, text, unpack},
    stores::listed,
};
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
    for (distro, generation) in [
        ("k3s", ContainerdVersion::V2),
        ("rke2", ContainerdVersion::V1),
    ] {
        let agent = Agent::new(distro, &format!("{distro}-installed"));
        let archive = format!("multus-airgap-images-{}.tar.zst", arch());
        report.check(
            &format!("images install puts the archive where {distro} imports from, once"),
            || {
                let copy = Copy::new(env)?;
                let told = sh::run(&mut agent.install(env, fixture, &copy)?)?;
                let expected = [&archive, ".cache.json"].map(|name| agent.path(name) + "\n");
                ensure!(told == expected.concat(), "it wrote {told}");
                let mut there = agent.images(fixture)?;
                there.sort();
                ensure!(there == [".cache.json", &archive], "there is {there:?}");
                let installed = fs::read(fixture.node.path(&agent.path(&archive)))?;
                ensure!(
                    installed == fs::read(env.dist.join("airgap").join(&archive))?,
                    "it has other bytes"
                );
                let again = sh::run(&mut agent.install(env, fixture, &copy)?)?;
                ensure!(again.is_empty(), "it wrote {again} again");
                Ok(())
            },
        )?;
        report.check(
            &format!("containerd {generation:?} imports what was installed for {distro}"),
            || {
                let plain: PathBuf = env.dir.join(format!("{distro}-installed.tar"));
                unpack(&fixture.node.path(&agent.path(&archive)), &plain)?;
                let store = fixture.store(env, generation, &format!("installed-{distro}"))?;
                store.ctr(fixture, &["images", "import", text(&plain)?])?;
                for reference in listed(env)? {
                    store.holds(fixture, &reference)?;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}
