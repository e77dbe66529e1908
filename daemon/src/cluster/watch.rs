//! The two watches of a node: its pods, and the definitions of the cluster.

use std::sync::Arc;

use plan::objects::{self, Definition, PodMetadata};

use super::{
    reflect::{Event, Resource, follow, selector},
    store::{Definitions, Pods},
};
use crate::access::Client;

/// Keeps this node's pods; `synced` is called after each complete list.
pub async fn follow_pods(client: Client, node: &str, pods: Arc<Pods>, synced: impl Fn()) {
    let resource = Resource {
        what: "pods",
        path: "/api/v1/pods",
        field_selector: Some(selector("spec.nodeName", node)),
        metadata_only: true,
    };
    follow(client, resource, |event| match event {
        Event::Put(PodMetadata(pod)) => pods.put(pod),
        Event::Remove(PodMetadata(pod)) => pods.remove(&pod.namespace, &pod.name),
        Event::All(all) => {
            pods.replace(all.into_iter().map(|PodMetadata(pod)| pod).collect());
            synced();
        }
        // Every cluster knows pods; where the path leads elsewhere, nothing is known of any.
        Event::UnknownKind => {}
    })
    .await;
}

/// Keeps the cluster's definitions; `synced` is called after each complete list, and when the cluster does not know the kind.
pub async fn follow_definitions(client: Client, definitions: Arc<Definitions>, synced: impl Fn()) {
    let resource = Resource {
        what: "network-attachment-definitions",
        path: "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
        field_selector: None,
        metadata_only: false,
    };
    follow(client, resource, |event: Event<Definition>| match event {
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
