//! Writes the network status into a pod without losing what other writers change at the same time.

use std::time::Duration;

use plan::{PodView, network_status::ANNOTATION};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api_path;
use crate::access::{ApiError, ApiRequest, Client};

/// The API server's codes for a pod that does not exist, a pod that is another one meanwhile, and a request that the role forbids.
const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const FORBIDDEN: u16 = 403;

/// Makes one try, with `timeout` for each of its requests. A deleted pod is not an error. The patch has only the annotation and the UID,
/// and the API server answers with metadata, so that no complete pod is sent or decoded.
pub(super) async fn write(
    client: &Client,
    pod: &PodView,
    text: &str,
    timeout: Duration,
) -> Result<(), ApiError> {
    // The UID turns the patch into a conflict when another pod has taken the name meanwhile.
    let metadata = if pod.is_static {
        json!({"annotations": {ANNOTATION: text}})
    } else {
        json!({"uid": pod.uid, "annotations": {ANNOTATION: text}})
    };
    let path = api_path::pod(&pod.namespace, &pod.name);
    let request =
        ApiRequest::patch(format!("{path}/status"), &json!({"metadata": metadata})).metadata();
    let Err(failure) = client.send(&request, timeout).await else {
        return Ok(());
    };
    match failure.code() {
        Some(NOT_FOUND) => Ok(()),
        // Another client writes at the same time, or this pod was deleted.
        Some(CONFLICT) => match uid(client, &path, timeout).await? {
            Some(uid) if uid == pod.uid => Err(failure),
            _ => Ok(()),
        },
        Some(FORBIDDEN) => replace(client, pod, text, &path, timeout).await,
        _ => Err(failure),
    }
}

/// Returns the UID of the pod that has the name now.
async fn uid(client: &Client, path: &str, timeout: Duration) -> Result<Option<String>, ApiError> {
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
        .object::<Pod>(&ApiRequest::get(path).metadata(), timeout)
        .await;
    some_if_found(found.map(|pod| pod.metadata.uid))
}

/// Replaces the pod's status by PUT, which the published chart's role allows. That role is in force again as soon as an upgrade is
/// rolled back, while this daemon serves until its node's turn. All other fields go back unchanged, and the API server refuses the
/// request when another client has changed the pod meanwhile.
async fn replace(
    client: &Client,
    pod: &PodView,
    text: &str,
    path: &str,
    timeout: Duration,
) -> Result<(), ApiError> {
    let found = client
        .object::<Value>(&ApiRequest::get(path), timeout)
        .await;
    let Some(mut object) = some_if_found(found)? else {
        return Ok(());
    };
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| ApiError::invalid("the pod has no metadata"))?;
    if !pod.is_static && metadata.get("uid").and_then(Value::as_str) != Some(&pod.uid) {
        return Ok(());
    }
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[ANNOTATION] = json!(text);
    let request = ApiRequest::put(format!("{path}/status"), &object).metadata();
    client.send(&request, timeout).await.map(drop)
}

fn some_if_found<T>(found: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.code() == Some(NOT_FOUND) => Ok(None),
        Err(failure) => Err(failure),
    }
}
