//! A reverse proxy between the daemon and its API server that reads each request, so that a test can hang or refuse a single one.
//!
//! Module `tcp_proxy` forwards bytes and affects whole connections; this one terminates TLS and records every request.

use std::{
    future::pending,
    io,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context as TaskContext, Poll},
    time::{Duration, Instant},
};

use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONNECTION, HOST, RETRY_AFTER, TRANSFER_ENCODING},
    uri::{PathAndQuery, Scheme},
};
use http_body_util::{Either, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http2,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    pki::Pki,
    tls_server::{self, certificates},
};
use crate::node::Node;

/// The proxy's port on the node's loopback.
pub(crate) const PORT: u16 = 7444;
/// The API server's port.
const SERVER: u16 = 6443;

/// The body of the API server's response, or of the proxy's own.
type Body = Either<Incoming, Full<Bytes>>;
/// A connection to the API server; each connection of the daemon has one of its own.
type Upstream = http2::SendRequest<Incoming>;

/// A fault that replaces the forwarding of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFault {
    /// The connection of the request stays open and transfers no further byte in either direction. Happens once.
    Hang,
    /// The request gets a 429 with this `Retry-After`, until that time has passed since the first one.
    Busy { seconds: u64 },
}

/// A request that reached the proxy.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// The time at which its head was read.
    pub(crate) at: Instant,
    method: Method,
    path: String,
}

/// The proxy; its thread ends with the test.
pub(crate) struct HttpProxy(Arc<Shared>);

#[derive(Default)]
struct Shared {
    rule: Mutex<Option<Rule>>,
    seen: Mutex<Vec<RecordedRequest>>,
}

/// A fault, and the requests that it affects.
struct Rule {
    method: Method,
    path: String,
    fault: RequestFault,
    first: Option<Instant>,
}

/// The proxy's action on a request.
enum Action {
    Forward,
    Hang,
    Refuse { seconds: u64 },
}

impl HttpProxy {
    /// Listens on the node with the API server's certificate.
    pub(crate) fn start(node: &Node, pki: &Pki) -> anyhow::Result<Self> {
        let connector = connector(pki)?;
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        tls_server::start(node, PORT, pki, move |stream, acceptor| {
            serve(Arc::clone(&own), stream, acceptor, connector.clone())
        })?;
        Ok(Self(shared))
    }

    /// Makes the fault affect requests of this method whose path contains `path`, instead of an earlier fault.
    pub(crate) fn set_fault(&self, method: Method, path: &str, fault: RequestFault) {
        *lock(&self.0.rule) = Some(Rule {
            method,
            path: path.to_owned(),
            fault,
            first: None,
        });
    }

    /// Forwards all requests again.
    pub(crate) fn clear_fault(&self) {
        *lock(&self.0.rule) = None;
    }

    /// Returns the requests so far of this method whose path contains `path`, oldest first.
    pub(crate) fn requests(&self, method: &Method, path: &str) -> Vec<RecordedRequest> {
        let seen = lock(&self.0.seen);
        let wanted = |seen: &&RecordedRequest| seen.method == *method && seen.path.contains(path);
        seen.iter().filter(wanted).cloned().collect()
    }
}

impl Shared {
    /// Records a request and returns what to do with it.
    fn record(&self, method: &Method, path: &str) -> Action {
        let at = Instant::now();
        lock(&self.seen).push(RecordedRequest {
            at,
            method: method.clone(),
            path: path.to_owned(),
        });
        let mut rule = lock(&self.rule);
        let meets = |rule: &&mut Rule| rule.method == *method && path.contains(&rule.path);
        let Some(found) = rule.as_mut().filter(meets) else {
            return Action::Forward;
        };
        match found.fault {
            RequestFault::Hang => {
                *rule = None;
                Action::Hang
            }
            RequestFault::Busy { seconds } => {
                let first = *found.first.get_or_insert(at);
                if at - first < Duration::from_secs(seconds) {
                    Action::Refuse { seconds }
                } else {
                    Action::Forward
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
) -> anyhow::Result<()> {
    let is_stalled = Arc::<AtomicBool>::default();
    let stream = Stalling {
        stream,
        is_stalled: Arc::clone(&is_stalled),
    };
    let stream = acceptor.accept(stream).await?;
    let upstream = connect(&connector).await?;
    let service = service_fn(move |request| {
        answer(
            Arc::clone(&shared),
            Arc::clone(&is_stalled),
            upstream.clone(),
            request,
        )
    });
    auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(|error| anyhow::anyhow!(error))
}

async fn answer(
    shared: Arc<Shared>,
    is_stalled: Arc<AtomicBool>,
    upstream: Upstream,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Body>> {
    match shared.record(request.method(), request.uri().path()) {
        Action::Forward => forward(upstream, request).await,
        Action::Hang => {
            is_stalled.store(true, Ordering::SeqCst);
            pending().await
        }
        Action::Refuse { seconds } => {
            let mut response = Response::new(Either::Right(Full::new(Bytes::new())));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            Ok(response)
        }
    }
}

async fn connect(connector: &TlsConnector) -> anyhow::Result<Upstream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, SERVER)).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
    let stream = connector.connect(name, stream).await?;
    let (upstream, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // The task ends with the last request that uses the connection.
    tokio::spawn(connection);
    Ok(upstream)
}

async fn forward(
    mut upstream: Upstream,
    mut request: Request<Incoming>,
) -> anyhow::Result<Response<Body>> {
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::builder()
        .scheme(Scheme::HTTPS)
        .authority(format!("127.0.0.1:{SERVER}"))
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()?;
    *request.version_mut() = Version::HTTP_2;
    // These headers are about the connection between client and proxy.
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        request.headers_mut().remove(header);
    }
    let mut response = upstream.send_request(request).await?;
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(Either::Left))
}

/// A connection that stops to transfer bytes when the flag is set.
struct Stalling {
    stream: TcpStream,
    is_stalled: Arc<AtomicBool>,
}

impl Stalling {
    fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::SeqCst)
    }
}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_stalled() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_stalled() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if self.is_stalled() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_stalled() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn connector(pki: &Pki) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pki, "ca.crt")? {
        roots.add(certificate)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
