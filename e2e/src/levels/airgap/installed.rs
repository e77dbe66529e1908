//! `multus-distro images install`: a copied folder's archive, put where K3s and RKE2 import from, and read by a runtime from there.

use std::{fs, path::PathBuf, process::Command};

use anyhow::ensure;

use super::{
    copies::Copy,
    scene::{Scene, text, unpack},
    stores::listed,
};
use crate::{
    layout::Generation,
    report::{Ended, Report},
    sh,
    workplace::{Workplace, arch},
};

/// A distro on the node, with nothing of ours.
pub(super) struct Agent {
    distro: &'static str,
    data_dir: String,
}

impl Agent {
    /// The data directory is its own.
    pub(super) fn new(distro: &'static str, name: &str) -> Self {
        Self {
            distro,
            data_dir: format!("/var/lib/rancher/{name}"),
        }
    }

    /// The program under test with a folder, on the node.
    pub(super) fn install(
        &self,
        work: &Workplace,
        scene: &Scene,
        copy: &Copy,
    ) -> anyhow::Result<Command> {
        let mut command = scene.node.command(work.program("multus-distro"));
        command.args(["images", "install", text(&copy.dir)?]);
        command.args(["--distro", self.distro, "--data-dir", &self.data_dir]);
        Ok(command)
    }

    /// What it would import.
    pub(super) fn images(&self, scene: &Scene) -> anyhow::Result<Vec<String>> {
        let dir = self.path("");
        if !scene.node.path(&dir).exists() {
            return Ok(Vec::new());
        }
        scene.node.list(&dir)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/agent/images/{name}", self.data_dir)
    }
}

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
