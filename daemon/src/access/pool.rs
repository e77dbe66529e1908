//! The connection pool. All requests share one HTTP/2 connection where the server speaks it; else each has an HTTP/1 connection, which is
//! kept for later requests. A connection that is dead takes no further request: the next try uses another one, while requests that still
//! run on the old one, such as a watch, may continue there.
//!
//! A slow API server is not a dead connection: each further connection would be more load for it. A small request decides which of the two
//! it is when an answer does not arrive. With HTTP/1, a connection without an answer can carry no other request, so it is given up.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use hyper::{Request, Response, Uri, body::Incoming, header::HOST, http::HeaderValue};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::AbortHandle,
    time::{Duration, Instant, sleep, timeout},
};

use super::connect::{Body, ConnectError, Connector, Sender};

/// The limit of concurrent requests, without watches; further ones wait. An API server accepts 100 streams per connection.
const CONCURRENCY: usize = 64;
/// The same limit where each request needs a connection of its own.
const CONCURRENCY_HTTP1: usize = 8;
/// How long a request waits for another request that already opens the first connection.
const FIRST_TIMEOUT: Duration = Duration::from_millis(300);
/// Servers close idle connections. A connection that was idle for this time is not used again.
const MAX_IDLE: Duration = Duration::from_secs(45);
/// A request without an answer for this time makes its connection be pinged. A healthy server answers in milliseconds.
const PING_AFTER: Duration = Duration::from_secs(1);
/// A connection whose ping has no answer for this time is dead. A server that is only busy answers it earlier.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections to one API server with one set of credentials.
pub(super) struct Pool {
    connector: Connector,
    open: Mutex<Open>,
    /// Held while the first connection is opened. Its protocol decides how many connections are needed.
    connecting: tokio::sync::Mutex<()>,
    permits: Semaphore,
    http1_permits: Semaphore,
    opened: AtomicU64,
}

#[derive(Default)]
struct Open {
    http2: Option<Http2>,
    http1: Vec<(Http1, Instant)>,
    /// Whether the server speaks HTTP/1 only.
    is_http1: bool,
    /// Connections up to this number take no further request.
    suspected: u64,
}

/// A connection that requests share.
#[derive(Clone)]
struct Http2 {
    number: u64,
    sender: hyper::client::conn::http2::SendRequest<Body>,
    /// The end of the last ping, and whether it was answered. The lock is held during a ping, so that one serves all requests that wait.
    pinged: Arc<tokio::sync::Mutex<Option<(Instant, bool)>>>,
}

/// A connection that takes one request at a time.
struct Http1 {
    number: u64,
    sender: hyper::client::conn::http1::SendRequest<Body>,
    task: AbortHandle,
}

/// The connection of one request.
pub(super) struct PooledConnection(Protocol);

enum Protocol {
    Http2(Http2),
    Http1(Http1),
}

/// The permit to send one request.
pub(super) struct Permit<'a> {
    _all: SemaphorePermit<'a>,
    _http1: Option<SemaphorePermit<'a>>,
}

impl Pool {
    pub(super) fn new(connector: Connector) -> Self {
        Self {
            connector,
            open: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            permits: Semaphore::new(CONCURRENCY),
            http1_permits: Semaphore::new(CONCURRENCY_HTTP1),
            opened: AtomicU64::default(),
        }
    }

    /// Waits until a short request may be sent.
    pub(super) async fn permit(&self) -> Permit<'_> {
        let never = "semaphores are never closed";
        let all = self.permits.acquire().await.expect(never);
        let http1 = if self.lock().is_http1 {
            Some(self.http1_permits.acquire().await.expect(never))
        } else {
            None
        };
        Permit {
            _all: all,
            _http1: http1,
        }
    }

    /// Returns a connection for one request: an open one, or a new one.
    pub(super) async fn acquire(&self) -> Result<PooledConnection, ConnectError> {
        if let Some(connection) = self.reuse() {
            return Ok(connection);
        }
        // With HTTP/1, connections cannot be shared, so a request does not wait for another's.
        if !self.lock().is_http1 {
            // A connection that takes long to open must not delay other requests.
            let _first = timeout(FIRST_TIMEOUT, self.connecting.lock()).await;
            if let Some(connection) = self.reuse() {
                return Ok(connection);
            }
            if !self.lock().is_http1 {
                return self.connect().await;
            }
        }
        self.connect().await
    }

    /// Reports that an answer did not arrive on this connection in time. Whether a connection of HTTP/2 is dead, pings decide.
    pub(super) fn overdue(&self, connection: &PooledConnection) {
        if matches!(connection.0, Protocol::Http1(_)) {
            self.suspect(connection);
        }
    }

    /// Reports that this connection is broken or dead. Neither it nor any older connection is used again.
    pub(super) fn suspect(&self, connection: &PooledConnection) {
        let number = match &connection.0 {
            Protocol::Http2(connection) => connection.number,
            Protocol::Http1(connection) => {
                connection.task.abort();
                connection.number
            }
        };
        let mut open = self.lock();
        open.suspected = open.suspected.max(number);
        let suspected = open.suspected;
        open.http2.take_if(|one| one.number <= suspected);
        open.http1.retain(|(one, _)| one.number > suspected);
    }

    /// Puts back a connection whose answer was read to its end, so that it can take another request.
    pub(super) fn release(&self, connection: PooledConnection) {
        if let Protocol::Http1(connection) = connection.0 {
            let mut open = self.lock();
            if connection.number > open.suspected && !connection.sender.is_closed() {
                open.http1.push((connection, Instant::now()));
            }
        }
    }

    fn reuse(&self) -> Option<PooledConnection> {
        let mut open = self.lock();
        open.http2.take_if(|one| one.sender.is_closed());
        if let Some(connection) = &open.http2 {
            return Some(PooledConnection(Protocol::Http2(connection.clone())));
        }
        open.http1
            .retain(|(one, since)| !one.sender.is_closed() && since.elapsed() < MAX_IDLE);
        let (connection, _) = open.http1.pop()?;
        Some(PooledConnection(Protocol::Http1(connection)))
    }

    async fn connect(&self) -> Result<PooledConnection, ConnectError> {
        // Numbered when it begins: an older connection that fails meanwhile has a lower number, so this one stays usable.
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let sender = self.connector.connect().await?;
        let mut open = self.lock();
        Ok(PooledConnection(match sender {
            Sender::Http2(sender) => {
                let pinged = Arc::default();
                let connection = Http2 {
                    number,
                    sender,
                    pinged,
                };
                open.is_http1 = false;
                open.http2 = Some(connection.clone());
                Protocol::Http2(connection)
            }
            Sender::Http1(sender, task) => {
                open.is_http1 = true;
                Protocol::Http1(Http1 {
                    number,
                    sender,
                    task,
                })
            }
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledConnection {
    /// Sends a request with an absolute address and returns the head of its answer.
    pub(super) async fn send(
        &mut self,
        mut request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        match &mut self.0 {
            Protocol::Http2(connection) => {
                connection.sender.ready().await?;
                connection.sender.send_request(request).await
            }
            Protocol::Http1(connection) => {
                connection.sender.ready().await?;
                in_origin_form(&mut request);
                connection.sender.send_request(request).await
            }
        }
    }
}

impl PooledConnection {
    /// Returns a future that ends if the connection is dead, as far as `ping` shows that; else it stays pending. It is for use while a
    /// request waits for its answer.
    pub(super) fn is_dead(&self, ping: Request<Body>) -> impl Future<Output = ()> + use<> {
        let shared = match &self.0 {
            Protocol::Http2(connection) => Some(connection.clone()),
            Protocol::Http1(_) => None,
        };
        async move {
            sleep(PING_AFTER).await;
            let is_dead = match shared {
                Some(connection) => !connection.answers(ping).await,
                None => false,
            };
            if !is_dead {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Http2 {
    /// Whether the server answers on this connection, now or to another request's ping just before.
    async fn answers(mut self, ping: Request<Body>) -> bool {
        let mut pinged = self.pinged.lock().await;
        match *pinged {
            Some((at, is_alive)) if at.elapsed() < PING_AFTER => is_alive,
            _ => {
                // A refusal is an answer, too.
                let answer = timeout(PING_TIMEOUT, self.sender.send_request(ping)).await;
                let is_alive = matches!(answer, Ok(Ok(_)));
                *pinged = Some((Instant::now(), is_alive));
                is_alive
            }
        }
    }
}

/// Converts a request to HTTP/1's form, with the host in a header and only the path in the request line.
fn in_origin_form(request: &mut Request<Body>) {
    let uri = request.uri();
    if let Some(host) = uri
        .authority()
        .and_then(|host| HeaderValue::from_str(host.as_str()).ok())
    {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        if let Ok(path) = path.parse::<Uri>() {
            *request.uri_mut() = path;
        }
        request.headers_mut().insert(HOST, host);
    }
}
