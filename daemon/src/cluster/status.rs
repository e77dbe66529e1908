//! The network status in a pod's status, written so that nothing that others write meanwhile is lost.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{netstatus::ANNOTATION, plan::PodView};

/// How the API server says that there is no such pod, that it is another by now, and that this is not for us.
const GONE: u16 = 404;
const CONFLICT: u16 = 409;
const FORBIDDEN: u16 = 403;

/// One try; a pod that is gone is no error.
pub(super) async fn write(client: &Client, pod: &PodView, text: &str) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    // The uid in the patch makes it a conflict when the name has gone to another pod meanwhile.
    let metadata = if pod.is_static {
        json!({"annotations": {ANNOTATION: text}})
    } else {
        json!({"uid": pod.uid, "annotations": {ANNOTATION: text}})
    };
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let params = PatchParams::default();
    match api.patch_status(&pod.name, &params, &patch).await {
        Err(kube::Error::Api(answer)) if answer.code == GONE => Ok(()),
        // Somebody else writes at the same time, or this pod is no more.
        Err(kube::Error::Api(answer)) if answer.code == CONFLICT => {
            match api.get_metadata_opt(&pod.name).await? {
                Some(now) if now.metadata.uid.as_ref() == Some(&pod.uid) => {
                    Err(kube::Error::Api(answer))
                }
                _ => Ok(()),
            }
        }
        Err(kube::Error::Api(answer)) if answer.code == FORBIDDEN => {
            replace(client, pod, text).await
        }
        other => other.map(drop),
    }
}

/// As the published chart's role allows it. That role is in force again as soon as an upgrade is taken back, while this daemon
/// serves until its node's turn comes. The object goes back as it came, whatever its fields, unless somebody else was faster.
async fn replace(client: &Client, pod: &PodView, text: &str) -> kube::Result<()> {
    let kind = ApiResource::erase::<Pod>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &pod.namespace, &kind);
    let Some(mut now) = api.get_opt(&pod.name).await? else {
        return Ok(());
    };
    if !pod.is_static && now.metadata.uid.as_ref() != Some(&pod.uid) {
        return Ok(());
    }
    now.annotations_mut()
        .insert(ANNOTATION.to_owned(), text.to_owned());
    let params = PostParams::default();
    let replaced = api.replace_status(&pod.name, &params, &now).await;
    replaced.map(drop)
}
