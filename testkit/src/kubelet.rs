//! A kubelet that serves podresources v1: `List`, and `GetAllocatableResources` with the devices of that list.

use std::path::Path;

use node::podresources::{AllocatableResourcesResponse, ListPodResourcesResponse};
use prost::Message as _;

use crate::grpc::{Server, Status};

/// A fake kubelet, which runs until it is dropped.
pub struct Kubelet {
    _server: Server,
}

impl Kubelet {
    /// A kubelet whose every `List` returns `list`, or fails with `RESOURCE_EXHAUSTED` when there is none. The socket's directory is created.
    pub fn start(socket: &Path, list: Option<&ListPodResourcesResponse>) -> Self {
        let containers = list.iter().flat_map(|list| &list.pod_resources);
        let devices = containers
            .flat_map(|pod| &pod.containers)
            .flat_map(|container| container.devices.clone());
        let allocatable = AllocatableResourcesResponse {
            devices: devices.collect(),
        };
        let answers = list.map(|list| (list.encode_to_vec(), allocatable.encode_to_vec()));
        let server = Server::start(socket, move |path| {
            let answers = answers.clone();
            let answer = answers.map(|(list, allocatable)| match path {
                "/v1.PodResourcesLister/List" => list,
                "/v1.PodResourcesLister/GetAllocatableResources" => allocatable,
                _ => panic!("{path} is not served"),
            });
            answer.ok_or(Status {
                code: 8,
                message: "too busy",
            })
        });
        Self { _server: server }
    }
}
