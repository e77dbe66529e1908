//! Plugins of the bench itself: small static programs that rustc makes, since one that looks for libraries first would take longer
//! than what is measured.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::usage;
use crate::{
    node::{Node, cgroup},
    sh,
    test_env::TestEnv,
};

const BIN_DIR: &str = "/opt/cni/bin";
/// Where the real plugins are meanwhile.
const REAL: &str = "/opt/cni/bench-real";

/// Builds one from its source in this folder.
pub(crate) fn build(env: &TestEnv, source: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/suites/bench")
        .join(source);
    let out = env.dir.join(source.trim_end_matches(".rs"));
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let rustc = |more: &[&str]| {
        let mut rustc = Command::new("rustc");
        rustc
            .args([
                "--edition=2024",
                "-Copt-level=s",
                "-Cpanic=abort",
                "-Cstrip=symbols",
                "-Ctarget-feature=+crt-static",
            ])
            .args(more)
            .arg("-o")
            .args([&out, &path]);
        sh::run(&mut rustc)
    };
    // Where that target is not installed, glibc is linked in: it starts later, on every side alike.
    rustc(&["--target", &target])
        .or_else(|_| rustc(&[]))
        .with_context(|| format!("cannot build {source} of the bench"))?;
    Ok(out)
}

/// Programs in the place of a node's plugins, which go into a control group of their own and become the plugin.
pub(crate) struct Metered {
    program: PathBuf,
    group: PathBuf,
}

impl Metered {
    pub(crate) fn new(env: &TestEnv, node: &Node) -> anyhow::Result<Self> {
        let group = cgroup::cpu_accounting()?.join("multus-e2e-bench-plugins");
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        node.write(&format!("{REAL}/group"), group.display().to_string())?;
        Ok(Self {
            program: build(env, "metered.rs")?,
            group,
        })
    }

    /// Seconds of processors of all plugins that were called by way of these programs.
    pub(crate) fn seconds(&self) -> anyhow::Result<f64> {
        usage::seconds(&self.group)
    }

    /// Puts them in the places of the plugins.
    pub(crate) fn put(&self, node: &Node) -> anyhow::Result<()> {
        for name in plugins(node, BIN_DIR)? {
            let place = node.path(&format!("{BIN_DIR}/{name}"));
            fs::rename(&place, node.path(&format!("{REAL}/{name}")))?;
            fs::copy(&self.program, &place)?;
        }
        Ok(())
    }

    /// Puts the plugins back.
    pub(crate) fn take(node: &Node) -> anyhow::Result<()> {
        for name in plugins(node, REAL)? {
            fs::rename(
                node.path(&format!("{REAL}/{name}")),
                node.path(&format!("{BIN_DIR}/{name}")),
            )?;
        }
        Ok(())
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

/// Everything in the folder that is a plugin and not the shim.
fn plugins(node: &Node, folder: &str) -> anyhow::Result<Vec<String>> {
    let mut names = node.list(folder)?;
    names.retain(|name| !matches!(name.as_str(), "multus-shim" | "passthru" | "group"));
    Ok(names)
}
