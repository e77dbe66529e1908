//! Moves the wall clock of one running process, and not the machine's.
//!
//! A static program reads the time through code that the kernel maps into the process, the vDSO. This module replaces that code, in
//! one process, by code that makes the system call and adds a number of seconds to the wall clock. Monotonic clocks stay right, as
//! they do when a real clock jumps, and programs that the process starts get the kernel's code again.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
};

use anyhow::{Context as _, ensure};
use object::{Object as _, ObjectSymbol as _, read::elf::ElfFile64};

use crate::sh;

const FUNCTION: &str = "__vdso_clock_gettime";

/// `clock_gettime` for x86-64; the number of seconds follows the code.
const CODE: [u8; 32] = [
    0xb8, 0xe4, 0, 0, 0, // mov eax, 228
    0x0f, 0x05, // syscall
    0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
    0x75, 0x0e, // jnz end
    0x85, 0xc0, // test eax, eax
    0x75, 0x0a, // jnz end
    0x48, 0x8b, 0x0d, 0x0a, 0, 0, 0, // mov rcx, [seconds]
    0x48, 0x01, 0x0e, // add [rsi], rcx
    0xc3, // end: ret
    0, 0, 0, 0, 0, 0,
];

/// Moves the wall clock of a process so that it is `seconds` ahead. The process must be stopped; `proc` is its directory in `/proc`.
pub(crate) fn set_offset(proc: &Path, seconds: i64) -> anyhow::Result<()> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the clock of a process can be moved on x86-64 alone: run the other parts of this suite with --part"
    );
    let memory = File::options()
        .read(true)
        .write(true)
        .open(proc.join("mem"))
        .with_context(|| format!("cannot open the memory of {}", proc.display()))?;
    let (start, end) = mapping(&fs::read_to_string(proc.join("maps"))?)
        .context("the kernel maps no code into the process")?;
    let mut image = vec![0; usize::try_from(end - start)?];
    memory.read_exact_at(&mut image, start)?;
    let at = start + function(&image)?;
    let code = [&CODE[..], &seconds.to_le_bytes()].concat();
    let replaced = at..at + u64::try_from(code.len())?;
    // No thread may be executing the code that is replaced.
    for thread in fs::read_dir(proc.join("task"))? {
        let state = thread?.path().join("syscall");
        let address = sh::until(10, "the process has stopped", || {
            address(&fs::read_to_string(&state)?).context("it runs")
        })?;
        ensure!(!replaced.contains(&address), "a thread is reading the time");
    }
    memory
        .write_all_at(&code, at)
        .context("cannot replace the code that reads the time")
}

/// Returns the address range of the vDSO.
fn mapping(maps: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

/// Returns the offset of `clock_gettime` in the vDSO.
fn function(image: &[u8]) -> anyhow::Result<u64> {
    let file: ElfFile64 = ElfFile64::parse(image).context("the kernel's code")?;
    let mut symbols = file.dynamic_symbols();
    let found = symbols.find(|symbol| symbol.name() == Ok(FUNCTION));
    Ok(found
        .with_context(|| format!("it has no {FUNCTION}"))?
        .address())
}

/// Returns the address at which a thread is stopped: the last number of its `syscall` file, which a running thread does not have.
fn address(syscall: &str) -> Option<u64> {
    let last = syscall.split_whitespace().last()?;
    u64::from_str_radix(last.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_syscall_files_are_parsed() {
        let maps = "00400000-00500000 r-xp 0 00:00 0 /bin/x\n7ffe1000-7ffe3000 r-xp 00000000 00:00 0          [vdso]\n";
        assert_eq!(mapping(maps), Some((0x7ffe_1000, 0x7ffe_3000)));
        assert_eq!(mapping(""), None);
        assert_eq!(address("running\n"), None);
        assert_eq!(address("-1 0x7ff0 0x7f54\n"), Some(0x7f54));
        assert_eq!(
            address("230 0x0 0x0 0x1 0x1 0x0 0x0 0x7ffe 0x4503\n"),
            Some(0x4503)
        );
    }
}
