//! Programs as on the oldest kernel that is served, 4.18 of Red Hat's 8: no system call that came later is known.

use std::{
    collections::BTreeMap, convert::Infallible, ffi::OsString, os::unix::process::CommandExt as _,
    process::Command,
};

use anyhow::Context as _;
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The argument that makes this program another one, without those calls.
pub(crate) const NAME: &str = "old-kernel";
/// From 5.1 on the numbers are the same on every architecture. Whatever comes after the last of these is not known yet.
const LATER: std::ops::Range<i64> = 424..1024;

/// Becomes the program that the arguments name, whose children know no more than it does.
pub(crate) fn run(mut words: impl Iterator<Item = OsString>) -> anyhow::Result<Infallible> {
    let filter = SeccompFilter::new(
        LATER
            .map(|number| (number, Vec::new()))
            .collect::<BTreeMap<_, _>>(),
        SeccompAction::Allow,
        SeccompAction::Errno(Errno::NOSYS.raw_os_error().cast_unsigned()),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    let program = words.next().context("name a program")?;
    Err(Command::new(&program).args(words).exec()).with_context(|| program.display().to_string())
}
