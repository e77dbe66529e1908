//! The kubelet's interface for device plugins (deviceplugin v1beta1); only the needed calls and fields.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use prost::Message as _;

use crate::{
    cri::{Client, CriError},
    grpc::{Code, Reply},
    root::Root,
};

/// The directory of the sockets of kubelet and plugins, below the kubelet's own.
pub const DIR: &str = "device-plugins";
/// The state of a device that pods can have.
pub const HEALTHY: &str = "Healthy";
/// The calls of a plugin that each kubelet makes.
pub const GET_OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
pub const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
pub const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
/// The call by which a plugin registers.
pub const REGISTER: &str = "/v1beta1.Registration/Register";

/// A connection to the kubelet's registry of device plugins.
#[derive(Debug)]
pub struct Registry(Client);

impl Registry {
    /// Returns the socket of the registry.
    pub fn socket(kubelet_dir: &Path) -> PathBuf {
        kubelet_dir.join(DIR).join("kubelet.sock")
    }

    /// Connects to the kubelet.
    pub async fn connect(root: &Root, kubelet_dir: &Path) -> Result<Self, CriError> {
        let client = Client::connect(root, &Self::socket(kubelet_dir)).await;
        client.map(Self)
    }

    /// Registers the plugin that listens at `endpoint`, a name in the directory, for the resource. A kubelet may connect to it at once.
    pub async fn register(&mut self, endpoint: &str, resource: &str) -> Result<(), CriError> {
        let request = RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: endpoint.to_owned(),
            resource_name: resource.to_owned(),
        };
        let answer = self.0.call("Register", REGISTER, request).await;
        answer.map(|Empty {}| ())
    }
}

/// Replies to the kubelet as a plugin whose devices are no more than numbers: a container that gets one sees nothing of it. `opened` is
/// called when the kubelet begins to follow the devices, and what it returns is dropped when that ends.
pub fn reply(
    devices: usize,
    path: &str,
    message: &[u8],
    opened: impl FnOnce() -> Box<dyn Send>,
) -> Reply {
    match path {
        // None of the options is set.
        GET_OPTIONS => Reply::One(Vec::new()),
        LIST_AND_WATCH => {
            let devices = (0..devices).map(|number| Device {
                id: number.to_string(),
                health: HEALTHY.to_owned(),
                topology: None,
            });
            let list = ListAndWatchResponse {
                devices: devices.collect(),
            };
            Reply::Open(list.encode_to_vec(), opened())
        }
        ALLOCATE => match AllocateRequest::decode(message) {
            Ok(request) => {
                let containers = request.container_requests.len();
                let answer = AllocateResponse {
                    container_responses: vec![ContainerAllocateResponse::default(); containers],
                };
                Reply::One(answer.encode_to_vec())
            }
            Err(_) => Reply::Refused(Code::InvalidArgument, "the message cannot be read"),
        },
        _ => Reply::Refused(Code::Unimplemented, "the plugin needs no such call"),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RegisterRequest {
    /// The version of the interface.
    #[prost(string, tag = "1")]
    pub version: String,
    /// The name of the plugin's socket.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    #[prost(string, tag = "3")]
    pub resource_name: String,
}

/// The answer to [`LIST_AND_WATCH`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Device {
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`HEALTHY`], or the device cannot be had.
    #[prost(string, tag = "2")]
    pub health: String,
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NumaNode>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct NumaNode {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The request of [`ALLOCATE`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerAllocateRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerAllocateRequest {
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// The answer to [`ALLOCATE`]: one entry for each container.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerAllocateResponse {
    /// Environment variables of the container.
    #[prost(btree_map = "string, string", tag = "1")]
    pub envs: BTreeMap<String, String>,
}
