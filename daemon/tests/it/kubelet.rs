//! A kubelet as small as what is asked of it: gRPC over HTTP/2 on a unix socket, one call.

use std::{fs, path::Path};

use h2::server;
use http::{HeaderMap, Response};
use node::podresources::ListPodResourcesResponse;
use prost::{
    Message as _,
    bytes::{BufMut as _, Bytes, BytesMut},
};
use tokio::{
    net::{UnixListener, UnixStream},
    runtime::Runtime,
};

/// Answers until it is dropped.
pub(crate) struct Kubelet(Option<Runtime>);

impl Kubelet {
    /// One that lists these, or refuses to.
    pub(crate) fn start(socket: &Path, list: Option<ListPodResourcesResponse>) -> Self {
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(socket).unwrap()
        };
        let answer = list.map(|list| framed(&list.encode_to_vec()));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, answer.clone()));
            }
        });
        Self(Some(runtime))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn converse(stream: UnixStream, answer: Option<Bytes>) {
    let Ok(mut connection) = server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
        let head = Response::builder().header("content-type", "application/grpc");
        let mut stream = respond
            .send_response(head.body(()).unwrap(), false)
            .unwrap();
        let mut trailers = HeaderMap::new();
        let status = if let Some(body) = &answer {
            stream.send_data(body.clone(), false).unwrap();
            "0"
        } else {
            trailers.insert("grpc-message", "too busy".parse().unwrap());
            "8"
        };
        trailers.insert("grpc-status", status.parse().unwrap());
        stream.send_trailers(trailers).unwrap();
    }
}

fn framed(body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(body.len()).unwrap());
    bytes.put_slice(body);
    bytes.freeze()
}
