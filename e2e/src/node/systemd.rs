//! systemd as the service manager of a node, in process, mount and control group namespaces of its own inside the node.

use std::fs;

use anyhow::{Context as _, ensure};

use crate::{
    node::{Node, cgroup::Cgroup},
    sh,
};

/// The directory of units on the node.
const UNITS: &str = "/etc/systemd/system";
/// The default target: it wants no unit, so that only units run which a test starts.
const TARGET: &str = "e2e.target";
/// Joins the control group, which becomes the root of the next mount, and starts systemd as process 1.
const START: &str = "echo $$ >\"$0/cgroup.procs\" && exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --mount-proc sh -c \"$1\"";
/// Makes the machine's sysctls read-only for systemd.
const INIT: &str = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys \
    && mount -t cgroup2 none /sys/fs/cgroup \
    && exec /lib/systemd/systemd --system --unit=e2e.target --show-status=no --log-target=console";

/// A running systemd, which ends with its node.
pub(crate) struct Systemd<'a> {
    node: &'a Node,
    /// Its process ID on the node.
    pid: String,
}

impl<'a> Systemd<'a> {
    /// Starts systemd with these units, by name, instead of the machine's own. The control group must outlive the node.
    pub(crate) fn start(
        node: &'a Node,
        cgroup: &Cgroup,
        units: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let own = node.dir.join("units");
        fs::create_dir_all(&own)?;
        fs::write(own.join(TARGET), "[Unit]\nDefaultDependencies=no\n")?;
        for (name, text) in units {
            fs::write(own.join(name), text)?;
        }
        let own = own.to_str().context("the path is no text")?;
        node.run(&["mount", "--bind", own, UNITS])?;
        let group = cgroup.unified()?;
        let parent = node.serve("systemd", "sh", |command| {
            command
                .args(["-c", START])
                .arg(&group)
                .arg(INIT)
                // This variable tells systemd that it runs in a container.
                .env("container", "e2e")
        })?;
        let children = format!("/proc/{0}/task/{0}/children", parent.pid);
        let pid = sh::until(10, "systemd is started", || {
            let children = fs::read_to_string(node.path(&children))?;
            let mut children = children.split_whitespace();
            Ok(children.next().context("it has not started")?.to_owned())
        })?;
        let systemd = Self { node, pid };
        sh::until(30, "systemd answers", || {
            let state = systemd.property(TARGET, "ActiveState")?;
            ensure!(state == "active", "{TARGET} is {state}");
            Ok(())
        })?;
        Ok(systemd)
    }

    /// Runs systemctl in systemd's process namespace, because systemd answers only processes that it can see.
    pub(crate) fn ctl(&self, args: &[&str]) -> anyhow::Result<String> {
        let target = format!("--target={}", self.pid);
        let enter = ["nsenter", &target, "--pid", "--mount", "--", "systemctl"];
        self.node.run(&[&enter, args].concat())
    }

    /// Returns a property of a unit.
    pub(crate) fn property(&self, unit: &str, name: &str) -> anyhow::Result<String> {
        let property = format!("--property={name}");
        let value = self.ctl(&["show", "--value", &property, unit])?;
        Ok(value.trim().to_owned())
    }
}
