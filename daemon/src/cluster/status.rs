//! The network status in a pod's status, written so that nothing that others write meanwhile is lost.

use std::time::Duration;

use plan::{PodView, network_status::ANNOTATION};
use serde::Deserialize;
use serde_json::{Value, json};

use super::path;
use crate::access::{Ask, Client, Failure};

/// How the API server says that there is no such pod, that it is another by now, and that this is not for us.
const GONE: u16 = 404;
const CONFLICT: u16 = 409;
const FORBIDDEN: u16 = 403;

/// One try, whose requests have this long each; a pod that is gone is no error. The patch holds the annotation and the uid alone, and
/// the API server answers with metadata, so that no pod is sent or decoded.
pub(super) async fn write(
    client: &Client,
    pod: &PodView,
    text: &str,
    patience: Duration,
) -> Result<(), Failure> {
    // The uid in the patch makes it a conflict when the name has gone to another pod meanwhile.
    let metadata = if pod.is_static {
        json!({"annotations": {ANNOTATION: text}})
    } else {
        json!({"uid": pod.uid, "annotations": {ANNOTATION: text}})
    };
    let path = path::pod(&pod.namespace, &pod.name);
    let ask = Ask::patch(format!("{path}/status"), &json!({"metadata": metadata})).metadata();
    let Err(failure) = client.send(&ask, patience).await else {
        return Ok(());
    };
    match failure.code() {
        Some(GONE) => Ok(()),
        // Somebody else writes at the same time, or this pod is no more.
        Some(CONFLICT) => match uid(client, &path, patience).await? {
            Some(uid) if uid == pod.uid => Err(failure),
            _ => Ok(()),
        },
        Some(FORBIDDEN) => replace(client, pod, text, &path, patience).await,
        _ => Err(failure),
    }
}

/// The uid of the pod that has the name now.
async fn uid(client: &Client, path: &str, patience: Duration) -> Result<Option<String>, Failure> {
    #[derive(Deserialize)]
    struct Pod {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        uid: String,
    }
    let found = client
        .object::<Pod>(&Ask::get(path).metadata(), patience)
        .await;
    found_or_gone(found.map(|pod| pod.metadata.uid))
}

/// As the published chart's role allows it. That role is in force again as soon as an upgrade is taken back, while this daemon
/// serves until its node's turn comes. The object goes back as it came, whatever its fields, unless somebody else was faster.
async fn replace(
    client: &Client,
    pod: &PodView,
    text: &str,
    path: &str,
    patience: Duration,
) -> Result<(), Failure> {
    let now = client.object::<Value>(&Ask::get(path), patience).await;
    let Some(mut now) = found_or_gone(now)? else {
        return Ok(());
    };
    let metadata = now.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| Failure::unusable("the pod has no metadata"))?;
    if !pod.is_static && metadata.get("uid").and_then(Value::as_str) != Some(&pod.uid) {
        return Ok(());
    }
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[ANNOTATION] = json!(text);
    let put = Ask::put(format!("{path}/status"), &now).metadata();
    client.send(&put, patience).await.map(drop)
}

fn found_or_gone<T>(found: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.code() == Some(GONE) => Ok(None),
        Err(failure) => Err(failure),
    }
}
