//! `bench-metered`: joins a control group that accounts its CPU time, and executes the plugin that it replaces.
//!
//! Like `bench-plugin` it is one file. The real plugins, and the file with the group's path, are in [`REAL`] next to its own directory.

use std::{env, fs, io, os::unix::process::CommandExt as _, path::Path, process::Command};

/// The directory of the real plugins, next to that of this program.
const REAL: &str = "bench-real";

fn main() -> io::Result<()> {
    let own = env::args_os().next().unwrap_or_default();
    let own = Path::new(&own);
    let (Some(name), Some(home)) = (own.file_name(), own.parent().and_then(Path::parent)) else {
        return Err(io::Error::other("started without a path"));
    };
    let real = home.join(REAL);
    let group = fs::read_to_string(real.join("group"))?;
    fs::write(Path::new(group.trim()).join("cgroup.procs"), "0")?;
    // exec returns only an error.
    let mut plugin = Command::new(real.join(name));
    Err(plugin.args(env::args_os().skip(1)).exec())
}
