//! `multus-daemon verify`, which `helm test` runs in a pod of its own: verifies that the `DaemonSet` has a ready daemon on every node, and
//! that this pod got its networks from one. A daemon is ready when it serves pods, so no node has to be reached.

use std::{collections::BTreeMap, io::Write, time::Duration};

use anyhow::Context as _;
use cmdline::{counted, error_line};
use plan::network_status;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::{
    access::{self, ApiError, ApiRequest, Client},
    cluster::{api_path, retry::with_retries},
};

/// Pause between two checks.
const PAUSE: Duration = Duration::from_secs(2);
/// Limit for one request to the API server, including its retries.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// The release to verify, and the pod of the verification.
#[derive(Debug, Clone)]
pub struct Release {
    /// The namespace of both.
    pub namespace: String,
    /// Name of the `DaemonSet`.
    pub daemon_set: String,
    /// Name of this pod; `None` when the release serves no pods.
    pub pod: Option<String>,
}

/// Checks until the release serves, or until `patience` has ended; the error is then the last problem.
pub async fn run(release: &Release, patience: Duration) -> anyhow::Result<()> {
    let client = access::client().context("no access to the API server")?;
    let start = Instant::now();
    loop {
        let checked = match read(&client, release).await {
            Ok((daemon_set, pod)) => check(release, daemon_set.as_ref(), pod.as_ref()),
            // Not every API server may know permissions that were granted a moment ago.
            Err(failure) => Err(error_line(&failure)),
        };
        match checked {
            Ok(text) => {
                writeln!(std::io::stdout(), "{text}")?;
                return Ok(());
            }
            Err(problem) if start.elapsed() >= patience => anyhow::bail!(problem),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn read(
    client: &Client,
    release: &Release,
) -> Result<(Option<DaemonSet>, Option<Pod>), ApiError> {
    let Release {
        namespace,
        daemon_set,
        pod,
    } = release;
    let list = ApiRequest::get(api_path::daemon_sets(namespace, daemon_set));
    let listed = with_retries(REQUEST_PATIENCE, |time| {
        client.object::<DaemonSets>(&list, time)
    });
    let daemon_set = listed.await?.items.into_iter().next();
    let Some(pod) = pod else {
        return Ok((daemon_set, None));
    };
    let get = ApiRequest::get(api_path::pod(namespace, pod));
    let pod = with_retries(REQUEST_PATIENCE, |time| client.object(&get, time)).await?;
    Ok((daemon_set, Some(pod)))
}

/// Returns a summary, or the first problem.
fn check(
    release: &Release,
    found: Option<&DaemonSet>,
    pod: Option<&Pod>,
) -> Result<String, String> {
    let Release {
        namespace,
        daemon_set,
        ..
    } = release;
    let name = format!("DaemonSet {namespace}/{daemon_set}");
    let found = found.ok_or_else(|| format!("{name} does not exist: install the chart again"))?;
    let status = &found.status;
    let DaemonSetStatus {
        desired_number_scheduled: nodes,
        number_ready: ready,
        updated_number_scheduled: updated,
        ..
    } = *status;
    if status.observed_generation < found.metadata.generation {
        return Err(format!(
            "{name} was changed, and its controller has not seen it yet: is kube-controller-manager running?"
        ));
    }
    if nodes == 0 {
        return Err(format!(
            "{name} has no node: compare its nodeSelector, affinity and tolerations with the nodes' labels and taints"
        ));
    }
    let hint = format!(
        "see `kubectl --namespace {namespace} describe daemonset {daemon_set}` and the logs of pods that are not ready"
    );
    let all = counted(nodes, "node");
    if ready < nodes {
        return Err(format!("{name} serves {ready} of {all}: {hint}"));
    }
    // With OnDelete old daemons stay until an operator deletes their pods.
    if updated < nodes && found.spec.update_strategy.kind != "OnDelete" {
        return Err(format!("{name} is updated on {updated} of {all}: {hint}"));
    }
    let Some(pod) = pod else {
        return Ok(format!("{name} has installed the plugins on {all}"));
    };
    if !pod
        .metadata
        .annotations
        .contains_key(network_status::ANNOTATION)
    {
        return Err(format!(
            "this pod has no annotation {}: another plugin than Multus attached its network; run `multus-daemon doctor` on its node",
            network_status::ANNOTATION
        ));
    }
    Ok(format!(
        "{name} serves {nodes} of {all}, and this pod got its networks from it"
    ))
}

#[derive(Deserialize)]
struct DaemonSets {
    #[serde(default)]
    items: Vec<DaemonSet>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DaemonSet {
    metadata: Metadata,
    spec: DaemonSetSpec,
    status: DaemonSetStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DaemonSetSpec {
    update_strategy: UpdateStrategy,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UpdateStrategy {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DaemonSetStatus {
    observed_generation: u64,
    desired_number_scheduled: u32,
    number_ready: u32,
    updated_number_scheduled: u32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    generation: u64,
    annotations: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(daemon_set: &Value, pod: Value) -> Result<String, String> {
        let release = Release {
            namespace: "kube-system".to_owned(),
            daemon_set: "multus".to_owned(),
            pod: Some("multus-test".to_owned()),
        };
        let found: Option<DaemonSet> = serde_json::from_value(daemon_set.clone()).unwrap();
        let pod: Option<Pod> = serde_json::from_value(pod).unwrap();
        check(&release, found.as_ref(), pod.as_ref())
    }

    fn served() -> Value {
        json!({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"}}})
    }

    fn rollout(generation: u64, nodes: u32, ready: u32, updated: u32) -> Value {
        json!({
            "metadata": {"generation": generation},
            "spec": {"updateStrategy": {"type": "RollingUpdate"}},
            "status": {
                "observedGeneration": 2, "desiredNumberScheduled": nodes,
                "numberReady": ready, "updatedNumberScheduled": updated,
            },
        })
    }

    #[test]
    fn every_node_needs_a_ready_daemon() {
        assert_eq!(
            checked(&rollout(2, 3, 3, 3), served()).unwrap(),
            "DaemonSet kube-system/multus serves 3 of 3 nodes, and this pod got its networks from it"
        );
        for (daemon_set, expected) in [
            (Value::Null, "does not exist"),
            (json!({}), "has no node"),
            (rollout(3, 3, 3, 3), "has not seen it yet"),
            (rollout(2, 3, 2, 3), "serves 2 of 3 nodes"),
            (rollout(2, 3, 3, 1), "is updated on 1 of 3 nodes"),
        ] {
            let problem = checked(&daemon_set, served()).unwrap_err();
            assert!(problem.contains(expected), "{daemon_set}: {problem}");
        }
    }

    #[test]
    fn release_without_pods_needs_its_daemon_set_alone() {
        assert_eq!(
            checked(&rollout(2, 3, 3, 3), Value::Null).unwrap(),
            "DaemonSet kube-system/multus has installed the plugins on 3 nodes"
        );
        assert!(checked(&rollout(2, 3, 2, 3), Value::Null).is_err());
    }

    #[test]
    fn old_daemons_are_accepted_with_on_delete() {
        let mut daemon_set = rollout(2, 3, 3, 1);
        daemon_set["spec"]["updateStrategy"]["type"] = json!("OnDelete");
        checked(&daemon_set, served()).unwrap();
    }

    #[test]
    fn pod_without_network_status_fails() {
        let problem = checked(&rollout(2, 1, 1, 1), json!({"metadata": {}})).unwrap_err();
        assert!(problem.contains("another plugin than Multus"), "{problem}");
    }
}
