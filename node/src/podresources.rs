//! The devices of pods as the kubelet reports them (podresources v1); only the needed calls and fields.

use std::path::Path;

use crate::{
    cri::{Client, CriError},
    root::Root,
};

/// The kubelet's socket, below its directory.
pub const SOCKET: &str = "pod-resources/kubelet.sock";

/// Returns the devices of all pods of the node.
pub async fn list(root: &Root, socket: &Path) -> Result<Vec<PodResources>, CriError> {
    let mut client = Client::connect(root, socket).await?;
    let response: ListPodResourcesResponse = client
        .call(
            "List",
            "/v1.PodResourcesLister/List",
            ListPodResourcesRequest::default(),
        )
        .await?;
    Ok(response.pod_resources)
}

/// Returns the devices of device plugins that the node could allocate, those that pods have included.
pub async fn allocatable(root: &Root, socket: &Path) -> Result<Vec<ContainerDevices>, CriError> {
    let mut client = Client::connect(root, socket).await?;
    let response: AllocatableResourcesResponse = client
        .call(
            "GetAllocatableResources",
            "/v1.PodResourcesLister/GetAllocatableResources",
            ListPodResourcesRequest::default(),
        )
        .await?;
    Ok(response.devices)
}

/// The request of both calls, which has no fields.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodResourcesRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocatableResourcesResponse {
    /// One entry for each resource and NUMA node.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<ContainerDevices>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodResourcesResponse {
    /// One entry for each pod.
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodResources {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The pod's namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// The containers, in the order of the pod's specification.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// The devices of `ContainerResources`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerResources {
    /// The container's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The devices of device plugins: one entry for each resource and NUMA node.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// The devices of DRA drivers.
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerDevices {
    /// The resource's name.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DynamicResource {
    /// The claim's name.
    #[prost(string, tag = "2")]
    pub claim_name: String,
    /// The resources that were allocated to it.
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ClaimResource {
    /// The devices by their CDI names, which the kubelet passes to the runtime.
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
