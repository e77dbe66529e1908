//! Serves the metrics to Prometheus when `metricsPort` is set.

use std::{
    collections::VecDeque,
    convert::Infallible,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use cmdline::error_line;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, body::Bytes, server::conn::http1, service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    sync::Mutex,
    task::{AbortHandle, JoinHandle},
};
use tracing::warn;

use super::snapshot;
use crate::serving::service::Service;

/// Limit for a client to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most connections at once. Everybody who reaches the node may open one, so another one closes the oldest.
const CONNECTIONS: usize = 16;
/// How long a snapshot is served again: each costs a thread and reads the node's files.
const SHARED_FOR: Duration = Duration::from_secs(1);
/// Pause before another attempt to bind a port that is in use.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Serves metrics on every address of the node, as upstream does. Logs a warning and retries while the port is in use.
pub async fn serve(service: Arc<Service>, port: u16) {
    loop {
        let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
            // The node has no IPv6.
            Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
            listener => listener,
        };
        match listener {
            Ok(listener) => accept(&service, &listener).await,
            Err(error) => {
                warn!(port, error = %error_line(&error), "cannot serve metrics: set metricsPort to a free port");
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// The text of the last snapshot, which scrapes share for a moment.
#[derive(Default)]
struct SharedText(Mutex<Option<(Instant, Bytes)>>);

impl SharedText {
    /// Returns the last text, or takes a new one when that is too old. Concurrent callers wait for the same one.
    async fn get(&self, take: impl AsyncFnOnce() -> String) -> Bytes {
        let mut last = self.0.lock().await;
        match &*last {
            Some((at, text)) if at.elapsed() < SHARED_FOR => text.clone(),
            _ => {
                let text = Bytes::from(take().await);
                *last = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections(VecDeque<AbortHandle>);

impl Connections {
    /// Adds a connection, and closes the oldest one if there are too many.
    fn add(&mut self, connection: &JoinHandle<()>) {
        self.0.retain(|one| !one.is_finished());
        if self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(connection.abort_handle());
    }
}

/// Serves until a connection cannot be accepted.
async fn accept(service: &Arc<Service>, listener: &TcpListener) {
    let mut connections = Connections::default();
    let text = Arc::new(SharedText::default());
    while let Ok((stream, _)) = listener.accept().await {
        let (service, text) = (Arc::clone(service), Arc::clone(&text));
        let service = service_fn(move |request: Request<_>| {
            let (service, text) = (Arc::clone(&service), Arc::clone(&text));
            async move {
                let (method, path) = (request.method(), request.uri().path());
                Ok::<_, Infallible>(respond(&service, &text, method, path).await)
            }
        });
        let connection = http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        // A client may disconnect at any time.
        connections.add(&tokio::spawn(async { drop(connection.await) }));
    }
}

async fn respond(
    service: &Arc<Service>,
    text: &SharedText,
    method: &Method,
    path: &str,
) -> Response<Full<Bytes>> {
    let (status, text) = match (path, method) {
        (api::PATH_METRICS, &Method::GET) => {
            let take = async || snapshot::take(service).await.text(&service.metrics);
            (StatusCode::OK, text.get(take).await)
        }
        (api::PATH_METRICS, _) => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn oldest_connection_is_closed_at_the_limit() {
        let mut connections = Connections::default();
        let mut open = || {
            let connection = tokio::spawn(std::future::pending());
            connections.add(&connection);
            connection
        };
        let oldest = open();
        let others: Vec<_> = (1..CONNECTIONS).map(|_| open()).collect();
        tokio::task::yield_now().await;
        assert!(!oldest.is_finished());
        let newest = open();
        let ended = tokio::time::timeout(HEADER_TIMEOUT, oldest).await;
        assert!(ended.unwrap().unwrap_err().is_cancelled());
        assert!(others.iter().chain([&newest]).all(|one| !one.is_finished()));
        // One that has ended needs no room.
        others[3].abort();
        while !others[3].is_finished() {
            tokio::task::yield_now().await;
        }
        open();
        tokio::task::yield_now().await;
        assert!(!others[0].is_finished());
    }

    #[tokio::test]
    async fn snapshot_is_shared_for_a_moment() {
        let text = SharedText::default();
        assert_eq!(text.get(async || "one".to_owned()).await, "one");
        assert_eq!(text.get(async || "two".to_owned()).await, "one");
        let long_ago = Instant::now().checked_sub(SHARED_FOR).unwrap();
        text.0.lock().await.as_mut().unwrap().0 = long_ago;
        assert_eq!(text.get(async || "three".to_owned()).await, "three");
    }
}
