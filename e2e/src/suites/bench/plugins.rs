//! Plugins of the bench: small programs that are built as static ones, because loading shared libraries would take longer than the
//! measured calls.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use api::plugins::{PLUGIN_DIR, PROGRAM};

use super::usage;
use crate::{
    node::{Node, cgroup},
    sh,
    test_env::TestEnv,
};

/// The directories of the node's plugins and of ours, each with that of the real plugins while metered ones replace them.
const DIRECTORIES: [(&str, &str); 2] = [
    ("/opt/cni/bin", "/opt/cni/bench-real"),
    (PLUGIN_DIR, "/var/lib/multus/bench-real"),
];

/// Builds a plugin from its source in this directory.
pub(crate) fn build(env: &TestEnv, source: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/suites/bench")
        .join(source);
    let out = env.dir.join(source.trim_end_matches(".rs"));
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let rustc = |more: &[&str]| {
        let mut rustc = Command::new("rustc");
        rustc
            .args("--edition=2024 -Copt-level=s -Cpanic=abort -Cstrip=symbols -Ctarget-feature=+crt-static".split(' '))
            .args(more)
            .arg("-o")
            .args([&out, &path]);
        sh::run(&mut rustc)
    };
    // Without this target glibc is linked statically, which makes the plugin slower on every side alike.
    rustc(&["--target", &target])
        .or_else(|_| rustc(&[]))
        .with_context(|| format!("cannot build {source} of the bench"))?;
    Ok(out)
}

/// Replacements of a node's plugins that join a control group and execute the real plugin.
pub(crate) struct Metered {
    program: PathBuf,
    group: PathBuf,
}

impl Metered {
    pub(crate) fn new(env: &TestEnv, node: &Node) -> anyhow::Result<Self> {
        let group = cgroup::cpu_accounting()?.join("multus-e2e-bench-plugins");
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        for (_, real) in DIRECTORIES {
            node.write(&format!("{real}/group"), group.display().to_string())?;
        }
        Ok(Self {
            program: build(env, "metered.rs")?,
            group,
        })
    }

    /// Returns the CPU seconds of all plugins that were called through the replacements.
    pub(crate) fn seconds(&self) -> anyhow::Result<f64> {
        usage::seconds(&self.group)
    }

    /// Moves the plugins away and copies the replacements to their paths.
    pub(crate) fn install(&self, node: &Node) -> anyhow::Result<()> {
        for (directory, real) in DIRECTORIES {
            let program = node.path(&format!("{directory}/{PROGRAM}"));
            if program.exists() {
                // Where the links of our plugins lead, also from their other directory.
                fs::copy(program, node.path(&format!("{real}/{PROGRAM}")))?;
            }
            for name in plugins(node, directory)? {
                let place = node.path(&format!("{directory}/{name}"));
                fs::rename(&place, node.path(&format!("{real}/{name}")))?;
                fs::copy(&self.program, &place)?;
            }
        }
        Ok(())
    }

    /// Moves the plugins back.
    pub(crate) fn remove(node: &Node) -> anyhow::Result<()> {
        for (directory, real) in DIRECTORIES {
            for name in plugins(node, real)? {
                fs::rename(
                    node.path(&format!("{real}/{name}")),
                    node.path(&format!("{directory}/{name}")),
                )?;
            }
        }
        Ok(())
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

/// Lists the plugins in a directory, without the shim and the program that links of our plugins lead to.
fn plugins(node: &Node, directory: &str) -> anyhow::Result<Vec<String>> {
    let mut names = node.list(directory)?;
    names.retain(|name| {
        !matches!(
            name.as_str(),
            "multus-shim" | "passthru" | "group" | PROGRAM
        )
    });
    Ok(names)
}
