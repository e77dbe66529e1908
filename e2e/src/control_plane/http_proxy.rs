//! A reverse proxy between the daemon and its API server that reads each request, so that a test can hang or refuse a single one.
//!
//! Module `proxy` carries bytes and disturbs whole connections; this one ends TLS, offers HTTP/2 and HTTP/1.1 as an API server does,
//! and records every request.

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

/// Where the proxy listens on the node's loopback.
pub(crate) const PORT: u16 = 7444;
/// The API server.
const SERVER: u16 = 6443;

/// The API server's answer, or the proxy's own.
type Body = Either<Incoming, Full<Bytes>>;
/// A connection to the API server: each of the daemon's has one behind it.
type Upstream = http2::SendRequest<Incoming>;

/// What happens to a request instead of being forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFault {
    /// The request's connection carries no further byte in either direction and stays open. Happens once.
    Hang,
    /// The request is answered 429 with this `Retry-After`, until that time has passed since the first such answer.
    Busy {
        /// `Retry-After`, in seconds.
        seconds: u64,
    },
}

/// A request that reached the proxy.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// When its head was read.
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

/// The requests that a fault is for.
struct Rule {
    method: Method,
    path: String,
    fault: RequestFault,
    first: Option<Instant>,
}

/// What to do with one request.
enum Verdict {
    Forward,
    Hang,
    Refuse { seconds: u64 },
}

impl HttpProxy {
    /// Listens on the node, with the API server's own certificate.
    pub(crate) fn start(node: &Node, pki: &Pki) -> anyhow::Result<Self> {
        let (acceptor, connector) = (acceptor(pki)?, connector(pki)?);
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let address = format!("port {PORT}");
        // The runtime has no further threads: its sockets belong to the namespace of this one.
        spawn_server(node, &address, listen, move |(runtime, listener)| {
            runtime.block_on(accept(own, listener, acceptor, connector));
        })?;
        Ok(Self(shared))
    }

    /// From now on requests of this method whose path contains `path` meet the fault; it replaces an earlier one.
    pub(crate) fn set(&self, method: Method, path: &str, fault: RequestFault) {
        *lock(&self.0.rule) = Some(Rule {
            method,
            path: path.to_owned(),
            fault,
            first: None,
        });
    }

    /// Forwards everything again.
    pub(crate) fn clear(&self) {
        *lock(&self.0.rule) = None;
    }

    /// The requests of this method whose path contains `path`, oldest first.
    pub(crate) fn seen(&self, method: &Method, path: &str) -> Vec<RecordedRequest> {
        let seen = lock(&self.0.seen);
        let wanted = |seen: &&RecordedRequest| seen.method == *method && seen.path.contains(path);
        seen.iter().filter(wanted).cloned().collect()
    }
}

impl Shared {
    fn judge(&self, method: &Method, path: &str) -> Verdict {
        let at = Instant::now();
        lock(&self.seen).push(RecordedRequest {
            at,
            method: method.clone(),
            path: path.to_owned(),
        });
        let mut rule = lock(&self.rule);
        let meets = |rule: &&mut Rule| rule.method == *method && path.contains(&rule.path);
        let Some(found) = rule.as_mut().filter(meets) else {
            return Verdict::Forward;
        };
        match found.fault {
            RequestFault::Hang => {
                *rule = None;
                Verdict::Hang
            }
            RequestFault::Busy { seconds } => {
                let first = *found.first.get_or_insert(at);
                if at - first < Duration::from_secs(seconds) {
                    Verdict::Refuse { seconds }
                } else {
                    Verdict::Forward
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
            // Out of descriptors, as a rule: others end meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (shared, acceptor, connector) =
            (Arc::clone(&shared), acceptor.clone(), connector.clone());
        tokio::spawn(async move {
            // A connection that breaks is the daemon's own affair.
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
    match shared.judge(request.method(), request.uri().path()) {
        Verdict::Forward => forward(upstream, request).await,
        Verdict::Hang => {
            is_stalled.store(true, Ordering::SeqCst);
            pending().await
        }
        Verdict::Refuse { seconds } => {
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
    // It ends with the last request that holds it.
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
    // They are about the connection to the proxy.
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        request.headers_mut().remove(header);
    }
    let mut response = upstream.send_request(request).await?;
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(Either::Left))
}

/// A connection that stops to carry bytes once that is wanted.
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
