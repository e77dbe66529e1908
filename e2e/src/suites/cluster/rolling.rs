//! A rolling update of the daemons under a stream of pods: none fails, and none has fewer networks than it asked for.

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

/// Pods made every second; each is deleted as soon as it was seen whole.
const PODS_A_SECOND: usize = 4;
/// A machine that cannot keep up is not given more: so many may be on their way, four on each node.
const ON_THEIR_WAY: usize = 24;
/// The stream ends by then, whatever the update does.
const PATIENCE: Duration = Duration::from_mins(4);
/// Where pods are.
const PODS: &str = "/api/v1/namespaces/default/pods";

/// What is known of the stream.
struct Stream<'a> {
    api: &'a ApiClient,
    made: usize,
    /// Made and not yet seen whole.
    awaited: BTreeSet<String>,
}

impl ClusterFixture<'_> {
    /// Restarts the DaemonSet while pods are made and deleted; says how many.
    pub(super) fn rolling_update(&self, chart: &str) -> anyhow::Result<String> {
        let cluster = &self.cluster;
        let mut stream = Stream {
            api: &cluster.api,
            made: 0,
            awaited: BTreeSet::new(),
        };
        let start = Instant::now();
        let mut second = 0;
        let mut updated = None;
        while updated.is_none() || !stream.awaited.is_empty() {
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
                "after {} s of {} pods {} are still not whole: {}",
                PATIENCE.as_secs(),
                stream.made,
                stream.awaited.len(),
                self.complaints(chart)
            );
            stream.look()?;
            if updated.is_none() && stream.awaited.len() + PODS_A_SECOND <= ON_THEIR_WAY {
                self.more(&mut stream)?;
            }
            if second > 1 && updated.is_none() && is_rolled_out(stream.api, chart)? {
                updated = Some((stream.made, start.elapsed()));
            }
            // The pace of the stream; nothing is waited for here.
            second += 1;
            thread::sleep(Duration::from_secs(second).saturating_sub(start.elapsed()));
        }
        sh::until(60, "the stream is gone", || {
            let left = stream.pods()?.len();
            ensure!(left == 0, "{left} pods are left");
            Ok(())
        })?;
        self.is_deployed(chart)?;
        self.each(|member| nothing_left(&member.node))?;
        let (made, took) = updated.unwrap_or_default();
        Ok(format!(
            "{made} pods in the {} s of the update",
            took.as_secs()
        ))
    }

    /// Makes the next pods, spread over the nodes.
    fn more(&self, stream: &mut Stream<'_>) -> anyhow::Result<()> {
        let members = &self.cluster.members;
        for number in stream.made..stream.made + PODS_A_SECOND {
            let node = &members[number % members.len()].node.name;
            let name = format!("stream-{number}");
            let mut pod = objects::pod(&name, node, Some("storage"));
            pod["metadata"]["labels"] = serde_json::json!({"stream": "1"});
            stream.api.request("POST", PODS, &pod)?;
            stream.awaited.insert(name);
        }
        stream.made += PODS_A_SECOND;
        Ok(())
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

impl Stream<'_> {
    fn pods(&self) -> anyhow::Result<Vec<Value>> {
        let path = format!("{PODS}?labelSelector=stream%3D1");
        let mut list = self.api.request("GET", &path, &Value::Null)?.json()?;
        match list["items"].take() {
            Value::Array(pods) => Ok(pods),
            other => bail!("no list of pods: {other}"),
        }
    }

    /// Deletes the pods that run and have both networks.
    fn look(&mut self) -> anyhow::Result<()> {
        for pod in self.pods()? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if self.awaited.contains(name) && is_whole(&pod).with_context(|| name.to_owned())? {
                self.api
                    .request("DELETE", &format!("{PODS}/{name}"), &Value::Null)?;
                self.awaited.remove(name);
            }
        }
        Ok(())
    }
}

/// Whether a pod runs, with everything that it asked for; a pod that failed, or runs with less, is an error.
fn is_whole(pod: &Value) -> anyhow::Result<bool> {
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
