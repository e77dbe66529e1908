//! As much of a gRPC server as a kubelet asks for: HTTP/2 on a unix socket, one answer to a call, or one that is followed by nothing.

use std::{future::pending, path::Path, sync::Arc};

use anyhow::Context as _;
use h2::server::{self, SendResponse};
use http::{HeaderMap, Request, Response};
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use tokio::net::{UnixListener, UnixStream};

/// What is said to a call.
pub(crate) enum GrpcReply {
    /// A message.
    One(Vec<u8>),
    /// A message after which the call stays open.
    First(Vec<u8>),
    /// There is no such call.
    Unknown,
}

/// Says what there is to say to a call, by its path and its message.
pub(crate) type Handler = dyn Fn(&str, &[u8]) -> GrpcReply + Send + Sync;

/// Serves on a socket for ever.
pub(crate) async fn serve(socket: &Path, handler: Arc<Handler>) -> anyhow::Result<()> {
    let listener = listen(socket)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let handler = Arc::clone(&handler);
        tokio::spawn(async move {
            // A kubelet may go whenever it likes.
            let _ = converse(stream, handler).await;
        });
    }
}

/// The socket, in the place of one that an earlier run left.
fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
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
    // One byte that tells of compression, four of length.
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
