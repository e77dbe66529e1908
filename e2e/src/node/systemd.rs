//! systemd as a node's service manager, in process, mount and control group namespaces of its own inside the node.

use std::fs;

use anyhow::{Context as _, ensure};

use crate::{
    node::{Node, cgroup::Cgroup},
    sh,
};

/// Where its units are, on the node.
const UNITS: &str = "/etc/systemd/system";
/// What it is to reach: nothing, so that only what a test starts runs.
const TARGET: &str = "e2e.target";
/// Joins the control group, so that it is the root of what is mounted next, and starts systemd as process 1.
const START: &str = "echo $$ >\"$0/cgroup.procs\" && exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --mount-proc sh -c \"$1\"";
/// Settings of the machine are not its business.
const INIT: &str = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys \
    && mount -t cgroup2 none /sys/fs/cgroup \
    && exec /lib/systemd/systemd --system --unit=e2e.target --show-status=no --log-target=console";

/// A running systemd; it ends with its node.
pub(crate) struct Systemd<'a> {
    node: &'a Node,
    /// Its process id on the node.
    pid: String,
}

impl<'a> Systemd<'a> {
    /// Starts it with these units, by name, in place of the machine's own. The group can go when the node has gone.
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
                // It knows by this that it is not to set up a machine.
                .env("container", "e2e")
        })?;
        let children = format!("/proc/{0}/task/{0}/children", parent.pid);
        let pid = sh::until(10, "systemd is started", || {
            let children = fs::read_to_string(node.path(&children))?;
            let mut children = children.split_whitespace();
            Ok(children.next().context("it is not")?.to_owned())
        })?;
        let systemd = Self { node, pid };
        sh::until(30, "systemd answers", || {
            let state = systemd.property(TARGET, "ActiveState")?;
            ensure!(state == "active", "{TARGET} is {state}");
            Ok(())
        })?;
        Ok(systemd)
    }

    /// What a person would type. It answers to none but processes that it can see.
    pub(crate) fn ctl(&self, words: &[&str]) -> anyhow::Result<String> {
        let target = format!("--target={}", self.pid);
        let enter = ["nsenter", &target, "--pid", "--mount", "--", "systemctl"];
        self.node.run(&[&enter, words].concat())
    }

    /// A property of a unit, as systemd has it.
    pub(crate) fn property(&self, unit: &str, name: &str) -> anyhow::Result<String> {
        let property = format!("--property={name}");
        let told = self.ctl(&["show", "--value", &property, unit])?;
        Ok(told.trim().to_owned())
    }
}
