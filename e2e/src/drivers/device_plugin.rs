//! The device plugin (v1beta1): four devices of one resource on two NUMA nodes, of which it prefers the last. A container has its
//! devices in an environment variable, and each device has a device information file on the node.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use node::{
    device_plugin::{
        AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse,
        DIR, Device, HEALTHY, ListAndWatchResponse, NumaNode, Registry, TopologyInfo,
    },
    grpc::{self, Code, Reply},
    root::Root,
};
use prost::Message as _;
use tokio::net::UnixListener;

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
/// The kubelet's directory.
const KUBELET: &str = "/var/lib/kubelet";
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
        let socket = Path::new(KUBELET).join(DIR).join(SOCKET);
        // An earlier run may have left one.
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).context(SOCKET)?;
        let served = tokio::spawn(grpc::serve(listener, answer));
        let mut registry = Registry::connect(&Root::open("/")?, Path::new(KUBELET)).await?;
        registry.register(SOCKET, RESOURCE).await?;
        Err(served.await?.into())
    })
}

const UNKNOWN: Reply = Reply::Refused(Code::Unimplemented, "not here");

fn answer(path: &str, message: &[u8]) -> Reply {
    match path.rsplit('/').next() {
        Some("GetDevicePluginOptions") => {
            let options = DevicePluginOptions {
                get_preferred_allocation_available: true,
            };
            Reply::One(options.encode_to_vec())
        }
        Some("PreStartContainer") => Reply::One(Vec::new()),
        Some("ListAndWatch") => Reply::Open(devices().encode_to_vec(), Box::new(())),
        Some("GetPreferredAllocation") => match PreferredAllocationRequest::decode(message) {
            Ok(request) => Reply::One(preferred(request).encode_to_vec()),
            Err(_) => UNKNOWN,
        },
        Some("Allocate") => match AllocateRequest::decode(message) {
            Ok(request) => Reply::One(allocated(&request).encode_to_vec()),
            Err(_) => UNKNOWN,
        },
        _ => UNKNOWN,
    }
}

fn devices() -> ListAndWatchResponse {
    let device = |(id, node): (&str, i64)| Device {
        id: id.to_owned(),
        health: HEALTHY.to_owned(),
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
