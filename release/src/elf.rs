//! Checks of a program before it is shipped: it is static, for the right machine, and has no path of the build machine in it.

use anyhow::{Context as _, bail, ensure};
use object::{
    Endianness,
    elf::{FileHeader32, FileHeader64, PT_DYNAMIC, PT_INTERP},
    read::elf::{Dyn as _, FileHeader, ProgramHeader as _},
};

use crate::arch::Arch;

/// Fails unless the program runs on `arch` with nothing but a kernel.
pub fn check_static(bytes: &[u8], arch: Arch) -> anyhow::Result<()> {
    if arch.is_64() {
        check::<FileHeader64<Endianness>>(bytes, arch)
    } else {
        check::<FileHeader32<Endianness>>(bytes, arch)
    }
}

fn check<Elf: FileHeader<Endian = Endianness>>(bytes: &[u8], arch: Arch) -> anyhow::Result<()> {
    let name = arch.name();
    let header = Elf::parse(bytes).with_context(|| format!("no ELF file for {name}"))?;
    let endian = header.endian()?;
    let machine = header.e_machine(endian);
    ensure!(
        machine == arch.machine(),
        "ELF machine {machine} is not that of {name}"
    );
    for segment in header.program_headers(endian, bytes)? {
        match segment.p_type(endian) {
            PT_INTERP => bail!("it requires an interpreter, so it is not static"),
            PT_DYNAMIC => {
                let entries = segment.dynamic(endian, bytes)?.unwrap_or_default();
                let needs = |entry: &Elf::Dyn| entry.tag(endian) == object::elf::DT_NEEDED;
                ensure!(
                    !entries.iter().any(needs),
                    "it requires a shared library, so it is not static"
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Fails if one of the paths occurs in the program.
pub fn check_has_none(bytes: &[u8], paths: &[&str]) -> anyhow::Result<()> {
    for path in paths {
        ensure!(
            !contains(bytes, path.as_bytes()),
            "it holds the path {path} of this machine, so another checkout would make other bytes"
        );
    }
    Ok(())
}

/// Returns whether `part` occurs in `bytes`.
pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some((&first, _)) = part.split_first() else {
        return true;
    };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        rest = &rest[at..];
        if rest.starts_with(part) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_at_any_offset() {
        assert!(contains(b"aab", b"ab") && contains(b"x", b"") && contains(b"ab", b"ab"));
        assert!(!contains(b"aa", b"ab") && !contains(b"a", b"ab"));
    }

    #[test]
    fn dynamic_program_is_refused() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let host = Arch::host().expect("tests run where a release is built");
        let error = check_static(&own, host).unwrap_err().to_string();
        assert!(error.contains("interpreter"), "{error}");
        let other = match host {
            Arch::Amd64 => Arch::Arm64,
            _ => Arch::Amd64,
        };
        let error = check_static(&own, other).unwrap_err().to_string();
        assert!(error.contains("not that of"), "{error}");
        assert!(check_static(b"#!/bin/sh", host).is_err());
    }
}
