//! `multus-distro images install`: a copied folder's archive, put where K3s and RKE2 import from, and read by a runtime from there.

use std::{fs, path::PathBuf};

use anyhow::ensure;

use super::{
    agent::Agent,
    copy::Copy,
    scene::{Scene, text, unpack},
    stores::listed,
};
use crate::{
    layout::Generation,
    report::{Ended, Report},
    sh,
    workplace::{Workplace, arch},
};

pub(super) fn run(work: &Workplace, scene: &Scene, report: &mut Report) -> Result<(), Ended> {
    for (distro, generation) in [("k3s", Generation::Two), ("rke2", Generation::One)] {
        let agent = Agent::new(distro, &format!("{distro}-installed"));
        let archive = format!("multus-airgap-images-{}.tar.zst", arch());
        report.check(
            &format!("images install puts the archive where {distro} imports from, once"),
            || {
                let copy = Copy::new(work)?;
                let told = sh::run(&mut agent.install(work, scene, &copy)?)?;
                let expected = [&archive, ".cache.json"].map(|name| agent.path(name) + "\n");
                ensure!(told == expected.concat(), "it wrote {told}");
                let mut there = agent.images(scene)?;
                there.sort();
                ensure!(there == [".cache.json", &archive], "there is {there:?}");
                let installed = fs::read(scene.node.path(&agent.path(&archive)))?;
                ensure!(
                    installed == fs::read(work.dist.join("airgap").join(&archive))?,
                    "it has other bytes"
                );
                let again = sh::run(&mut agent.install(work, scene, &copy)?)?;
                ensure!(again.is_empty(), "it wrote {again} again");
                Ok(())
            },
        )?;
        report.check(
            &format!("containerd {generation:?} imports what was installed for {distro}"),
            || {
                let plain: PathBuf = work.dir.join(format!("{distro}-installed.tar"));
                unpack(&scene.node.path(&agent.path(&archive)), &plain)?;
                let store = scene.store(work, generation, &format!("installed-{distro}"))?;
                store.ctr(scene, &["images", "import", text(&plain)?])?;
                for reference in listed(work)? {
                    store.holds(scene, &reference)?;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}
