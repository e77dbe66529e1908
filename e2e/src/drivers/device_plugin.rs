//! The device plugin (v1beta1): four devices of one resource on two NUMA nodes, of which it prefers the last. A container has its
//! devices in an environment variable, and each device has a device information file on the node.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use anyhow::Context as _;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery, transport::Endpoint};
use tonic_prost::ProstCodec;

use crate::drivers::grpc::{self, GrpcReply};

/// The argument that makes this program the device plugin.
pub(crate) const NAME: &str = "device-plugin";
/// The resource that containers request.
pub(crate) const RESOURCE: &str = "e2e.example/nic";
/// The environment variable with the devices of a container, separated by spaces.
pub(crate) const VARIABLE: &str = "E2E_NICS";
/// The devices with their NUMA nodes.
pub(crate) const DEVICES: [(&str, i64); 4] = [
    ("0000:18:02.1", 0),
    ("0000:18:02.2", 1),
    ("0000:18:02.3", 0),
    ("0000:18:02.4", 1),
];
/// The directory of the kubelet's and the device plugins' sockets.
const DIRECTORY: &str = "/var/lib/kubelet/device-plugins";
const SOCKET: &str = "e2e-nic.sock";

/// Registers with the kubelet and serves it.
pub(crate) fn run() -> anyhow::Result<()> {
    fs::create_dir_all(super::INFORMATION)?;
    for (id, _) in DEVICES {
        let (file, information) = super::device_information(RESOURCE, id);
        fs::write(file, information.to_string())?;
    }
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    threads.block_on(async {
        let socket = Path::new(DIRECTORY).join(SOCKET);
        let served = tokio::spawn(async move { grpc::serve(&socket, Arc::new(answer)).await });
        register().await?;
        served.await?
    })
}

async fn register() -> anyhow::Result<()> {
    let connector = tower::service_fn(|_| async {
        let socket = Path::new(DIRECTORY).join("kubelet.sock");
        tokio::net::UnixStream::connect(socket)
            .await
            .map(TokioIo::new)
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .context("cannot register at the kubelet")?;
    let mut grpc = Grpc::new(channel);
    grpc.ready().await?;
    let request = RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: RESOURCE.to_owned(),
    };
    let path = PathAndQuery::from_static("/v1beta1.Registration/Register");
    let codec = ProstCodec::<RegisterRequest, Empty>::default();
    grpc.unary(Request::new(request), path, codec).await?;
    Ok(())
}

fn answer(path: &str, message: &[u8]) -> GrpcReply {
    match path.rsplit('/').next() {
        Some("GetDevicePluginOptions") => {
            let options = DevicePluginOptions {
                get_preferred_allocation_available: true,
            };
            GrpcReply::One(options.encode_to_vec())
        }
        Some("PreStartContainer") => GrpcReply::One(Vec::new()),
        Some("ListAndWatch") => GrpcReply::First(devices().encode_to_vec()),
        Some("GetPreferredAllocation") => match PreferredAllocationRequest::decode(message) {
            Ok(request) => GrpcReply::One(preferred(request).encode_to_vec()),
            Err(_) => GrpcReply::Unknown,
        },
        Some("Allocate") => match AllocateRequest::decode(message) {
            Ok(request) => GrpcReply::One(allocated(&request).encode_to_vec()),
            Err(_) => GrpcReply::Unknown,
        },
        _ => GrpcReply::Unknown,
    }
}

fn devices() -> ListAndWatchResponse {
    let device = |(id, node): (&str, i64)| Device {
        id: id.to_owned(),
        health: "Healthy".to_owned(),
        topology: Some(TopologyInfo {
            nodes: vec![NumaNode { id: node }],
        }),
    };
    ListAndWatchResponse {
        devices: DEVICES.map(device).to_vec(),
    }
}

/// Prefers the last devices, so that sorting the devices of a pod does not give the order of its containers.
fn preferred(request: PreferredAllocationRequest) -> PreferredAllocationResponse {
    let prefer = |request: ContainerPreferredAllocationRequest| {
        let mut ids = request.available_device_ids;
        ids.sort();
        let count = usize::try_from(request.allocation_size).unwrap_or_default();
        ContainerPreferredAllocationResponse {
            device_ids: ids.split_off(ids.len().saturating_sub(count)),
        }
    };
    let requests = request.container_requests.into_iter();
    PreferredAllocationResponse {
        container_responses: requests.map(prefer).collect(),
    }
}

fn allocated(request: &AllocateRequest) -> AllocateResponse {
    let allocate = |request: &ContainerAllocateRequest| ContainerAllocateResponse {
        envs: BTreeMap::from([(VARIABLE.to_owned(), request.devices_ids.join(" "))]),
    };
    AllocateResponse {
        container_responses: request.container_requests.iter().map(allocate).collect(),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
struct RegisterRequest {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    endpoint: String,
    #[prost(string, tag = "3")]
    resource_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Device {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    health: String,
    #[prost(message, optional, tag = "3")]
    topology: Option<TopologyInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<NumaNode>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NumaNode {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DevicePluginOptions {
    #[prost(bool, tag = "2")]
    get_preferred_allocation_available: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PreferredAllocationRequest {
    #[prost(message, repeated, tag = "1")]
    container_requests: Vec<ContainerPreferredAllocationRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerPreferredAllocationRequest {
    #[prost(string, repeated, tag = "1")]
    available_device_ids: Vec<String>,
    #[prost(int32, tag = "3")]
    allocation_size: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PreferredAllocationResponse {
    #[prost(message, repeated, tag = "1")]
    container_responses: Vec<ContainerPreferredAllocationResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerPreferredAllocationResponse {
    #[prost(string, repeated, tag = "1")]
    device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    container_requests: Vec<ContainerAllocateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerAllocateRequest {
    #[prost(string, repeated, tag = "1")]
    devices_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    container_responses: Vec<ContainerAllocateResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerAllocateResponse {
    #[prost(btree_map = "string, string", tag = "1")]
    envs: BTreeMap<String, String>,
}
