//! A cluster with upstream's own manifests moves over by the commands of docs/moving.md, and back, while pods start and end.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    each_node::EachNode,
    published_release::PROGRAMS,
    upstream_manifest::{DAEMON_SET, UpstreamManifest},
};
use crate::{
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    pages::Reader,
    programs::image::Image,
    report::{Checked, Report, say},
    sh,
    suites::cluster::{ClusterFixture, NAMESPACE},
};

const PAGE: &str = "docs/moving.md";
/// The name under which the page's reader has upstream's manifest.
const FILE: &str = "upstream.yml";
/// The installer at the path that the thick manifest names.
const INSTALLER: (&str, &str) = ("install_multus", "/usr/src/multus-cni/bin/install_multus");
const CRD: &str = "crd/network-attachment-definitions.k8s.cni.cncf.io";
/// What upstream's manifests leave behind when their `DaemonSet` is deleted, and what gives our daemons more rights than they need.
const REST: [&str; 2] = ["clusterrole/multus", "clusterrolebinding/multus"];

pub(super) fn run(
    fixture: &ClusterFixture<'_>,
    kinds: &[UpstreamManifest],
    report: &mut Report,
) -> Checked {
    let reader = report.check(
        "the pages for people are read, our image is imported",
        || {
            fixture.import()?;
            Reader::new(fixture.env, "upgrade")
        },
    )?;
    for &upstream in kinds {
        let nodes = EachNode(fixture);
        let journey = Journey {
            nodes,
            fixture,
            reader: &reader,
            upstream,
        };
        journey.run(report)?;
    }
    report.check("every step of the pages was followed", || {
        reader.ensure_all_followed()
    })
}

/// The way over and back of a cluster with one of the manifests.
struct Journey<'a> {
    fixture: &'a ClusterFixture<'a>,
    nodes: EachNode<'a>,
    reader: &'a Reader,
    upstream: UpstreamManifest,
}

impl Journey<'_> {
    fn run(&self, report: &mut Report) -> Checked {
        let of = |what: &str| format!("{}: {what}", self.upstream.name());
        report.check(&of("pods have their networks"), || {
            self.import()?;
            self.forget_helm()?;
            let manifest = self.upstream.objects().to_string();
            fs::write(self.reader.path(FILE), &manifest)?;
            let cluster = &self.fixture.cluster;
            cluster.control.apply_text(cluster.server(), &manifest)?;
            self.nodes.wait_until_served_by(DAEMON_SET)?;
            sh::until(30, "definitions can be made", || {
                cluster.apply(&[objects::storage()])
            })?;
            self.nodes.make("theirs")
        })?;
        report.check(
            &of("kubectl multus preflight gives the page's order"),
            || self.ensure_order(),
        )?;
        let made = report.check(
            &of("the charts take over, and no pod of a stream has fewer networks"),
            || self.move_over("manifests"),
        )?;
        say(&format!("        {made}"));
        report.check(
            &of("pods of upstream's end, and what gave it more rights is deleted"),
            || {
                self.nodes.have("theirs")?;
                self.follow("manifests-rest")?;
                for object in REST {
                    let found =
                        self.fixture
                            .cluster
                            .kubectl(&["get", object, "--ignore-not-found"])?;
                    ensure!(found.is_empty(), "{object} is still there");
                }
                self.nodes.make("ours")?;
                self.nodes.delete("theirs")?;
                self.nodes.ensure_defined()
            },
        )?;
        report.check(
            &of("back, upstream's deletes our pods and starts its own"),
            || {
                self.follow("manifests-back")?;
                self.nodes.wait_until_served_by(DAEMON_SET)?;
                self.nodes.ensure_defined()?;
                self.nodes.have("ours")?;
                self.nodes.make("back")?;
                self.nodes.delete("ours")
            },
        )?;
        let made = report.check(
            &of("our manifest takes over, and no pod of a stream has fewer networks"),
            || self.move_over("manifests-kubectl"),
        )?;
        say(&format!("        {made}"));
        report.check(
            &of("deleted pods leave nothing, and neither does our manifest"),
            || {
                self.nodes.have("back")?;
                self.nodes.delete("back")?;
                self.nodes.nothing_left()?;
                self.follow("manifests-rest")?;
                self.follow("manifests-kubectl-remove")?;
                self.nodes.0.wait_until_removed()?;
                self.nodes.ensure_defined()
            },
        )
    }

    /// Takes Helm's marks of an earlier journey off the resource definition: a cluster that was set up with upstream's manifest has none.
    fn forget_helm(&self) -> anyhow::Result<()> {
        let cluster = &self.fixture.cluster;
        let found = cluster.kubectl(&["get", CRD, "--ignore-not-found", "--output=name"])?;
        if !found.is_empty() {
            let marks = [
                "meta.helm.sh/release-name-",
                "meta.helm.sh/release-namespace-",
            ];
            cluster.kubectl(&[&["annotate", CRD][..], &marks].concat())?;
        }
        Ok(())
    }

    /// Builds the image that the manifest names, and imports it on every node.
    fn import(&self) -> anyhow::Result<()> {
        let paths = PROGRAMS.into_iter().chain([INSTALLER]);
        let programs: Vec<_> = paths
            .map(|(program, path)| (self.fixture.env.upstream.join(program), path))
            .collect();
        let image = Image {
            name: self.upstream.image().rsplit(':').next().unwrap_or_default(),
            references: &[self.upstream.image().to_owned()],
            programs: &programs,
            entrypoint: &["/thin_entrypoint"],
            user: "",
        };
        let archive = image.archive(self.fixture.env)?;
        self.fixture
            .each(|member| member.runtime.import(&member.node, &archive))
    }

    fn follow(&self, step: &str) -> anyhow::Result<()> {
        self.fixture.follow(self.reader, PAGE, step)
    }

    /// Follows a step that moves the cluster over, under a stream of pods, until the daemons of upstream are gone.
    fn move_over(&self, step: &str) -> anyhow::Result<String> {
        let made = self.fixture.stream_during(|| {
            self.follow(step)?;
            self.wait_until_upstream_is_gone()
        })?;
        self.nodes.wait_until_upgraded()?;
        Ok(made)
    }

    /// Fails unless preflight says to delete upstream's `DaemonSet` last, after the charts and the wait for our daemons.
    fn ensure_order(&self) -> anyhow::Result<()> {
        let cluster = &self.fixture.cluster;
        let plugin =
            KubectlPlugin::new(self.fixture.env, cluster.server(), cluster.control.admin());
        let (status, answer) = plugin.json(&["preflight"], "")?;
        ensure!(status == 4 && answer["verdict"] == "changes", "{answer}");
        let steps = answer["steps"].as_array().context("preflight has steps")?;
        let steps: Vec<_> = steps.iter().filter_map(Value::as_str).collect();
        let starts = [
            "helm upgrade --install --take-ownership",
            "helm upgrade --install --take-ownership",
            "kubectl rollout status --namespace kube-system daemonset/rke2-multus",
            "kubectl delete daemonset --namespace kube-system kube-multus-ds",
        ];
        ensure!(
            steps.len() == starts.len()
                && steps
                    .iter()
                    .zip(starts)
                    .all(|(step, start)| step.starts_with(start)),
            "the steps are {steps:#?}"
        );
        Ok(())
    }

    fn wait_until_upstream_is_gone(&self) -> anyhow::Result<()> {
        sh::until(60, "upstream's daemons are gone", || {
            let pods = self
                .fixture
                .cluster
                .get(&["pods", NAMESPACE, "--selector=name=multus"])?;
            let left = pods["items"].as_array().map_or(0, Vec::len);
            ensure!(left == 0, "{left} are left");
            Ok(())
        })
    }
}
