//! A gRPC server on a unix socket, which runs beside the test.

use std::{fs, path::Path};

use node::grpc::{Reply, serve};
use tokio::{net::UnixListener, runtime::Runtime};

/// A server that runs until it is dropped.
pub(crate) struct Server(Option<Runtime>);

impl Server {
    /// Listens on `socket` when this returns; `reply` gets the path of a call and its message.
    pub(crate) fn start(
        socket: &Path,
        reply: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static,
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
        runtime.spawn(serve(listener, reply));
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
