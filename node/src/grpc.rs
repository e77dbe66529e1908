//! gRPC on unix sockets, for calls with one request: framed messages over HTTP/2 (grpc.io, "gRPC over HTTP2").

use std::{future::poll_fn, io, sync::Arc};

use h2::{
    RecvStream, SendStream,
    client::{self, SendRequest},
    server::{self, SendResponse},
};
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use prost::bytes::Bytes;
use tokio::{
    net::{UnixListener, UnixStream},
    task::{JoinHandle, JoinSet},
};

/// More bytes than the list of one node's sandboxes has.
const MAX_MESSAGE: usize = 16 << 20;
/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
const KIND: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: &str = "grpc-status";
const TEXT: &str = "grpc-message";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server does not speak HTTP/2, or has closed the connection.
    #[error(transparent)]
    Http(#[from] h2::Error),
    /// The answer is not gRPC.
    #[error("the answer is not gRPC")]
    NoGrpc,
    /// The answer is longer than any of a node.
    #[error("the answer has more than {MAX_MESSAGE} bytes")]
    TooLong,
    /// The server answered with another status than success.
    #[error("{0}")]
    Status(String),
}

/// A connection to a server, which is closed when it is dropped.
#[derive(Debug)]
pub struct Channel {
    client: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Channel {
    /// Begins to speak gRPC.
    pub async fn open(stream: UnixStream) -> Result<Self, h2::Error> {
        let (client, connection) = client::handshake(stream).await?;
        let connection = tokio::spawn(connection);
        Ok(Self { client, connection })
    }

    /// Makes a call, such as `/runtime.v1.RuntimeService/Version`, with this message, and returns the message of the answer.
    pub async fn call(&mut self, path: &str, message: &[u8]) -> Result<Vec<u8>, CallError> {
        let mut request = Request::new(());
        *request.method_mut() = http::Method::POST;
        let uri = format!("http://localhost{path}");
        *request.uri_mut() = uri.parse().map_err(|_| CallError::NoGrpc)?;
        request.headers_mut().insert(CONTENT_TYPE, KIND);
        let trailers = HeaderValue::from_static("trailers");
        request.headers_mut().insert(http::header::TE, trailers);
        let mut client = self.client.clone().ready().await?;
        let (response, mut stream) = client.send_request(request, false)?;
        stream.send_data(framed(message), true)?;
        let (head, mut body) = response.await?.into_parts();
        let bytes = read(&mut body).await?;
        if bytes.len() > PREFIX + MAX_MESSAGE {
            return Err(CallError::TooLong);
        }
        let trailers = body.trailers().await?;
        // An answer without a message has its status in front.
        let status = trailers.unwrap_or(head.headers);
        let text = |name: &str| status.get(name).and_then(|value| value.to_str().ok());
        match (text(STATUS), text(TEXT)) {
            (Some("0"), _) => message_of(&bytes)
                .map(<[u8]>::to_vec)
                .ok_or(CallError::NoGrpc),
            (Some(_), Some(text)) if !text.is_empty() => Err(CallError::Status(text.to_owned())),
            (Some(code), _) => Err(CallError::Status(format!("status {code}"))),
            (None, _) => Err(CallError::NoGrpc),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The codes of a refusal that servers here use.
#[derive(Debug, Clone, Copy)]
pub enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Unimplemented = 12,
}

/// The reply to a call.
pub enum Reply {
    /// The only message.
    One(Vec<u8>),
    /// A message after which the call stays open; the guard is dropped when the call ends.
    Open(Vec<u8>, Box<dyn Send>),
    /// No message, but a status and its text.
    Refused(Code, &'static str),
}

/// Serves connections until it is dropped. `reply` gets the path of a call and its message. Returns why no connection can be accepted any
/// more.
pub async fn serve(
    listener: UnixListener,
    reply: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static,
) -> io::Error {
    let reply: Arc<Replies> = Arc::new(reply);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // A client may close its connection at any time.
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, Arc::clone(&reply)));
                }
                Err(error) => return error,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

type Replies = dyn Fn(&str, &[u8]) -> Reply + Send + Sync;

async fn converse(stream: UnixStream, reply: Arc<Replies>) -> Result<(), h2::Error> {
    let mut connection = server::handshake(stream).await?;
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            call = connection.accept() => match call {
                Some(call) => {
                    let (request, respond) = call?;
                    calls.spawn(answer(request, respond, Arc::clone(&reply)));
                }
                None => return Ok(()),
            },
            Some(_) = calls.join_next() => {}
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    reply: Arc<Replies>,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let bytes = read(&mut body).await?;
    let reply = match message_of(&bytes) {
        Some(message) => reply(head.uri.path(), message),
        None => Reply::Refused(Code::InvalidArgument, "the message cannot be read"),
    };
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, KIND);
    let mut stream = respond.send_response(response, false)?;
    match reply {
        Reply::One(message) => {
            stream.send_data(framed(&message), false)?;
            end(&mut stream, 0, "")
        }
        Reply::Open(message, guard) => {
            stream.send_data(framed(&message), false)?;
            let _ = poll_fn(|context| stream.poll_reset(context)).await;
            drop(guard);
            Ok(())
        }
        Reply::Refused(code, text) => end(&mut stream, code as u16, text),
    }
}

/// Reads all bytes; of a message that is too long, only so many that it cannot be used.
async fn read(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
        if bytes.len() > PREFIX + MAX_MESSAGE {
            break;
        }
    }
    Ok(bytes)
}

/// Returns the only message in these bytes, unless it is cut off, compressed or too long.
fn message_of(bytes: &[u8]) -> Option<&[u8]> {
    let Some((&[0, ref length @ ..], message)) = bytes.split_first_chunk::<PREFIX>() else {
        return None;
    };
    let is_whole = u32::from_be_bytes(*length) as usize == message.len();
    (is_whole && message.len() <= MAX_MESSAGE).then_some(message)
}

fn framed(message: &[u8]) -> Bytes {
    // Nothing here sends messages of 4 GiB.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

fn end(stream: &mut SendStream<Bytes>, code: u16, text: &'static str) -> Result<(), h2::Error> {
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, code.into());
    if !text.is_empty() {
        trailers.insert(TEXT, HeaderValue::from_static(text));
    }
    stream.send_trailers(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn client_gets_messages_and_refusals_of_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(serve(listener, |path, message| match path {
            "/test/Echo" => Reply::One(message.to_owned()),
            "/test/Long" => Reply::One(vec![0; MAX_MESSAGE + 1]),
            _ => Reply::Refused(Code::Unimplemented, "not here"),
        }));
        let stream = UnixStream::connect(&socket).await.unwrap();
        let mut channel = Channel::open(stream).await.unwrap();
        // Longer than a frame, and than what may be sent at once.
        for length in [0, 1, 100_000] {
            let message = vec![7; length];
            let answer = channel.call("/test/Echo", &message).await.unwrap();
            assert!(answer == message, "{length}");
        }
        let error = async |channel: &mut Channel, path| {
            let answer = channel.call(path, b"").await;
            answer.unwrap_err().to_string()
        };
        assert_eq!(error(&mut channel, "/test/Other").await, "not here");
        let text = "the answer has more than 16777216 bytes";
        assert_eq!(error(&mut channel, "/test/Long").await, text);
        server.abort();
        let _ = server.await;
        assert!(channel.call("/test/Echo", b"").await.is_err());
    }

    #[test]
    fn only_whole_messages_are_used() {
        let whole = framed(b"abc");
        assert_eq!(message_of(&whole), Some(&b"abc"[..]));
        let mut compressed = whole.to_vec();
        compressed[0] = 1;
        let more = [&whole[..], b"d"].concat();
        for other in [&whole[..7], &whole[..4], &compressed, &more, b""] {
            assert_eq!(message_of(other), None, "{other:?}");
        }
    }
}
