//! Programs as on the oldest supported kernel, 4.18 of RHEL 8: a seccomp filter refuses every later system call with ENOSYS.

use std::{
    collections::BTreeMap, convert::Infallible, ffi::OsString, os::unix::process::CommandExt as _,
    process::Command,
};

use anyhow::Context as _;
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The argument that makes this program execute another one without those system calls.
pub(crate) const NAME: &str = "old-kernel";
/// Numbers of the later system calls: since 5.1 they are the same on every architecture, and no kernel has one of 1024 or more.
const LATER: std::ops::Range<i64> = 424..1024;

/// Executes the program that the arguments name; the filter applies to its children, too.
pub(crate) fn run(mut args: impl Iterator<Item = OsString>) -> anyhow::Result<Infallible> {
    let filter = SeccompFilter::new(
        LATER
            .map(|number| (number, Vec::new()))
            .collect::<BTreeMap<_, _>>(),
        SeccompAction::Allow,
        SeccompAction::Errno(Errno::NOSYS.raw_os_error().cast_unsigned()),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    let program = args.next().context("the arguments name no program")?;
    Err(Command::new(&program).args(args).exec()).with_context(|| program.display().to_string())
}
