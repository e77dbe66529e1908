//! A rolling update of the daemons under a stream of pods: none fails, and none has fewer networks than it asked for.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{NAMESPACE, Scene};
use crate::{inspect::nothing_left, objects, sh};

/// Pods made every second, and as many deleted as soon as they were seen whole.
const PODS_A_SECOND: usize = 8;
/// A machine that cannot keep up is not given more: so many may be on their way.
const ON_THEIR_WAY: usize = 48;
/// The stream ends by then, whatever the update does.
const PATIENCE: Duration = Duration::from_mins(4);

/// What is known of the stream.
#[derive(Default)]
struct Stream {
    made: usize,
    /// Made and not yet seen whole.
    awaited: BTreeSet<String>,
}

impl Scene<'_> {
    /// Restarts the DaemonSet while pods are made and deleted; says how many.
    pub(super) fn rolling_update(&self, chart: &str) -> anyhow::Result<String> {
        let cluster = &self.cluster;
        let set = format!("daemonset/{chart}");
        let mut stream = Stream::default();
        self.more(&mut stream)?;
        cluster.kubectl(&["rollout", "restart", &set, NAMESPACE])?;
        let start = Instant::now();
        let mut seconds = 0;
        while !self.is_rolled_out(chart)? || !stream.awaited.is_empty() {
            ensure!(
                start.elapsed() < PATIENCE,
                "after {} s of {} pods {} are still not whole: {}",
                PATIENCE.as_secs(),
                stream.made,
                stream.awaited.len(),
                self.complaints(chart)
            );
            self.look(&mut stream)?;
            let room = stream.awaited.len() + PODS_A_SECOND <= ON_THEIR_WAY;
            if room && !self.is_rolled_out(chart)? {
                self.more(&mut stream)?;
            }
            // The pace of the stream; nothing is waited for here.
            seconds += 1;
            thread::sleep(Duration::from_secs(seconds).saturating_sub(start.elapsed()));
        }
        let took = start.elapsed();
        sh::until(60, "the stream is gone", || {
            let left = cluster.get(&["pods", "--selector=stream=1"])?;
            let left = left["items"].as_array().map_or(0, Vec::len);
            ensure!(left == 0, "{left} pods are left");
            Ok(())
        })?;
        self.is_deployed(chart)?;
        self.each(|member| nothing_left(&member.node))?;
        Ok(format!("{} pods in {} s", stream.made, took.as_secs()))
    }

    /// Makes the next pods, spread over the nodes.
    fn more(&self, stream: &mut Stream) -> anyhow::Result<()> {
        let members = &self.cluster.members;
        let pods: Vec<_> = (stream.made..stream.made + PODS_A_SECOND)
            .map(|number| {
                let node = &members[number % members.len()].node.name;
                let name = format!("stream-{number}");
                let mut pod = objects::pod(&name, node, Some("storage"));
                pod["metadata"]["labels"] = serde_json::json!({"stream": "1"});
                stream.awaited.insert(name);
                pod
            })
            .collect();
        stream.made += PODS_A_SECOND;
        self.cluster.apply(&pods)
    }

    /// Deletes the pods that run and have both networks.
    fn look(&self, stream: &mut Stream) -> anyhow::Result<()> {
        let pods = self.cluster.get(&["pods", "--selector=stream=1"])?;
        let mut whole = Vec::new();
        for pod in pods["items"].as_array().context("a list of pods")? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if stream.awaited.contains(name) && is_whole(pod).with_context(|| name.to_owned())? {
                whole.push(name);
            }
        }
        if !whole.is_empty() {
            let words = [&["delete", "pod", "--wait=false"], &whole[..]].concat();
            self.cluster.kubectl(&words)?;
        }
        for name in whole {
            stream.awaited.remove(name);
        }
        Ok(())
    }

    fn is_rolled_out(&self, chart: &str) -> anyhow::Result<bool> {
        let set = self.cluster.get(&["daemonset", chart, NAMESPACE])?;
        let status = &set["status"];
        let wanted = status["desiredNumberScheduled"].as_u64();
        Ok(
            status["observedGeneration"] == set["metadata"]["generation"]
                && status["updatedNumberScheduled"].as_u64() == wanted
                && status["numberAvailable"].as_u64() == wanted,
        )
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
        "Failed" => anyhow::bail!("it failed: {}", pod["status"]),
        _ => Ok(false),
    }
}
