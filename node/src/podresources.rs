//! What the kubelet tells of the devices of its pods (podresources v1), as far as it is asked.

use std::path::Path;

use crate::{
    cri::{Client, CriError},
    root::Root,
};

/// Where the kubelet listens, below its directory.
pub const SOCKET: &str = "pod-resources/kubelet.sock";

/// The devices of all pods of the node.
pub async fn list(root: &Root, socket: &Path) -> Result<Vec<PodResources>, CriError> {
    let mut client = Client::connect(root, socket).await?;
    let answer: ListPodResourcesResponse = client
        .call(
            "List",
            "/v1.PodResourcesLister/List",
            ListPodResourcesRequest::default(),
        )
        .await?;
    Ok(answer.pod_resources)
}

/// `ListPodResourcesRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodResourcesRequest {}

/// `ListPodResourcesResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodResourcesResponse {
    /// One for each pod.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// `PodResources`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodResources {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The pod's namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers, in the order of its specification.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// `ContainerResources`, its devices.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerResources {
    /// The container's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Of device plugins; one for each resource and NUMA node.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Of DRA drivers.
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// `ContainerDevices`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerDevices {
    /// The resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// Its devices.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}

/// `DynamicResource`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DynamicResource {
    /// The claim.
    #[prost(string, tag = "2")]
    pub claim_name: String,
    /// What it was given.
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// `ClaimResource`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimResource {
    /// Devices as the runtime is told of them.
    #[prost(message, repeated, tag = "1")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// `CDIDevice`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CdiDevice {
    /// `<vendor>/<class>=<device>`.
    #[prost(string, tag = "1")]
    pub name: String,
}
