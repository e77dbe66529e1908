//! Programs of another architecture than this machine's: as long as a test needs it, the kernel is told who runs them.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;

use crate::{
    programs::{self, Needs},
    sh,
};

/// Where the kernel is told.
const KERNEL: &str = "/proc/sys/fs/binfmt_misc";
const NEEDS: Needs = Needs {
    debian: &[
        ("qemu-aarch64-static", "qemu-user-static"),
        ("qemu-arm-static", "qemu-user-static"),
    ],
    modules: &[],
};

/// What the kernel was told, until this goes away.
pub(crate) struct Emulation {
    /// What is to be taken back.
    told: Option<String>,
    is_mounted: bool,
}

impl Emulation {
    /// Has programs of the architecture run, by its name in a release.
    pub(crate) fn start(arch: &str, install: bool) -> anyhow::Result<Self> {
        programs::ensure(&NEEDS, install)?;
        let name = match arch {
            "arm64" => "qemu-aarch64".to_owned(),
            other => format!("qemu-{other}"),
        };
        let mut emulation = Self {
            told: None,
            is_mounted: false,
        };
        let register = Path::new(KERNEL).join("register");
        if !register.exists() {
            sh::run(Command::new("mount").args(["-t", "binfmt_misc", "none", KERNEL]))?;
            emulation.is_mounted = true;
        }
        if !Path::new(KERNEL).join(&name).exists() {
            let file = format!("/usr/lib/binfmt.d/{name}.conf");
            let line = fs::read_to_string(&file).with_context(|| {
                format!("cannot read {file}: nobody here runs programs of {arch}")
            })?;
            fs::write(register, line.trim()).context("the kernel does not take it")?;
            emulation.told = Some(name);
        }
        Ok(emulation)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        if let Some(name) = &self.told {
            let _ = fs::write(Path::new(KERNEL).join(name), "-1");
        }
        if self.is_mounted {
            let _ = sh::run(Command::new("umount").arg(KERNEL));
        }
    }
}
