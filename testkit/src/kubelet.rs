//! A kubelet that serves `List` of podresources v1 and nothing else.

use std::path::Path;

use node::podresources::ListPodResourcesResponse;
use prost::Message as _;

use crate::grpc::{Server, Status};

/// A fake kubelet, which runs until it is dropped.
pub struct Kubelet {
    _server: Server,
}

impl Kubelet {
    /// A kubelet whose every `List` returns `list`, or fails with `RESOURCE_EXHAUSTED` when there is none. The socket's directory is created.
    pub fn start(socket: &Path, list: Option<&ListPodResourcesResponse>) -> Self {
        let list = list.map(ListPodResourcesResponse::encode_to_vec);
        let server = Server::start(socket, move |path| {
            assert_eq!(path, "/v1.PodResourcesLister/List");
            list.clone().ok_or(Status {
                code: 8,
                message: "too busy",
            })
        });
        Self { _server: server }
    }
}
