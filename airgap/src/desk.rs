//! The machines of operators that are no nodes: only the kubectl plugin is built for them, and only on demand.

use anyhow::{Context as _, ensure};
use object::{
    LittleEndian,
    pe::IMAGE_FILE_MACHINE_AMD64,
    read::pe::{ImageNtHeaders as _, PeFile64},
};

use crate::tree::Tree;

/// The kubectl plugin in the `bin/` of a release.
pub const PROGRAM: &str = "kubectl-multus";

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Desk {
    WindowsAmd64,
}

/// The libraries of Windows that its programs may load: everything else would have to be shipped with them.
const OF_WINDOWS: &[&str] = &[
    "advapi32.dll",
    "api-ms-win-",
    "bcrypt.dll",
    "bcryptprimitives.dll",
    "crypt32.dll",
    "kernel32.dll",
    "msvcrt.dll",
    "ntdll.dll",
    "secur32.dll",
    "userenv.dll",
    "ws2_32.dll",
];

impl Desk {
    pub const ALL: [Self; 1] = [Self::WindowsAmd64];

    /// Returns the name of its directory in `bin/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::WindowsAmd64 => "windows-amd64",
        }
    }

    /// Returns operating system and architecture as Go names them.
    pub fn os_and_arch(self) -> (&'static str, &'static str) {
        match self {
            Self::WindowsAmd64 => ("windows", "amd64"),
        }
    }

    /// Returns the name of the plugin.
    pub fn program(self) -> String {
        match self {
            Self::WindowsAmd64 => format!("{PROGRAM}.exe"),
        }
    }

    /// Returns the path of the plugin in a release.
    pub fn path(self) -> String {
        format!("bin/{}/{}", self.name(), self.program())
    }

    /// Returns the desks that a release has the plugin for.
    pub fn all_in(release: &Tree) -> impl Iterator<Item = Self> {
        let desks = Self::ALL.into_iter();
        desks.filter(|desk| release.get(&desk.path()).is_some())
    }

    /// Fails unless the program runs there with nothing but the system.
    pub fn check(self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::WindowsAmd64 => check_windows(bytes),
        }
    }
}

fn check_windows(bytes: &[u8]) -> anyhow::Result<()> {
    let file = PeFile64::parse(bytes).context("no 64-bit program for Windows")?;
    let machine = file.nt_headers().file_header().machine.get(LittleEndian);
    ensure!(
        machine == IMAGE_FILE_MACHINE_AMD64,
        "its machine {machine:x} is not that of amd64"
    );
    let Some(table) = file.import_table()? else {
        return Ok(());
    };
    let mut descriptors = table.descriptors()?;
    while let Some(descriptor) = descriptors.next()? {
        let name = table.name(descriptor.name.get(LittleEndian))?;
        let name = String::from_utf8_lossy(name).to_lowercase();
        ensure!(
            OF_WINDOWS.iter().any(|known| name.starts_with(known)),
            "it requires {name}, which Windows does not have"
        );
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the smallest program for Windows that passes, followed by a text.
    pub(crate) fn smallest_program(text: &[u8]) -> Vec<u8> {
        let headers = 0x40 + 4 + 20 + size_of::<object::pe::ImageOptionalHeader64>();
        let mut bytes = vec![0; headers];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[0x3c] = 0x40;
        bytes[0x40..0x44].copy_from_slice(b"PE\0\0");
        let machine = IMAGE_FILE_MACHINE_AMD64.0.to_le_bytes();
        bytes[0x44..0x46].copy_from_slice(&machine);
        // The size of the optional header, which has no directories, and its magic.
        bytes[0x54] = u8::try_from(headers - 0x58).expect("the header is short");
        bytes[0x58..0x5a].copy_from_slice(&[0x0b, 0x02]);
        bytes.extend_from_slice(text);
        bytes
    }

    #[test]
    fn program_of_another_machine_is_refused() {
        let check = |bytes: &[u8]| Desk::WindowsAmd64.check(bytes);
        let sound = smallest_program(b"text");
        check(&sound).unwrap();
        let mut other = sound.clone();
        other[0x44] = 0;
        let error = check(&other).unwrap_err().to_string();
        assert!(error.contains("is not that of amd64"), "{error}");
        let error = check(b"\x7fELF").unwrap_err().to_string();
        assert_eq!(error, "no 64-bit program for Windows");
    }
}
