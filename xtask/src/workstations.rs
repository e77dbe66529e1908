//! The workstations of a release: one table of how the kubectl plugin is built for them. The C compiler is that of the other programs.

use release::workstation::Workstation;

/// The properties by which the builds for workstations differ.
pub(crate) struct Facts {
    /// Rust's target.
    pub(crate) triple: &'static str,
    /// The C compiler's target.
    pub(crate) c_target: &'static str,
    pub(crate) linker: Linker,
    pub(crate) rustflags: &'static [&'static str],
}

/// The program that links for a workstation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linker {
    /// The toolchain's own, with stand-ins for the libraries of macOS.
    Own,
    /// The C compiler, which has the libraries of mingw-w64 in sources.
    CCompiler,
}

const DARWIN_AMD64: Facts = Facts {
    triple: "x86_64-apple-darwin",
    c_target: "x86_64-macos.11.0-none",
    linker: Linker::Own,
    rustflags: &[],
};

const DARWIN_ARM64: Facts = Facts {
    triple: "aarch64-apple-darwin",
    c_target: "aarch64-macos.11.0-none",
    linker: Linker::Own,
    rustflags: &[],
};

const WINDOWS_AMD64: Facts = Facts {
    triple: "x86_64-pc-windows-gnullvm",
    c_target: "x86_64-windows-gnu",
    linker: Linker::CCompiler,
    rustflags: &[],
};

/// The oldest macOS that the plugin runs on, as the C compiler's targets have it.
pub(crate) const OLDEST_MACOS: &str = "11.0";

impl Facts {
    pub(crate) fn of(workstation: Workstation) -> &'static Self {
        match workstation {
            Workstation::DarwinAmd64 => &DARWIN_AMD64,
            Workstation::DarwinArm64 => &DARWIN_ARM64,
            Workstation::WindowsAmd64 => &WINDOWS_AMD64,
        }
    }
}
