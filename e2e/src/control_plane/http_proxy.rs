//! A reverse proxy between the daemon and its API server that reads each request, so that a test can hang or refuse a single one.
//!
//! Module `tcp_proxy` forwards bytes and affects whole connections; this one terminates TLS, offers HTTP/2 and HTTP/1.1 as an API server
//! does, and records every request.

use std::{
    future::pending,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
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
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::pki::Pki;
use crate::node::{Node, thread::spawn_server};

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
        let (acceptor, connector) = (acceptor(pki)?, connector(pki)?);
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let address = format!("port {PORT}");
        // A runtime on this one thread, because sockets belong to the network namespace of the thread that creates them.
        spawn_server(node, &address, listen, move |(runtime, listener)| {
            runtime.block_on(accept(own, listener, acceptor, connector));
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

fn listen() -> io::Result<(tokio::runtime::Runtime, TcpListener)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok((runtime, listener))
}

async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        let accepted: io::Result<(TcpStream, SocketAddr)> = listener.accept().await;
        let Ok((stream, _)) = accepted else {
            // Usually the process has no free file descriptor; connections that end meanwhile free some.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (shared, acceptor, connector) =
            (Arc::clone(&shared), acceptor.clone(), connector.clone());
        tokio::spawn(async move {
            // The daemon handles a broken connection; the proxy has nothing to report.
            let _ = serve(shared, stream, acceptor, connector).await;
        });
    }
}

async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
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

fn acceptor(pki: &Pki) -> anyhow::Result<TlsAcceptor> {
    let chain = certificates(pki, "apiserver.crt")?;
    let file = pki.file("apiserver.key");
    let key = PrivateKeyDer::from_pem_file(&file)
        .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
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

fn certificates(pki: &Pki, name: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let file = pki.file(name);
    CertificateDer::pem_file_iter(&file)
        .and_then(Iterator::collect)
        .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}
