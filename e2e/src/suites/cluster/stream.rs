//! Changes of the daemons under a stream of pods: none fails, and none has fewer networks than it requested.

use std::{
    collections::BTreeSet,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{ClusterFixture, NAMESPACE};
use crate::{
    control_plane::{api_client::ApiClient, objects},
    node::inspect::nothing_left,
    pool, sh,
};

/// Pods created per second; each is deleted as soon as it runs with all its networks.
const PODS_A_SECOND: usize = 4;
/// The most pods that start at the same time on a node: a slow machine gets no more.
const MOST_STARTING: usize = 4;
/// The longest time of the stream.
const PATIENCE: Duration = Duration::from_mins(4);
const PODS: &str = "/api/v1/namespaces/default/pods";

struct Stream<'a> {
    api: &'a ApiClient,
    made: usize,
    /// Pods that do not run with all their networks yet.
    starting: BTreeSet<String>,
}

impl ClusterFixture<'_> {
    /// Restarts the DaemonSet while pods are created and deleted; returns a summary.
    pub(super) fn rolling_update(&self, chart: &str) -> anyhow::Result<String> {
        let cluster = &self.cluster;
        let summary = self
            .stream_during(|| {
                let set = format!("daemonset/{chart}");
                cluster.kubectl(&["rollout", "restart", &set, NAMESPACE])?;
                sh::until(PATIENCE.as_secs(), "the update is rolled out", || {
                    ensure!(is_rolled_out(&cluster.api, chart)?, "some daemon is not");
                    Ok(())
                })
            })
            .with_context(|| self.daemon_logs(chart))?;
        self.wait_until_deployed(chart)?;
        self.each(|member| nothing_left(&member.node))?;
        Ok(summary)
    }

    /// Makes a change while pods are created and deleted; returns a summary. The stream begins before the change, and ends when it is made
    /// and all pods have run with all their networks.
    pub(crate) fn stream_during(
        &self,
        change: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let api = &self.cluster.api;
        let ((started, has_started), (changed, is_changed)) = (channel(), channel());
        let members = self.cluster.members.iter();
        let nodes: Vec<_> = members.map(|member| member.node.name.as_str()).collect();
        let stream = Stream {
            api,
            made: 0,
            starting: BTreeSet::new(),
        };
        let summary = thread::scope(|scope| {
            let nodes = &nodes;
            let stream = scope.spawn(move || stream.run(nodes, &started, &is_changed));
            // Without first pods the stream has failed, and its own error says why.
            let outcome = match has_started.recv() {
                Ok(()) => change(),
                Err(_) => Ok(()),
            };
            if outcome.is_ok() {
                let _ = changed.send(());
            }
            drop(changed);
            outcome.and(pool::joined(stream))
        })?;
        sh::until(60, "the pods of the stream are deleted", || {
            let left = pods(api)?.len();
            ensure!(left == 0, "{left} pods are left");
            Ok(())
        })?;
        Ok(summary)
    }
}

fn is_rolled_out(api: &ApiClient, chart: &str) -> anyhow::Result<bool> {
    let path = format!("/apis/apps/v1/namespaces/kube-system/daemonsets/{chart}");
    let set = api.request("GET", &path, &Value::Null)?.json()?;
    let status = &set["status"];
    let wanted = status["desiredNumberScheduled"].as_u64();
    Ok(
        status["observedGeneration"] == set["metadata"]["generation"]
            && status["updatedNumberScheduled"].as_u64() == wanted
            && status["numberAvailable"].as_u64() == wanted,
    )
}

/// Returns the pods of the stream.
fn pods(api: &ApiClient) -> anyhow::Result<Vec<Value>> {
    let path = format!("{PODS}?labelSelector=stream%3D1");
    let mut list = api.request("GET", &path, &Value::Null)?.json()?;
    match list["items"].take() {
        Value::Array(pods) => Ok(pods),
        other => bail!("no list of pods: {other}"),
    }
}

impl Stream<'_> {
    /// Runs until the change is made and all pods have started; returns a summary. Without a change it ends at once.
    fn run(
        mut self,
        nodes: &[&str],
        started: &Sender<()>,
        is_changed: &Receiver<()>,
    ) -> anyhow::Result<String> {
        let start = Instant::now();
        let mut second = 0;
        let mut changed = None;
        while changed.is_none() || !self.starting.is_empty() {
            ensure!(
                start.elapsed() < PATIENCE,
                "after {} s of {} pods {} still lack networks",
                PATIENCE.as_secs(),
                self.made,
                self.starting.len()
            );
            self.delete_complete()?;
            if changed.is_none() {
                if self.starting.len() + PODS_A_SECOND <= MOST_STARTING * nodes.len() {
                    self.create_more(nodes)?;
                }
                let _ = started.send(());
                match is_changed.try_recv() {
                    Ok(()) => changed = Some((self.made, start.elapsed())),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => bail!("the change was not made"),
                }
            }
            // This sleep sets the rate of the stream; it waits for no condition.
            second += 1;
            thread::sleep(Duration::from_secs(second).saturating_sub(start.elapsed()));
        }
        let (made, took) = changed.unwrap_or_default();
        Ok(format!(
            "{made} pods in the {} s of the change",
            took.as_secs()
        ))
    }

    /// Creates the next pods, spread over the nodes.
    fn create_more(&mut self, nodes: &[&str]) -> anyhow::Result<()> {
        for number in self.made..self.made + PODS_A_SECOND {
            let name = format!("stream-{number}");
            let mut pod = objects::pod(&name, nodes[number % nodes.len()], Some("storage"));
            pod["metadata"]["labels"] = serde_json::json!({"stream": "1"});
            self.api.request("POST", PODS, &pod)?;
            self.starting.insert(name);
        }
        self.made += PODS_A_SECOND;
        Ok(())
    }

    /// Deletes the pods that run with both networks.
    fn delete_complete(&mut self) -> anyhow::Result<()> {
        for pod in pods(self.api)? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if self.starting.contains(name) && is_complete(&pod).with_context(|| name.to_owned())? {
                self.api
                    .request("DELETE", &format!("{PODS}/{name}"), &Value::Null)?;
                self.starting.remove(name);
            }
        }
        Ok(())
    }
}

/// Returns whether a pod runs with all its networks; a pod that failed, or that runs with fewer, is an error.
fn is_complete(pod: &Value) -> anyhow::Result<bool> {
    match pod["status"]["phase"].as_str().unwrap_or_default() {
        "Running" => {
            let Ok(status) = objects::status(pod) else {
                // It is written while the pod starts; a pod that stays without it fails the stream's deadline.
                return Ok(false);
            };
            let interfaces: Vec<_> = status.iter().map(|(_, name, _)| name.as_str()).collect();
            ensure!(interfaces == ["eth0", "net1"], "it has {status:?}");
            Ok(true)
        }
        "Failed" => bail!("it failed: {}", pod["status"]),
        _ => Ok(false),
    }
}
