//! The directory from which a distro imports images.

use std::{path::Path, process::Command};

use super::fixture::{AirgapFixture, text};
use crate::test_env::TestEnv;

/// A distro on the node, without files of ours.
pub(super) struct Agent {
    distro: &'static str,
    data_dir: String,
}

impl Agent {
    /// Returns a distro with a data directory of its own.
    pub(super) fn new(distro: &'static str, name: &str) -> Self {
        Self {
            distro,
            data_dir: format!("/var/lib/rancher/{name}"),
        }
    }

    /// Returns the command `multus-distro images install` for a directory.
    pub(super) fn install_command(
        &self,
        env: &TestEnv,
        fixture: &AirgapFixture,
        from: &Path,
    ) -> anyhow::Result<Command> {
        let mut command = fixture.node.command(env.program("multus-distro"));
        command.args(["images", "install", text(from)?]);
        command.args(["--distro", self.distro, "--data-dir", &self.data_dir]);
        Ok(command)
    }

    /// Lists the files that the distro would import.
    pub(super) fn images(&self, fixture: &AirgapFixture) -> anyhow::Result<Vec<String>> {
        let dir = self.path("");
        if !fixture.node.path(&dir).exists() {
            return Ok(Vec::new());
        }
        fixture.node.list(&dir)
    }

    /// Returns the path of such a file.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/agent/images/{name}", self.data_dir)
    }
}
