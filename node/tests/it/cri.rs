//! A runtime as small as what is asked of it: gRPC over HTTP/2 on a unix socket, three calls.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use h2::server;
use http::{HeaderMap, Response};
use node::cri::{
    ListPodSandboxResponse, PodSandbox, PodSandboxMetadata, StatusResponse, VersionResponse,
};
use prost::{
    Message as _,
    bytes::{BufMut as _, Bytes, BytesMut},
};
use tokio::net::{UnixListener, UnixStream};

/// What it answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runtime {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Uids of its pods.
    pub(crate) pods: Vec<&'static str>,
    /// The verbose part of its status; without any it refuses to tell.
    pub(crate) info: Option<BTreeMap<String, String>>,
}

impl Runtime {
    /// Serves until the test ends; it listens when this returns.
    pub(crate) fn serve(self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let runtime = Arc::new(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&runtime).connection(stream));
            }
        });
    }

    async fn connection(self: Arc<Self>, stream: UnixStream) {
        let Ok(mut connection) = server::handshake(stream).await else {
            return;
        };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let head = Response::builder().header("content-type", "application/grpc");
            let mut stream = respond
                .send_response(head.body(()).unwrap(), false)
                .unwrap();
            let mut trailers = HeaderMap::new();
            let status = if let Some(body) = self.answer(request.uri().path()) {
                stream.send_data(framed(&body), false).unwrap();
                "0"
            } else {
                trailers.insert("grpc-message", "not here".parse().unwrap());
                "12"
            };
            trailers.insert("grpc-status", status.parse().unwrap());
            stream.send_trailers(trailers).unwrap();
        }
    }

    fn answer(&self, path: &str) -> Option<Vec<u8>> {
        Some(match path.rsplit('/').next()? {
            "Version" => VersionResponse {
                runtime_name: self.name.to_owned(),
                runtime_version: self.version.to_owned(),
            }
            .encode_to_vec(),
            "ListPodSandbox" => {
                let item = |uid: &&'static str| PodSandbox {
                    id: format!("sandbox-{uid}"),
                    metadata: Some(PodSandboxMetadata {
                        uid: (*uid).to_owned(),
                        ..PodSandboxMetadata::default()
                    }),
                };
                let items = self.pods.iter().map(item).collect();
                ListPodSandboxResponse { items }.encode_to_vec()
            }
            "Status" => StatusResponse {
                info: self.info.clone()?,
            }
            .encode_to_vec(),
            _ => return None,
        })
    }
}

fn framed(body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(body.len()).unwrap());
    bytes.put_slice(body);
    bytes.freeze()
}
