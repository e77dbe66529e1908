//! The machines of operators that are not nodes: only the kubectl plugin is built for them, and only on demand.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use object::{
    LittleEndian,
    macho::{self, MachHeader64},
    pe::IMAGE_FILE_MACHINE_AMD64,
    read::{
        macho::{LoadCommandVariant, MachHeader as _},
        pe::{ImageNtHeaders as _, PeFile64},
    },
};

use crate::tree::Tree;

/// The kubectl plugin in the `bin/` of a release.
pub const PROGRAM: &str = "kubectl-multus";

/// The plugins by workstation.
pub type Plugins = BTreeMap<Workstation, Vec<u8>>;

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workstation {
    DarwinAmd64,
    DarwinArm64,
    WindowsAmd64,
}

/// The libraries of Windows that its programs may load: everything else would have to be shipped with them.
const WINDOWS_LIBRARIES: &[&str] = &[
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

/// The directories of macOS that have the libraries which its programs may load.
const MACOS_LIBRARY_DIRS: &[&str] = &["/System/Library/Frameworks/", "/usr/lib/"];

impl Workstation {
    pub const ALL: [Self; 3] = [Self::DarwinAmd64, Self::DarwinArm64, Self::WindowsAmd64];

    /// Returns the name of its directory in `bin/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DarwinAmd64 => "darwin-amd64",
            Self::DarwinArm64 => "darwin-arm64",
            Self::WindowsAmd64 => "windows-amd64",
        }
    }

    /// Returns operating system and architecture as Go names them.
    pub(crate) fn os_and_arch(self) -> (&'static str, &'static str) {
        match self {
            Self::DarwinAmd64 => ("darwin", "amd64"),
            Self::DarwinArm64 => ("darwin", "arm64"),
            Self::WindowsAmd64 => ("windows", "amd64"),
        }
    }

    /// Returns the name of the plugin.
    pub fn program(self) -> String {
        match self {
            Self::DarwinAmd64 | Self::DarwinArm64 => PROGRAM.to_owned(),
            Self::WindowsAmd64 => format!("{PROGRAM}.exe"),
        }
    }

    /// Returns the path of the plugin in a release.
    pub fn path(self) -> String {
        format!("bin/{}/{}", self.name(), self.program())
    }

    /// Returns the workstations that a release has the plugin for.
    pub(crate) fn all_in(release: &Tree) -> impl Iterator<Item = Self> {
        let workstations = Self::ALL.into_iter();
        workstations.filter(|workstation| release.get(&workstation.path()).is_some())
    }

    /// Fails unless the program runs there with nothing but the system.
    pub fn check(self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::DarwinAmd64 => check_macos(bytes, macho::CPU_TYPE_X86_64),
            Self::DarwinArm64 => check_macos(bytes, macho::CPU_TYPE_ARM64),
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
            WINDOWS_LIBRARIES
                .iter()
                .any(|known| name.starts_with(known)),
            "it requires {name}, which Windows does not have"
        );
    }
    Ok(())
}

/// Returns the plugins under their paths in a release.
pub fn tree(plugins: &Plugins) -> Tree {
    let mut tree = Tree::default();
    for (workstation, bytes) in plugins {
        tree.add_program(workstation.path(), bytes.clone());
    }
    tree
}

fn check_macos(bytes: &[u8], cpu: macho::CpuType) -> anyhow::Result<()> {
    let context = "no 64-bit program for macOS";
    let header = MachHeader64::<LittleEndian>::parse(bytes, 0).context(context)?;
    ensure!(header.is_little_endian(), context);
    let found = header.cputype(LittleEndian);
    ensure!(
        found == cpu,
        "its processor {found:x} is not {cpu:x}, that of its name"
    );
    let mut is_signed = false;
    let mut commands = header.load_commands(LittleEndian, bytes, 0)?;
    while let Some(command) = commands.next()? {
        match command.variant()? {
            LoadCommandVariant::Dylib(library) => {
                let name = command.string(LittleEndian, library.dylib.name)?;
                let name = String::from_utf8_lossy(name);
                ensure!(
                    MACOS_LIBRARY_DIRS.iter().any(|dir| name.starts_with(dir)),
                    "it requires {name}, which macOS does not have"
                );
            }
            LoadCommandVariant::LinkeditData(_) => {
                is_signed |= command.cmd() == macho::LC_CODE_SIGNATURE;
            }
            _ => {}
        }
    }
    // The kernel ends a program without one; a signature that names no author is enough.
    ensure!(
        is_signed || cpu != macho::CPU_TYPE_ARM64,
        "it has no code signature, without which macOS starts nothing on arm64"
    );
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

    /// Returns a program for macOS that loads a library, with a code signature on demand.
    fn program_for_macos(cpu: macho::CpuType, library: &str, is_signed: bool) -> Vec<u8> {
        const DYLIB: u32 = 24;
        let command = |kind: macho::LoadCommandType, content: &[u8]| {
            let size = u32::try_from(8 + content.len()).expect("commands are short");
            [&words(&[kind.0, size]), content].concat()
        };
        let mut name = library.as_bytes().to_owned();
        name.resize((name.len() + 1).next_multiple_of(8), 0);
        let load = [words(&[DYLIB, 0, 1, 1]), name].concat();
        let mut commands = vec![command(macho::LC_LOAD_DYLIB, &load)];
        if is_signed {
            commands.push(command(macho::LC_CODE_SIGNATURE, &words(&[0, 0])));
        }
        let number = u32::try_from(commands.len()).expect("there are few");
        let commands = commands.concat();
        let size = u32::try_from(commands.len()).expect("they are short");
        let header = [0xfeed_facf, cpu.0, 0, 2, number, size, 0, 0];
        [words(&header), commands].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn program_for_macos_loads_the_systems_libraries_alone_and_is_signed() {
        let system = "/usr/lib/libSystem.B.dylib";
        let sound = program_for_macos(macho::CPU_TYPE_ARM64, system, true);
        Workstation::DarwinArm64.check(&sound).unwrap();
        let intel = program_for_macos(macho::CPU_TYPE_X86_64, system, false);
        Workstation::DarwinAmd64.check(&intel).unwrap();
        let refused = |workstation: Workstation, bytes: &[u8], expected: &str| {
            let error = workstation.check(bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused(Workstation::DarwinAmd64, &sound, "its processor");
        refused(Workstation::DarwinArm64, &intel, "its processor");
        let foreign = program_for_macos(macho::CPU_TYPE_ARM64, "/opt/lib/x.dylib", true);
        refused(
            Workstation::DarwinArm64,
            &foreign,
            "it requires /opt/lib/x.dylib",
        );
        let unsigned = program_for_macos(macho::CPU_TYPE_ARM64, system, false);
        refused(Workstation::DarwinArm64, &unsigned, "no code signature");
        refused(
            Workstation::DarwinArm64,
            b"\x7fELF",
            "no 64-bit program for macOS",
        );
    }

    #[test]
    fn program_of_another_machine_is_refused() {
        let check = |bytes: &[u8]| Workstation::WindowsAmd64.check(bytes);
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
