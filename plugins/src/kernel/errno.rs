//! Errors of the kernel, in the words that CNI plugins print.

use std::fmt;

use cni::CniError;

use crate::error::{Cause, failure};

/// An error number of a system call or of netlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    #[cfg(test)]
    pub(crate) const EPERM: Self = Self(1);
    pub(crate) const ENOENT: Self = Self(2);
    pub(crate) const ESRCH: Self = Self(3);
    pub(crate) const EEXIST: Self = Self(17);
    pub(crate) const ENODEV: Self = Self(19);
    pub(crate) const EINVAL: Self = Self(22);
    pub(crate) const EOPNOTSUPP: Self = Self(95);
}

impl Cause for Errno {
    fn with(self, what: &str) -> CniError {
        failure!("{what}: {self}")
    }
}

impl Cause for std::io::Error {
    fn with(self, what: &str) -> CniError {
        match self.raw_os_error() {
            Some(number) => Errno(number).with(what),
            None => failure!("{what}: {self}"),
        }
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

/// An I/O error that is not a system call's is EIO.
impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(5))
    }
}

/// The words are those that runtimes and users search for: lower case, without the number. Linux has the same numbers on every
/// architecture that is built.
impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            1 => "operation not permitted",
            2 => "no such file or directory",
            3 => "no such process",
            4 => "interrupted system call",
            5 => "input/output error",
            6 => "no such device or address",
            9 => "bad file descriptor",
            11 => "resource temporarily unavailable",
            12 => "cannot allocate memory",
            13 => "permission denied",
            16 => "device or resource busy",
            17 => "file exists",
            19 => "no such device",
            20 => "not a directory",
            21 => "is a directory",
            22 => "invalid argument",
            23 => "too many open files in system",
            24 => "too many open files",
            28 => "no space left on device",
            30 => "read-only file system",
            34 => "numerical result out of range",
            36 => "file name too long",
            38 => "function not implemented",
            71 => "protocol error",
            75 => "value too large for defined data type",
            90 => "message too long",
            93 => "protocol not supported",
            95 => "operation not supported",
            97 => "address family not supported by protocol",
            98 => "address already in use",
            99 => "cannot assign requested address",
            100 => "network is down",
            101 => "network is unreachable",
            105 => "no buffer space available",
            110 => "connection timed out",
            111 => "connection refused",
            113 => "no route to host",
            number => return write!(formatter, "errno {number}"),
        };
        formatter.write_str(text)
    }
}

impl std::error::Error for Errno {}
