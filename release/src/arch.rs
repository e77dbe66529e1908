//! The architectures of a release, with the properties by which its files are checked. How they are built is a table of xtask.

use std::collections::BTreeMap;

use archive::oci::Platform;
use clap::ValueEnum;
use object::elf;

/// The programs of one architecture by name.
pub type Binaries = BTreeMap<String, Vec<u8>>;

/// An architecture, by its Go name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Arch {
    Amd64,
    Arm64,
    Arm,
}

impl Arch {
    /// Every architecture of a complete release, in the order of its indexes.
    pub const ALL: [Self; 3] = [Self::Amd64, Self::Arm64, Self::Arm];

    /// Returns the Go name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Arm => "arm",
        }
    }

    /// Finds an architecture by its Go name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Returns the architecture that this program runs on, if a release is built for it.
    pub fn host() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            "arm" => Some(Self::Arm),
            _ => None,
        }
    }

    /// Returns the platform as image indexes name it.
    pub fn platform(self) -> Platform {
        Platform {
            architecture: self.name().to_owned(),
            os: "linux".to_owned(),
            variant: (self == Self::Arm).then(|| "v7".to_owned()),
        }
    }

    /// Returns the machine in the ELF header.
    pub fn machine(self) -> elf::Machine {
        match self {
            Self::Amd64 => elf::EM_X86_64,
            Self::Arm64 => elf::EM_AARCH64,
            Self::Arm => elf::EM_ARM,
        }
    }

    pub fn is_64(self) -> bool {
        self != Self::Arm
    }
}
