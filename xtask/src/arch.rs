//! The architectures of a release: one table of their build tools and limits, and the option that chooses them.

pub(crate) use airgap::arch::Arch;

/// The properties by which the builds for architectures differ.
pub(crate) struct Facts {
    /// Rust's target.
    pub(crate) triple: &'static str,
    /// The linker; `rust-lld` comes with the toolchain.
    pub(crate) linker: &'static str,
    /// The C compiler, for the TLS library's primitives and for zstd.
    pub(crate) cc: &'static str,
    /// Debian packages with the C compiler and, for glibc, its static library.
    pub(crate) packages: &'static [&'static str],
    pub(crate) rustflags: &'static [&'static str],
    /// Bytes that the shim may have.
    pub(crate) shim_budget: u64,
}

/// Packs relative relocations of a position-independent program into a bitmap: 700 kB less in the daemon. musl reads it since 1.2.4.
const PACKED_RELOCATIONS: &[&str] = &["-Clink-arg=--pack-dyn-relocs=relr"];

const AMD64: Facts = Facts {
    triple: "x86_64-unknown-linux-musl",
    linker: "rust-lld",
    cc: "musl-gcc",
    packages: &["musl-tools"],
    rustflags: PACKED_RELOCATIONS,
    shim_budget: 600_000,
};

const ARM64: Facts = Facts {
    triple: "aarch64-unknown-linux-musl",
    linker: "rust-lld",
    cc: "aarch64-linux-gnu-gcc",
    packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    rustflags: PACKED_RELOCATIONS,
    shim_budget: 600_000,
};

const ARM: Facts = Facts {
    triple: "armv7-unknown-linux-gnueabihf",
    linker: "arm-linux-gnueabihf-gcc",
    cc: "arm-linux-gnueabihf-gcc",
    packages: &["gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross"],
    // Thumb code saves a twentieth; every ARMv7 has it.
    rustflags: &["-Ctarget-feature=+crt-static,+thumb-mode"],
    shim_budget: 800_000,
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
