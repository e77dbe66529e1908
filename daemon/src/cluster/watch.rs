//! The two watches of a node: its own pods and the cluster's definitions.

use std::sync::Arc;

use plan::objects::{self, Definition, PodMetadata};

use super::{
    reflector::{self, Event, Resource, Selector, selector, unequal},
    store::{Definitions, Pods},
};
use crate::access::Client;

/// The phases of pods that are over: they may be very many, and nothing attaches them any more. A pod that ends leaves the watch as if it were deleted.
const OVER: [&str; 2] = ["Succeeded", "Failed"];

/// Keeps `pods` up to date with this node's pods. It calls `synced` after each complete list.
pub async fn watch_pods(client: Client, node: &str, pods: Arc<Pods>, synced: impl Fn()) {
    let resource = Resource {
        what: "pods",
        path: "/api/v1/pods",
        selector: Some(Selector::Field(pods_of(node))),
        metadata_only: true,
    };
    reflector::run(client, resource, |event| match event {
        Event::Put(PodMetadata(pod)) => pods.put(pod),
        Event::Remove(PodMetadata(pod)) => pods.remove(&pod.namespace, &pod.name),
        Event::All(all) => {
            pods.replace(all.into_iter().map(|PodMetadata(pod)| pod).collect());
            synced();
        }
        // Every cluster has pods. Where the path leads to something else, the pods stay unknown.
        Event::UnknownKind => {}
    })
    .await;
}

/// Selects the pods of a node that are not over.
fn pods_of(node: &str) -> String {
    let phases = OVER.map(|phase| format!("%2C{}", unequal("status.phase", phase)));
    selector("spec.nodeName", node) + &phases.concat()
}

/// Keeps `definitions` up to date. It calls `synced` after each complete list, and when the cluster has no such kind.
pub async fn watch_definitions(client: Client, definitions: Arc<Definitions>, synced: impl Fn()) {
    let resource = Resource {
        what: "network-attachment-definitions",
        path: "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
        selector: None,
        metadata_only: false,
    };
    reflector::run(client, resource, |event: Event<Definition>| match event {
        Event::Put(definition) => definitions.put(objects::nad(definition)),
        Event::Remove(definition) => {
            let nad = objects::nad(definition);
            definitions.remove(&nad.namespace, &nad.name);
        }
        Event::All(all) => {
            definitions.replace(all.into_iter().map(objects::nad).collect());
            synced();
        }
        Event::UnknownKind => {
            definitions.unknown_kind();
            synced();
        }
    })
    .await;
}
