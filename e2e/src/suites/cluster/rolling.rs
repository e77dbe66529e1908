//! A rolling update of the daemons under a stream of pods: none fails, and none has fewer networks than it requested.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{ClusterFixture, NAMESPACE};
use crate::{
    control_plane::{api_client::ApiClient, objects},
    node::inspect::nothing_left,
    sh,
};

/// Pods created per second; each is deleted as soon as it runs with all its networks.
const PODS_A_SECOND: usize = 4;
/// The most pods that start at the same time, four per node: a slow machine gets no more.
const MOST_STARTING: usize = 24;
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
        let mut stream = Stream {
            api: &cluster.api,
            made: 0,
            starting: BTreeSet::new(),
        };
        let start = Instant::now();
        let mut second = 0;
        let mut updated = None;
        while updated.is_none() || !stream.starting.is_empty() {
            if second == 1 {
                cluster.kubectl(&[
                    "rollout",
                    "restart",
                    &format!("daemonset/{chart}"),
                    NAMESPACE,
                ])?;
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "after {} s of {} pods {} still lack networks: {}",
                PATIENCE.as_secs(),
                stream.made,
                stream.starting.len(),
                self.daemon_logs(chart)
            );
            stream.delete_complete()?;
            if updated.is_none() && stream.starting.len() + PODS_A_SECOND <= MOST_STARTING {
                self.create_more(&mut stream)?;
            }
            if second > 1 && updated.is_none() && is_rolled_out(stream.api, chart)? {
                updated = Some((stream.made, start.elapsed()));
            }
            // This sleep sets the rate of the stream; it waits for no condition.
            second += 1;
            thread::sleep(Duration::from_secs(second).saturating_sub(start.elapsed()));
        }
        sh::until(60, "the pods of the stream are deleted", || {
            let left = stream.pods()?.len();
            ensure!(left == 0, "{left} pods are left");
            Ok(())
        })?;
        self.wait_until_deployed(chart)?;
        self.each(|member| nothing_left(&member.node))?;
        let (made, took) = updated.unwrap_or_default();
        Ok(format!(
            "{made} pods in the {} s of the update",
            took.as_secs()
        ))
    }

    /// Creates the next pods, spread over the nodes.
    fn create_more(&self, stream: &mut Stream<'_>) -> anyhow::Result<()> {
        let members = &self.cluster.members;
        for number in stream.made..stream.made + PODS_A_SECOND {
            let node = &members[number % members.len()].node.name;
            let name = format!("stream-{number}");
            let mut pod = objects::pod(&name, node, Some("storage"));
            pod["metadata"]["labels"] = serde_json::json!({"stream": "1"});
            stream.api.request("POST", PODS, &pod)?;
            stream.starting.insert(name);
        }
        stream.made += PODS_A_SECOND;
        Ok(())
    }
}

/// Returns whether every pod of a DaemonSet is of its present form, and available.
pub(in crate::suites) fn is_rolled_out(api: &ApiClient, chart: &str) -> anyhow::Result<bool> {
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

impl Stream<'_> {
    fn pods(&self) -> anyhow::Result<Vec<Value>> {
        let path = format!("{PODS}?labelSelector=stream%3D1");
        let mut list = self.api.request("GET", &path, &Value::Null)?.json()?;
        match list["items"].take() {
            Value::Array(pods) => Ok(pods),
            other => bail!("no list of pods: {other}"),
        }
    }

    /// Deletes the pods that run with both networks.
    fn delete_complete(&mut self) -> anyhow::Result<()> {
        for pod in self.pods()? {
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
            let status = objects::status(pod)?;
            let interfaces: Vec<_> = status.iter().map(|(_, name, _)| name.as_str()).collect();
            ensure!(interfaces == ["eth0", "net1"], "it has {status:?}");
            Ok(true)
        }
        "Failed" => bail!("it failed: {}", pod["status"]),
        _ => Ok(false),
    }
}
