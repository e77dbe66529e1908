//! Emulation of another architecture: registers QEMU at the kernel's `binfmt_misc` for the time of a run.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;

use crate::{
    programs::{self, Needs},
    sh,
};

/// The file system of `binfmt_misc`.
const BINFMT_MISC: &str = "/proc/sys/fs/binfmt_misc";
const NEEDS: Needs = Needs {
    debian: "qemu-aarch64-static qemu-arm-static",
    modules: &[],
};

/// The registration, which is removed on drop.
pub(crate) struct Emulation {
    /// The name of the entry, unless the machine had it already.
    registered: Option<String>,
    is_mounted: bool,
}

impl Emulation {
    /// Lets the kernel run programs of an architecture, by its name in a release.
    pub(crate) fn start(arch: &str, install: bool) -> anyhow::Result<Self> {
        programs::ensure(&NEEDS, install)?;
        let name = match arch {
            "arm64" => "qemu-aarch64".to_owned(),
            other => format!("qemu-{other}"),
        };
        let mut emulation = Self {
            registered: None,
            is_mounted: false,
        };
        let register = Path::new(BINFMT_MISC).join("register");
        if !register.exists() {
            sh::run(Command::new("mount").args(["-t", "binfmt_misc", "none", BINFMT_MISC]))?;
            emulation.is_mounted = true;
        }
        if !Path::new(BINFMT_MISC).join(&name).exists() {
            let file = format!("/usr/lib/binfmt.d/{name}.conf");
            let line = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {file}: there is no emulator for {arch}"))?;
            fs::write(register, line.trim())
                .context("cannot register the emulator at the kernel")?;
            emulation.registered = Some(name);
        }
        Ok(emulation)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        if let Some(name) = &self.registered {
            let _ = fs::write(Path::new(BINFMT_MISC).join(name), "-1");
        }
        if self.is_mounted {
            let _ = sh::run(Command::new("umount").arg(BINFMT_MISC));
        }
    }
}
