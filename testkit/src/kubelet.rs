//! A kubelet that serves podresources v1, `List` and `GetAllocatableResources` with the devices of that list, and one that takes device
//! plugins.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use h2::client;
use http::Request;
use node::{
    device_plugin::{
        DIR, Empty, HEALTHY, LIST_AND_WATCH, ListAndWatchResponse, REGISTER, RegisterRequest,
        Registry,
    },
    grpc::{Code, Reply},
    podresources::{AllocatableResourcesResponse, ListPodResourcesResponse},
};
use prost::Message as _;
use tokio::net::UnixStream;

use crate::grpc::Server;

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
        let server = Server::start(socket, move |path, _| {
            let Some((list, allocatable)) = answers.clone() else {
                return Reply::Refused(Code::ResourceExhausted, "too busy");
            };
            Reply::One(match path {
                "/v1.PodResourcesLister/List" => list,
                "/v1.PodResourcesLister/GetAllocatableResources" => allocatable,
                _ => panic!("{path} is not served"),
            })
        });
        Self { _server: server }
    }
}

/// How many devices each resource has.
type Devices = BTreeMap<String, usize>;

/// A fake kubelet with a registry of device plugins, which runs until it is dropped.
pub struct DevicePlugins {
    _server: Server,
    devices: Arc<Mutex<Devices>>,
}

impl DevicePlugins {
    /// Starts with an empty directory of sockets, as a kubelet does.
    pub fn start(kubelet_dir: &Path) -> Self {
        let dir = kubelet_dir.join(DIR);
        let _ = fs::remove_dir_all(&dir);
        let devices = Arc::<Mutex<Devices>>::default();
        let all = Arc::clone(&devices);
        let server = Server::start(&Registry::socket(kubelet_dir), move |path, message| {
            assert_eq!(path, REGISTER);
            let request = RegisterRequest::decode(message).unwrap();
            assert_eq!(request.version, "v1beta1");
            let socket = dir.join(request.endpoint);
            tokio::spawn(follow(socket, request.resource_name, Arc::clone(&all)));
            Reply::One(Empty {}.encode_to_vec())
        });
        Self {
            _server: server,
            devices,
        }
    }

    /// The healthy devices of each resource whose plugin is connected.
    pub fn devices(&self) -> Devices {
        self.devices.lock().unwrap().clone()
    }
}

/// Follows the devices of a plugin until it leaves.
async fn follow(socket: PathBuf, resource: String, all: Arc<Mutex<Devices>>) {
    let stream = UnixStream::connect(socket).await.unwrap();
    let (mut client, connection) = client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://localhost{LIST_AND_WATCH}"));
    let request = request.header("content-type", "application/grpc");
    let (response, mut body) = client
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    // An empty message that is not compressed.
    body.send_data(vec![0; 5].into(), true).unwrap();
    let Ok(response) = response.await else {
        return;
    };
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        bytes.extend_from_slice(&data);
        let Some((&[_, ref length @ ..], message)) = bytes.split_first_chunk::<5>() else {
            continue;
        };
        if message.len() == u32::from_be_bytes(*length) as usize {
            let list = ListAndWatchResponse::decode(message).unwrap();
            let healthy = list.devices.iter().filter(|one| one.health == HEALTHY);
            all.lock()
                .unwrap()
                .insert(resource.clone(), healthy.count());
            bytes.clear();
        }
    }
    all.lock().unwrap().remove(&resource);
}
