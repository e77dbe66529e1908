//! The desks of a release: one table of their build tools.

use airgap::desk::Desk;

/// The properties by which the builds for desks differ.
pub(crate) struct Facts {
    /// Rust's target.
    pub(crate) triple: &'static str,
    /// The C compiler, which is the linker too.
    pub(crate) cc: &'static str,
    /// A library that comes with the compiler's headers.
    pub(crate) library: &'static str,
    /// The Debian package with them.
    pub(crate) package: &'static str,
    pub(crate) rustflags: &'static [&'static str],
}

const WINDOWS_AMD64: Facts = Facts {
    triple: "x86_64-pc-windows-gnu",
    cc: "x86_64-w64-mingw32-gcc",
    library: "libmingw32.a",
    package: "gcc-mingw-w64-x86-64-win32",
    // The linker writes the time into a program otherwise.
    rustflags: &["-Clink-arg=-Wl,--no-insert-timestamp"],
};

impl Facts {
    pub(crate) fn of(desk: Desk) -> &'static Self {
        match desk {
            Desk::WindowsAmd64 => &WINDOWS_AMD64,
        }
    }
}
