//! A K3s whose tree has our charts, changed and built as chart/consumers' page says: its flag `--multus` installs them, nothing happens
//! without it, and `--disable multus` takes them away again. multus-distro starts none of it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use docs::{Check, Pages};
use serde_json::json;

use super::{ALL, DEADLINE, DistroCluster, charts::manifest, node::BIN};
use crate::{
    cluster::pods::Pods as _,
    file_server::FileServer,
    node::network::NodeNetwork,
    programs::k3s::K3s,
    report::{Checked, Report},
    sh,
    test_env::{TestEnv, arch},
};

/// The page's directory, and the step on the page that changes K3s' tree.
const CONSUMERS: &str = "chart/consumers";
const STEP: &str = "compiled";
/// The file that K3s writes with the flag.
const MANIFEST: &str = "multus.yaml";

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    let k3s = report.check(
        "chart/consumers: K3s is built of a tree with our charts, as the page says",
        || k3s.build_changed(&env.dir.join("tree"), |sources| change(env, sources)),
    )?;
    // The fields are dropped in this order.
    let (mut cluster, _network) = report.check(
        "without --multus nothing is installed, and pods have the default network alone",
        || {
            let network = NodeNetwork::new()?;
            let cluster = DistroCluster::start(env, &network, &k3s, |server| {
                let archive = format!("multus-airgap-images-{}.tar", arch());
                server.add_images(&[env.dist.join("airgap").join(archive)])?;
                let line = server.command_line()?;
                ensure!(
                    line == format!("{BIN}/k3s server"),
                    "the unit starts {line}"
                );
                Ok(())
            })?;
            cluster.manifests_are_read(1)?;
            cluster.charts_are_of_the_release(env)?;
            cluster.is_without_charts()?;
            sh::until(DEADLINE, "pods can be created", || {
                cluster.kubectl(&["get", "serviceaccount", "default"])
            })?;
            cluster.default_network_alone("early")?;
            Ok((cluster, network))
        },
    )?;
    report.check("it starts again with --multus", || {
        cluster.server().set("multus", true.into())?;
        cluster.restart()
    })?;
    cluster.installed(report)?;
    report.check("no image was pulled, and networks can be defined", || {
        cluster.define_networks()?;
        cluster.ensure_not_pulled()
    })?;
    cluster.pods(report)?;
    report.check(
        "a start without the flag leaves charts, networks and pods as they are",
        || {
            let networks = cluster.networks()?;
            let pods = cluster.create("stays", 5)?;
            let before = (cluster.inspect(&pods)?, cluster.generations()?);
            cluster.server().set("multus", false.into())?;
            cluster.restart()?;
            cluster.manifests_are_read(2)?;
            cluster.daemons_are_ready()?;
            let now = (cluster.inspect(&pods)?, cluster.generations()?);
            ensure!(now == before, "{before:?} became {now:?}");
            cluster.delete(&pods)?;
            cluster.networks_stay(&networks)
        },
    )?;
    report.check(
        "with --disable multus K3s removes charts and manifest, and networks stay",
        || cluster.disabled(),
    )?;
    report.check(
        "and installs them again: the same networks, new pods",
        || {
            let networks = cluster.networks()?;
            cluster.restart()?;
            cluster.daemons_are_ready()?;
            cluster.networks_stay(&networks)?;
            let pods = cluster.create("again", 6)?;
            cluster.inspect(&pods)?;
            cluster.delete(&pods)
        },
    )?;
    report.check(
        "a server that runs no agent stages the manifest without bootstrap",
        || cluster.without_agent(),
    )
}

/// Changes K3s' tree by the page's step, and runs the lines that the patch adds to K3s' scripts. The scripts' own lines would fetch runc
/// and containerd.
fn change(env: &TestEnv, sources: &Path) -> anyhow::Result<()> {
    let pages = Pages::of_checkout().context("cannot read the pages")?;
    let consumers = pages.root.join(CONSUMERS);
    let page = pages.get(&format!("{CONSUMERS}/README.md"));
    let mut blocks = page.context("there is no page")?.blocks.iter();
    let is_it = |block: &&docs::Block| matches!(&block.check, Ok(Check::Suite { suite, step, .. }) if suite == "k3s" && step == STEP);
    let block = blocks.find(is_it);
    let block = block.with_context(|| format!("the page has no step {STEP}"))?;
    let release = FileServer::serve(&env.dist)?;
    let step = block
        .text
        .replace("https://release.example/vX.Y.Z", &release.url)
        .replace("X.Y.Z", &env.version()?);
    let patch = fs::read_to_string(consumers.join("k3s.patch"))?;
    for script in [step, lines_of_scripts(&patch)] {
        let mut shell = Command::new("bash");
        shell
            .current_dir(sources)
            .env("CONSUMERS", &consumers)
            .args(["-o", "errexit", "-o", "pipefail", "-c", &script]);
        sh::run(&mut shell)?;
    }
    Ok(())
}

/// Returns the lines that a patch adds to files in `scripts`.
fn lines_of_scripts(patch: &str) -> String {
    let mut is_script = false;
    let mut lines = String::new();
    for line in patch.lines() {
        if let Some(file) = line.strip_prefix("+++ ") {
            is_script = file.starts_with("b/scripts/");
        } else if let Some(added) = line.strip_prefix('+').filter(|_| is_script) {
            lines += added;
            lines.push('\n');
        }
    }
    lines
}

impl DistroCluster {
    /// Starts K3s with the flag and with its component disabled; afterwards it is disabled no more.
    fn disabled(&mut self) -> anyhow::Result<()> {
        let networks = self.networks()?;
        let disabled = self.server().settings()?["disable"].clone();
        let mut more = disabled.clone();
        let list = more.as_array_mut();
        list.context("the suite disables components")?
            .push(json!("multus"));
        self.server().set("disable", more)?;
        self.server().set("multus", true.into())?;
        self.restart()?;
        self.wait_until_removed()?;
        self.manifests_are_read(3)?;
        self.is_without_charts()?;
        self.networks_stay(&networks)?;
        self.default_network_alone("late")?;
        self.server().set("disable", disabled)
    }

    /// Starts K3s without an agent.
    fn without_agent(&mut self) -> anyhow::Result<()> {
        let before = self.staged()?;
        let bootstrap = "  bootstrap: true\n";
        ensure!(before.contains(bootstrap), "it is {before}");
        self.server().set("disable-agent", true.into())?;
        self.end()?;
        let server = &mut self.nodes[0];
        fs::remove_file(server.node.path(&manifest(MANIFEST)))?;
        server.start()?;
        let expected = before.replace(bootstrap, "");
        sh::until(DEADLINE, "K3s stages it", || {
            let now = self.staged()?;
            ensure!(now == expected, "it is {now}");
            Ok(())
        })
    }

    /// Fails when a manifest or a HelmChart of ours is there.
    fn is_without_charts(&self) -> anyhow::Result<()> {
        let file = manifest(MANIFEST);
        let path = self.server().node.path(&file);
        ensure!(!path.exists(), "K3s has staged {file}");
        let charts = self.kubectl(&["get", "helmcharts", ALL, "--output=name"])?;
        ensure!(charts.is_empty(), "there are {charts}");
        Ok(())
    }

    /// Returns the manifest that K3s has written.
    fn staged(&self) -> anyhow::Result<String> {
        let file = manifest(MANIFEST);
        fs::read_to_string(self.server().node.path(&file)).context(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_patch_are_those_of_scripts_alone() {
        let patch = "--- a/scripts/build\n+++ b/scripts/build\n@@ -1 +1,2 @@\n a\n+make one\n-b\n--- a/pkg/x.go\n+++ b/pkg/x.go\n+x\n--- a/scripts/c\n+++ b/scripts/c\n+make two\n";
        assert_eq!(lines_of_scripts(patch), "make one\nmake two\n");
    }
}
