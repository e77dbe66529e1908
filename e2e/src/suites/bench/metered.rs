//! `bench-metered`: goes into a control group that counts its time, and becomes the plugin in whose place it lies.
//!
//! Like `bench-plugin` it stands alone. The real plugins, and the file that names the group, are in the folder [`REAL`] beside its own.

use std::{env, fs, io, os::unix::process::CommandExt as _, path::Path, process::Command};

/// The folder of the real plugins, beside that of this program.
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
    // It returns only to say why not.
    let mut plugin = Command::new(real.join(name));
    Err(plugin.args(env::args_os().skip(1)).exec())
}
