//! The architectures of a release: one table of how they are built and of their limits, and the option that chooses them.

pub(crate) use release::arch::Arch;

/// The properties by which the builds for architectures differ.
pub(crate) struct Facts {
    /// Rust's target.
    pub(crate) triple: &'static str,
    pub(crate) std: Std,
    pub(crate) rustflags: &'static [&'static str],
    /// The C compiler's target.
    pub(crate) c_target: &'static str,
    /// The processor that C is compiled for, in the C compiler's words.
    pub(crate) c_cpu: &'static str,
    /// Bytes that the shim may have.
    pub(crate) shim_budget: u64,
}

/// The source of a target's standard library and C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Std {
    /// A component of the pinned toolchain, which has the C library in it.
    Component,
    /// Built from the toolchain's sources, with the C library of the C compiler's wheel.
    Built,
}

/// The linker of every target, which comes with the toolchain.
pub(crate) const LINKER: &str = "rust-lld";

/// Flags of the C compiler, for the TLS library's primitives. They are all: the defaults of the crate `cc` are off.
pub(crate) const C_FLAGS: &[&str] = &["-Os", "-fPIC", "-ffunction-sections", "-fdata-sections"];

/// Packs relative relocations of a position-independent program into a bitmap: 700 kB less in the daemon. musl reads it since 1.2.4.
const PACKED_RELOCATIONS: &[&str] = &["-Clink-arg=--pack-dyn-relocs=relr"];

const AMD64: Facts = Facts {
    triple: "x86_64-unknown-linux-musl",
    std: Std::Component,
    rustflags: PACKED_RELOCATIONS,
    c_target: "x86_64-linux-musl",
    c_cpu: "baseline",
    shim_budget: 600_000,
};

const ARM64: Facts = Facts {
    triple: "aarch64-unknown-linux-musl",
    std: Std::Component,
    rustflags: PACKED_RELOCATIONS,
    c_target: "aarch64-linux-musl",
    c_cpu: "baseline",
    shim_budget: 600_000,
};

const ARM: Facts = Facts {
    triple: "armv7-unknown-linux-musleabihf",
    std: Std::Built,
    // Thumb code saves a twentieth; every ARMv7 has it.
    rustflags: &["-Ctarget-feature=+thumb-mode"],
    c_target: "arm-linux-musleabihf",
    // As Rust's target has it: not every ARMv7 has NEON and 32 registers for floating point.
    c_cpu: "generic+v7a-neon-d32",
    shim_budget: 600_000,
};

impl Facts {
    pub(crate) fn of(arch: Arch) -> &'static Self {
        match arch {
            Arch::Amd64 => &AMD64,
            Arch::Arm64 => &ARM64,
            Arch::Arm => &ARM,
        }
    }
}

/// The option `--arch`, which most commands share.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arches {
    /// Architectures, comma separated; all unless set
    #[arg(long = "arch", value_enum, value_delimiter = ',', value_name = "ARCH")]
    explicit: Vec<Arch>,
}

impl Arches {
    /// Stands for an option with these values.
    pub(crate) fn of(explicit: Vec<Arch>) -> Self {
        Self { explicit }
    }

    /// Returns the architectures sorted and without duplicates.
    pub(crate) fn list(&self) -> Vec<Arch> {
        let mut list = self.explicit.clone();
        if list.is_empty() {
            list = Arch::ALL.to_vec();
        }
        list.sort();
        list.dedup();
        list
    }
}
