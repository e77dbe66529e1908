//! The architectures of a release: one table of their names, build tools and limits.

use archive::oci::Platform;
use clap::ValueEnum;

/// An architecture, by its Go name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
    Arm,
}

/// The properties by which architectures differ.
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    pub(crate) variant: Option<&'static str>,
    /// Rust's target.
    pub(crate) triple: &'static str,
    /// The linker; `rust-lld` comes with the toolchain.
    pub(crate) linker: &'static str,
    /// The C compiler, for the TLS library's primitives.
    pub(crate) cc: &'static str,
    /// Debian packages with the C compiler and, for glibc, its static library.
    pub(crate) packages: &'static [&'static str],
    pub(crate) rustflags: &'static [&'static str],
    /// Bytes that the shim may have.
    pub(crate) shim_budget: u64,
    /// The machine in the ELF header.
    pub(crate) machine: object::elf::Machine,
    pub(crate) is_64: bool,
}

/// Packs relative relocations of a position-independent program into a bitmap: 700 kB less in the daemon. musl reads it since 1.2.4.
const PACKED_RELOCATIONS: &[&str] = &["-Clink-arg=--pack-dyn-relocs=relr"];

const AMD64: Facts = Facts {
    name: "amd64",
    variant: None,
    triple: "x86_64-unknown-linux-musl",
    linker: "rust-lld",
    cc: "musl-gcc",
    packages: &["musl-tools"],
    rustflags: PACKED_RELOCATIONS,
    shim_budget: 600_000,
    machine: object::elf::EM_X86_64,
    is_64: true,
};

const ARM64: Facts = Facts {
    name: "arm64",
    variant: None,
    triple: "aarch64-unknown-linux-musl",
    linker: "rust-lld",
    cc: "aarch64-linux-gnu-gcc",
    packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    rustflags: PACKED_RELOCATIONS,
    shim_budget: 600_000,
    machine: object::elf::EM_AARCH64,
    is_64: true,
};

const ARM: Facts = Facts {
    name: "arm",
    variant: Some("v7"),
    triple: "armv7-unknown-linux-gnueabihf",
    linker: "arm-linux-gnueabihf-gcc",
    cc: "arm-linux-gnueabihf-gcc",
    packages: &["gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross"],
    // Thumb code saves a twentieth; every ARMv7 has it.
    rustflags: &["-Ctarget-feature=+crt-static,+thumb-mode"],
    shim_budget: 800_000,
    machine: object::elf::EM_ARM,
    is_64: false,
};

impl Arch {
    /// Every architecture of a complete release, in the order of its indexes.
    pub(crate) const ALL: [Self; 3] = [Self::Amd64, Self::Arm64, Self::Arm];

    pub(crate) fn facts(self) -> &'static Facts {
        match self {
            Self::Amd64 => &AMD64,
            Self::Arm64 => &ARM64,
            Self::Arm => &ARM,
        }
    }

    /// Returns the Go name.
    pub(crate) fn name(self) -> &'static str {
        self.facts().name
    }

    /// Finds an architecture by its Go name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Returns the architecture that this program runs on, if a release is built for it.
    pub(crate) fn host() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            "arm" => Some(Self::Arm),
            _ => None,
        }
    }

    /// Returns the platform as image indexes name it.
    pub(crate) fn platform(self) -> Platform {
        Platform {
            architecture: self.name().to_owned(),
            os: "linux".to_owned(),
            variant: self.facts().variant.map(str::to_owned),
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
