//! A minimal gRPC server for a kubelet: HTTP/2 on a unix socket, unary calls, and streams of one message.

use std::{future::pending, path::Path, sync::Arc};

use anyhow::Context as _;
use h2::server::{self, SendResponse};
use http::{HeaderMap, Request, Response};
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use tokio::net::{UnixListener, UnixStream};

/// The reply to a call.
pub(crate) enum GrpcReply {
    /// One message.
    One(Vec<u8>),
    /// A message after which the call stays open.
    First(Vec<u8>),
    /// The method is not implemented.
    Unknown,
}

/// Returns the reply to a call, from its path and its message.
pub(crate) type Handler = dyn Fn(&str, &[u8]) -> GrpcReply + Send + Sync;

/// Serves on a socket until the process ends.
pub(crate) async fn serve(socket: &Path, handler: Arc<Handler>) -> anyhow::Result<()> {
    let listener = listen(socket)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let handler = Arc::clone(&handler);
        tokio::spawn(async move {
            // A kubelet may close the connection at any time.
            let _ = converse(stream, handler).await;
        });
    }
}

/// Listens on a socket, and replaces one that an earlier run left.
fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(socket).with_context(|| format!("cannot listen on {}", socket.display()))
}

async fn converse(stream: UnixStream, handler: Arc<Handler>) -> anyhow::Result<()> {
    let mut connection = server::handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        let handler = Arc::clone(&handler);
        tokio::spawn(async move {
            let _ = reply(request, respond, &*handler).await;
        });
    }
    Ok(())
}

async fn reply(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    handler: &Handler,
) -> anyhow::Result<()> {
    let (head, mut body) = request.into_parts();
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        message.extend_from_slice(&data);
    }
    // One byte for compression and four for the length come first.
    let message = message.get(5..).unwrap_or_default();
    let answer = handler(head.uri.path(), message);
    let head = Response::builder().header("content-type", "application/grpc");
    let mut stream = respond.send_response(head.body(())?, false)?;
    let status = match answer {
        GrpcReply::One(message) => {
            stream.send_data(framed(&message)?, false)?;
            "0"
        }
        GrpcReply::First(message) => {
            stream.send_data(framed(&message)?, false)?;
            return pending().await;
        }
        GrpcReply::Unknown => "12",
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse()?);
    Ok(stream.send_trailers(trailers)?)
}

fn framed(message: &[u8]) -> anyhow::Result<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len())?);
    bytes.put_slice(message);
    Ok(bytes.freeze())
}
