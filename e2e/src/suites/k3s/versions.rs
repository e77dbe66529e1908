//! K3s is upgraded and rolled back under running pods, loses its power, is killed by its own script, and is uninstalled by its own script
//! before Multus is.

use std::path::Path;

use anyhow::{Context as _, ensure};

use super::{
    CHART, DistroCluster, ensure_through_us,
    node::{BIN, DATA, Distro, K3S, MOVED_K3S, put_program},
    releases::released,
};
use crate::{
    cluster::pods::Pods as _,
    guest::Guest,
    node::{inspect::nothing_left, network::NodeNetwork},
    plumbing::{self, Plumbing},
    programs::k3s::K3s,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (mut cluster, network) = report.check(
        "a server runs with Multus, installed before its first start",
        || {
            ensure!(
                k3s.next.is_file(),
                "there is no {}: put the program of another version there",
                k3s.next.display()
            );
            let network = NodeNetwork::new()?;
            let cluster = DistroCluster::start(env, &network, k3s, |server| {
                server.take_medium()?;
                server.node.run(&["multus-distro", "install"])?;
                ensure_through_us(server, "server")
            })?;
            released(&cluster, "k3s-multus-crd", 0)?;
            released(&cluster, CHART, 0)?;
            cluster.daemons_are_ready()?;
            Ok((cluster, network))
        },
    )?;
    let old = cluster.old_pods(report)?;
    let (machine, guest) = report.check("a machine runs in a pod", || {
        let created = cluster.create("machine", 9)?;
        cluster.inspect(&created)?;
        let guest = Guest::start(env, &cluster.namespace_of(&created[0])?, BRIDGED)?;
        Ok((created, guest))
    })?;
    report.check(
        "another version of K3s starts: pods keep their networks, new ones start, and the machine loses no packet",
        || {
            let packets = guest.ping(&cluster.server().node)?;
            cluster.change_version(&k3s.next, &old, ("next", 2))?;
            packets.end(&cluster.server().node)
        },
    )?;
    report.check("the former version starts again: the same", || {
        let packets = guest.ping(&cluster.server().node)?;
        cluster.change_version(&k3s.program, &old, ("former", 3))?;
        packets.end(&cluster.server().node)
    })?;
    report.check("the machine's pod is deleted", || {
        guest.end(&cluster.namespace_of(&machine[0])?, BRIDGED)?;
        cluster.delete(&machine)
    })?;
    report.check(
        "after a power cut K3s starts its pods again with their networks",
        || {
            let before = cluster.restarts(&old[0])?;
            cluster.reboot(env, &network)?;
            cluster.started_again(&old, before)
        },
    )?;
    for (where_to, distro) in [("another place", &MOVED_K3S), ("its place", &K3S)] {
        report.check(
            &format!("K3s' data directory is moved to {where_to}: its pods start again with their networks"),
            || cluster.move_data(distro, &old),
        )?;
    }
    report.check(
        "after k3s-killall.sh K3s starts its pods again with their networks",
        || {
            let script = format!("{BIN}/k3s-killall.sh");
            let before = cluster.restarts(&old[0])?;
            cluster.end()?;
            cluster.server().node.run(&["sh", &script])?;
            let left = cluster.server().node.run(&["ps", "-e", "-o", "args="])?;
            let runs = left.lines().find(|line| line.contains("multus"));
            ensure!(runs.is_none(), "there runs {runs:?}");
            cluster.restart()?;
            cluster.started_again(&old, before)?;
            let late = cluster.create("late", 4)?;
            cluster.inspect(&late)?;
            cluster.delete(&[old.clone(), late].concat())?;
            nothing_left(&cluster.server().node)
        },
    )?;
    report.check(
        "after k3s-uninstall.sh, uninstall takes away what is left of ours, but for the daemon's directories",
        || {
            cluster.end()?;
            let node = &cluster.server().node;
            node.run(&["sh", &format!("{BIN}/k3s-uninstall.sh")])?;
            node.run(&["multus-distro", "uninstall"])?;
            let dirs = [
                "/etc/systemd",
                "/var/lib/rancher",
                "/var/lib/cni",
                "/var/lib/multus",
                "/run",
            ];
            let ours = ["-path", "*multus*", "-not", "-type", "d"];
            // Not every node has all of these directories.
            let find = ["sh", "-c", "find \"$@\" 2>/dev/null || true", "find"];
            let found = node.run(&[&find[..], &dirs, &ours].concat())?;
            // No daemon was left that could remove its own directories; the page says so.
            let own = ["/var/lib/multus/", "/run/multus/"];
            let mut found = found.lines();
            let other = found.find(|path| !own.iter().any(|dir| path.starts_with(dir)));
            ensure!(other.is_none(), "there is {other:?}");
            Ok(())
        },
    )
}

/// The interface of pods that is one of a bridge.
const BRIDGED: &str = "net1";

impl DistroCluster {
    fn namespace_of(&self, pod: &str) -> anyhow::Result<Plumbing<'_>> {
        let nodes = self.nodes.iter().map(|member| &member.node);
        plumbing::of(nodes, &self.pod(pod)?)
    }

    /// Starts K3s with another program, under pods that have to keep their networks.
    pub(super) fn change_version(
        &mut self,
        program: &Path,
        old: &[String],
        (kind, number): (&str, u8),
    ) -> anyhow::Result<()> {
        let former = self.running()?;
        self.upgrade(old, (kind, number), |cluster| {
            for member in &cluster.nodes {
                put_program(&member.node, program)?;
            }
            cluster.restart()?;
            let now = cluster.running()?;
            ensure!(now != former, "K3s still runs {now}");
            Ok(())
        })
    }

    /// Replaces the distro under pods that have to keep their networks.
    pub(in crate::suites) fn upgrade(
        &mut self,
        old: &[String],
        (kind, number): (&str, u8),
        replace: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let before = self.inspect(old)?;
        replace(self)?;
        self.daemons_are_ready()?;
        // A kubelet that has just started knows no pod for a moment.
        sh::until(60, "the pods have their networks", || {
            let after = self.inspect(old)?;
            ensure!(after == before, "{before:?} became {after:?}");
            Ok(())
        })?;
        let new = self.create(kind, number)?;
        self.inspect(&new)?;
        self.delete(&new)?;
        for pod in old {
            let restarts = self.restarts(pod)?;
            ensure!(restarts == 0, "{pod} was restarted {restarts} times");
        }
        Ok(())
    }

    /// Moves the server's data directory while K3s is stopped, and starts it there. A link stays at the former place, which is in the
    /// kubeconfigs that a server has written for itself: without it K3s does not start.
    fn move_data(&mut self, distro: &'static Distro, old: &[String]) -> anyhow::Result<()> {
        let before = self.restarts(&old[0])?;
        self.end()?;
        let member = &mut self.nodes[0];
        let former = member.distro.data;
        let mut kill = member.node.command("sh");
        kill.arg(format!("{BIN}/k3s-killall.sh"));
        // The script finds containers by the directory of their program.
        sh::run(kill.env("K3S_DATA_DIR", former))?;
        // Of the way back it is the link of the first move.
        let move_all = "rm -f \"$2\" && mv \"$1\" \"$2\" && ln -s \"$2\" \"$1\"";
        let places = ["sh", former, distro.data];
        member
            .node
            .run(&[&["sh", "-c", move_all][..], &places].concat())?;
        member.set("data-dir", distro.data.into())?;
        member.distro = distro;
        self.restart()?;
        self.started_again(old, before)
    }

    /// Returns how often a pod's container was started again.
    pub(super) fn restarts(&self, pod: &str) -> anyhow::Result<u64> {
        let count = &self.pod(pod)?["status"]["containerStatuses"][0]["restartCount"];
        count.as_u64().context("a container has a count")
    }

    /// Waits until pods are started once more; fails unless they have their networks, and daemons are ready.
    pub(super) fn started_again(&self, pods: &[String], before: u64) -> anyhow::Result<()> {
        self.daemons_are_ready()?;
        sh::until(120, "the pod is started again", || {
            let now = self.restarts(&pods[0])?;
            ensure!(now > before, "it was restarted {now} times");
            Ok(())
        })?;
        self.inspect(pods).map(drop)
    }

    /// Returns the program of K3s that runs on the server; its directory has the version's name. The link `data/current` stays behind when
    /// a former version starts again.
    fn running(&self) -> anyhow::Result<String> {
        let list = "for one in /proc/[0-9]*; do readlink $one/exe || true; done";
        let all = self.server().node.run(&["sh", "-c", list])?;
        let mut programs: Vec<_> = all
            .lines()
            .filter(|path| path.starts_with(DATA) && path.ends_with("/bin/k3s"))
            .collect();
        programs.sort_unstable();
        programs.dedup();
        ensure!(programs.len() == 1, "there run {programs:?}");
        Ok(programs[0].to_owned())
    }
}
