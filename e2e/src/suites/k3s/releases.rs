//! Releases of Helm that the jobs of helm-controller make.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{cluster::pods::Pods, sh};

const NAMESPACE: &str = "kube-system";

/// Waits until a Helm release has a revision above `after`; returns the revision.
pub(in crate::suites) fn released(
    cluster: &impl Pods,
    release: &str,
    after: u64,
) -> anyhow::Result<u64> {
    let secrets = format!(
        "/api/v1/namespaces/{NAMESPACE}/secrets?labelSelector=owner%3Dhelm,name%3D{release},status%3Ddeployed"
    );
    sh::until(180, &format!("a job has installed {release}"), || {
        let found = cluster
            .api()
            .request("GET", &secrets, &Value::Null)?
            .json()?;
        let items = found["items"].as_array().into_iter().flatten();
        let versions = items.filter_map(|one| one["metadata"]["labels"]["version"].as_str());
        let newest = versions.filter_map(|text| text.parse().ok()).max();
        let newest = newest.unwrap_or(0);
        ensure!(newest > after, "the newest revision is {newest}");
        Ok(newest)
    })
    .with_context(|| job_log(cluster, release))
}

/// Returns the last lines of the log of a chart's job.
pub(in crate::suites) fn job_log(cluster: &impl Pods, release: &str) -> String {
    let job = format!("job/helm-install-{release}");
    let namespace = format!("--namespace={NAMESPACE}");
    let logs = cluster.kubectl(&["logs", &job, &namespace, "--tail=5"]);
    logs.unwrap_or_else(|error| error.to_string())
}
