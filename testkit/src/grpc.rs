//! A gRPC server on a unix socket, for calls with one request and one response: HTTP/2 with framed messages.

use std::{fs, path::Path, sync::Arc};

use h2::server;
use http::{HeaderMap, Response};
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use tokio::{
    net::{UnixListener, UnixStream},
    runtime::Runtime,
};

/// A server that runs until it is dropped.
pub(crate) struct Server(Option<Runtime>);

/// The status of a failed call: gRPC's code and a message.
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) message: &'static str,
}

impl Server {
    /// Listens on `socket` when this returns; `answer` makes an encoded response, or a refusal, from the path of a call.
    pub(crate) fn start(
        socket: &Path,
        answer: impl Fn(&str) -> Result<Vec<u8>, Status> + Send + Sync + 'static,
    ) -> Self {
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
        let answer = Arc::new(answer);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, Arc::clone(&answer)));
            }
        });
        Self(Some(runtime))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve_connection(
    stream: UnixStream,
    answer: Arc<impl Fn(&str) -> Result<Vec<u8>, Status>>,
) {
    let Ok(mut connection) = server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let head = Response::builder().header("content-type", "application/grpc");
        let mut stream = respond
            .send_response(head.body(()).unwrap(), false)
            .unwrap();
        let mut trailers = HeaderMap::new();
        let code = match answer(request.uri().path()) {
            Ok(message) => {
                stream.send_data(framed(&message), false).unwrap();
                0
            }
            Err(status) => {
                trailers.insert("grpc-message", status.message.parse().unwrap());
                status.code
            }
        };
        trailers.insert("grpc-status", code.into());
        stream.send_trailers(trailers).unwrap();
    }
}

/// A message as gRPC sends it: not compressed, its length, its bytes.
fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(message);
    bytes.freeze()
}
