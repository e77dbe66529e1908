//! A machine of its own for each program of this suite: namespaces for network, mounts and processes, and empty state directories.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::Path,
    process::Command,
};

/// Prepares the namespaces, then becomes the program. `/run` has network namespaces, locks and state, `/tmp` files of tests; `/sys` shows the devices of a
/// network namespace only when it is mounted in it. The directory that `$0` names in the old `/tmp` is also in the new one.
const SETUP: &str = "\
mount -t tmpfs -o mode=755 run /run
mkdir /run/netns /run/lock
mount -t tmpfs -o mode=755 state /var/lib
mkdir /var/lib/cni /var/lib/misc
mkdir /run/tmp
mount -t tmpfs tmp /run/tmp
case \"$0\" in /tmp/*) mkdir \"/run$0\"; mount --bind \"$0\" \"/run$0\" ;; esac
mount --move /run/tmp /tmp
mount -t sysfs sysfs /sys
ip link set lo up
exec \"$@\"
";

/// Returns the command that runs a program in new namespaces. Its processes end with it.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    // With the end of the test, however it ends, everything ends.
    let mut command = Command::new("setpriv");
    command
        .args("--pdeathsig=KILL unshare --mount --net --pid --fork --kill-child".split(' '))
        .args("--mount-proc --propagation=private sh -ec".split(' '))
        .arg(SETUP)
        .arg(visible())
        .arg(program);
    command
}

/// Returns the directory of `/tmp` that has the checkout, if it is there.
fn visible() -> OsString {
    let program = env::current_exe().unwrap_or_default();
    let below = program.strip_prefix("/tmp").ok();
    let dir = below.and_then(|path| path.iter().next());
    dir.map_or_else(
        || "sandbox".into(),
        |dir| Path::new("/tmp").join(dir).into_os_string(),
    )
}
