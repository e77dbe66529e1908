//! The watches: each runs for ever, starts again after every failure, and keeps its store as the API server has it.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use tracing::{debug, info, warn};

use super::{
    ownership::{Ownership, goes},
    store::{Definitions, Pods},
    types::{self, Definition},
};
use crate::causes::causes;

/// Pause before a list after a watch that came to nothing.
const LIST_AGAIN: Duration = Duration::from_secs(1);

/// Keeps this node's pods; `synced` is called after each complete list.
pub async fn follow_pods(client: Client, node: &str, pods: Arc<Pods>, synced: impl Fn()) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let stream = || {
        watcher(
            Api::<PartialObjectMeta<Pod>>::all(client.clone()),
            config.clone(),
        )
    };
    let mut listed = Vec::new();
    follow(
        "pods",
        stream,
        || {},
        |event: watcher::Event<PartialObjectMeta<Pod>>| match event {
            watcher::Event::Apply(pod) => pods.put(types::pod_view(pod.metadata)),
            watcher::Event::Delete(pod) => {
                let metadata = pod.metadata;
                pods.remove(
                    metadata.namespace.as_deref().unwrap_or_default(),
                    metadata.name.as_deref().unwrap_or_default(),
                );
            }
            watcher::Event::Init => listed = Vec::new(),
            watcher::Event::InitApply(pod) => listed.push(types::pod_view(pod.metadata)),
            watcher::Event::InitDone => {
                pods.replace(std::mem::take(&mut listed));
                synced();
            }
        },
    )
    .await;
}

/// Keeps the cluster's definitions; `synced` is called after each complete list, and when the cluster does not know the kind.
pub async fn follow_definitions(client: Client, definitions: Arc<Definitions>, synced: impl Fn()) {
    let stream = || {
        watcher(
            Api::<Definition>::all(client.clone()),
            watcher::Config::default(),
        )
    };
    let mut listed = Vec::new();
    let unknown_kind = || {
        definitions.unknown_kind();
        synced();
    };
    follow(
        "network-attachment-definitions",
        stream,
        unknown_kind,
        |event| match event {
            watcher::Event::Apply(definition) => definitions.put(types::nad(definition)),
            watcher::Event::Delete(definition) => {
                let nad = types::nad(definition);
                definitions.remove(&nad.namespace, &nad.name);
            }
            watcher::Event::Init => listed = Vec::new(),
            watcher::Event::InitApply(definition) => listed.push(types::nad(definition)),
            watcher::Event::InitDone => {
                definitions.replace(std::mem::take(&mut listed));
                synced();
            }
        },
    )
    .await;
}

/// Watches the one DaemonSet that this process belongs to.
pub async fn follow_daemon_set(
    client: Client,
    namespace: &str,
    name: &str,
    ownership: Arc<Ownership>,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let stream = || {
        watcher(
            Api::<DaemonSet>::namespaced(client.clone(), namespace),
            config.clone(),
        )
    };
    let mut listed = None;
    follow(
        "daemonsets",
        stream,
        || {},
        |event: watcher::Event<DaemonSet>| match event {
            watcher::Event::Apply(object) => ownership.seen(goes(&object)),
            watcher::Event::Delete(_) => ownership.absent(),
            watcher::Event::Init => listed = None,
            watcher::Event::InitApply(object) => listed = Some(goes(&object)),
            watcher::Event::InitDone => match listed {
                Some(goes) => ownership.seen(goes),
                None => ownership.absent(),
            },
        },
    )
    .await;
}

/// Hands on what watches tell, for ever.
async fn follow<K, S>(
    what: &str,
    stream: impl Fn() -> S,
    unknown_kind: impl Fn(),
    mut handle: impl FnMut(watcher::Event<K>),
) where
    K: Send,
    S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send,
{
    loop {
        let mut stream = pin!(stream().default_backoff());
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => handle(event),
                Err(watcher::Error::InitialListFailed(kube::Error::Api(answer)))
                    if answer.code == 404 =>
                {
                    debug!(what, "the cluster does not know this kind");
                    unknown_kind();
                }
                // The kind is gone while it was watched: the same watch would be tried for ever, and a list tells what is left.
                Err(watcher::Error::WatchStartFailed(kube::Error::Api(answer)))
                    if answer.code == 404 =>
                {
                    info!(what, "the cluster does not know this kind any more");
                    break;
                }
                Err(error) => warn!(what, error = %causes(&error), "the watch was interrupted"),
            }
        }
        tokio::time::sleep(LIST_AGAIN).await;
    }
}
