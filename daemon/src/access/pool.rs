//! Which connection a request goes out on: one of HTTP/2 for all of them where the server speaks it, else one of HTTP/1 for each, kept
//! for the next. A connection on which an answer did not come in time takes no further request: the next try has another one, while
//! what still runs on the old one, a watch for example, may go on there.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use hyper::{Request, Response, Uri, body::Incoming, header::HOST, http::HeaderValue};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::AbortHandle,
    time::{Duration, Instant},
};

use super::connect::{Body, ConnectError, Connector, Sender};

/// So many requests are under way at once; the others wait. A watch is none of them. An API server takes 100 streams per connection.
const AT_ONCE: usize = 64;
/// The same where each of them needs a connection of its own.
const AT_ONCE_HTTP1: usize = 8;
/// Servers close connections that rest: after this time an idle one is not tried any more.
const IDLE: Duration = Duration::from_secs(45);

/// Connections to one API server with one set of credentials.
pub(super) struct Pool {
    connector: Connector,
    open: Mutex<Open>,
    /// Held while the first connection is made, which tells how many are needed.
    connecting: tokio::sync::Mutex<()>,
    at_once: Semaphore,
    at_once_http1: Semaphore,
    made: AtomicU64,
}

#[derive(Default)]
struct Open {
    http2: Option<Http2>,
    http1: Vec<(Http1, Instant)>,
    /// The server was found to speak HTTP/1 alone.
    is_http1: bool,
    /// Connections up to this number are suspected.
    suspected: u64,
}

/// A connection that can be shared.
#[derive(Clone)]
struct Http2 {
    number: u64,
    sender: hyper::client::conn::http2::SendRequest<Body>,
}

/// A connection that cannot.
struct Http1 {
    number: u64,
    sender: hyper::client::conn::http1::SendRequest<Body>,
    task: AbortHandle,
}

/// The connection of one request.
pub(super) struct Lane(Protocol);

enum Protocol {
    Http2(Http2),
    Http1(Http1),
}

/// The right to send one request now.
pub(super) struct Turn<'a> {
    _all: SemaphorePermit<'a>,
    _http1: Option<SemaphorePermit<'a>>,
}

impl Pool {
    pub(super) fn new(connector: Connector) -> Self {
        Self {
            connector,
            open: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            at_once: Semaphore::new(AT_ONCE),
            at_once_http1: Semaphore::new(AT_ONCE_HTTP1),
            made: AtomicU64::default(),
        }
    }

    /// Waits until a short request may be sent.
    pub(super) async fn turn(&self) -> Turn<'_> {
        let never = "semaphores are never closed";
        let all = self.at_once.acquire().await.expect(never);
        let http1 = if self.lock().is_http1 {
            Some(self.at_once_http1.acquire().await.expect(never))
        } else {
            None
        };
        Turn {
            _all: all,
            _http1: http1,
        }
    }

    /// Returns a connection for one request: an open one, or a new one.
    pub(super) async fn lane(&self) -> Result<Lane, ConnectError> {
        if let Some(lane) = self.reuse() {
            return Ok(lane);
        }
        // Once connections cannot be shared, nobody waits for another's.
        if !self.lock().is_http1 {
            let _first = self.connecting.lock().await;
            if let Some(lane) = self.reuse() {
                return Ok(lane);
            }
            if !self.lock().is_http1 {
                return self.connect().await;
            }
        }
        self.connect().await
    }

    /// No answer came on this connection: it is not used again, nor is any that is as old.
    pub(super) fn suspect(&self, lane: &Lane) {
        let number = match &lane.0 {
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

    /// An answer was read to its end: the connection can take another request.
    pub(super) fn give_back(&self, lane: Lane) {
        if let Protocol::Http1(connection) = lane.0 {
            let mut open = self.lock();
            if connection.number > open.suspected && !connection.sender.is_closed() {
                open.http1.push((connection, Instant::now()));
            }
        }
    }

    fn reuse(&self) -> Option<Lane> {
        let mut open = self.lock();
        open.http2.take_if(|one| one.sender.is_closed());
        if let Some(connection) = &open.http2 {
            return Some(Lane(Protocol::Http2(connection.clone())));
        }
        open.http1
            .retain(|(one, since)| !one.sender.is_closed() && since.elapsed() < IDLE);
        let (connection, _) = open.http1.pop()?;
        Some(Lane(Protocol::Http1(connection)))
    }

    async fn connect(&self) -> Result<Lane, ConnectError> {
        // Numbered when it begins, so that a suspicion that comes meanwhile is not about it.
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let sender = self.connector.connect().await?;
        let mut open = self.lock();
        Ok(Lane(match sender {
            Sender::Http2(sender) => {
                let connection = Http2 { number, sender };
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

impl Lane {
    /// Sends a request with an absolute address; returns when the head of its answer is there.
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

/// HTTP/1 has the host in a header and the path alone in its first line.
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
