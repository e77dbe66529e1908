//! Where a distro on the node imports images from.

use std::process::Command;

use super::{
    copy::Copy,
    fixture::{AirgapFixture, text},
};
use crate::test_env::TestEnv;

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
        env: &TestEnv,
        fixture: &AirgapFixture,
        copy: &Copy,
    ) -> anyhow::Result<Command> {
        let mut command = fixture.node.command(env.program("multus-distro"));
        command.args(["images", "install", text(&copy.dir)?]);
        command.args(["--distro", self.distro, "--data-dir", &self.data_dir]);
        Ok(command)
    }

    /// What it would import.
    pub(super) fn images(&self, fixture: &AirgapFixture) -> anyhow::Result<Vec<String>> {
        let dir = self.path("");
        if !fixture.node.path(&dir).exists() {
            return Ok(Vec::new());
        }
        fixture.node.list(&dir)
    }

    /// A file among them.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/agent/images/{name}", self.data_dir)
    }
}
