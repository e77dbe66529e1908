//! A machine of its own for each program of this suite: namespaces for network, mounts and processes, and empty state directories.

use std::{ffi::OsStr, process::Command};

/// Prepares the namespaces, then becomes the program. `/run` has network namespaces, locks and state, `/tmp` files of tests; `/sys` shows the devices of a
/// network namespace only when it is mounted in it. A checkout below `/tmp` stays visible: its programs find `/tmp` as it is.
const SETUP: &str = "\
mount -t tmpfs -o mode=755 run /run
mkdir /run/netns /run/lock
mount -t tmpfs -o mode=755 state /var/lib
mkdir /var/lib/cni /var/lib/misc
case \"$1\" in /tmp/*) ;; *) mount -t tmpfs tmp /tmp ;; esac
mount -t sysfs sysfs /sys
ip link set lo up
exec \"$@\"
";

/// Returns the command that runs a program in new namespaces. Its processes end with it.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    // With the end of the test, however it ends, everything ends.
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig=KILL",
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation=private",
        "sh",
        "-ec",
        SETUP,
        "sandbox",
    ]);
    command.arg(program);
    command
}
