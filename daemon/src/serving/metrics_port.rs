//! Serves the metrics to Prometheus when `metricsPort` is set.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use cmdline::error_line;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, body::Bytes, server::conn::http1, service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tracing::warn;

use super::snapshot;
use crate::serving::service::Service;

/// Limit for a client to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Serves until a connection cannot be accepted.
async fn accept(service: &Arc<Service>, listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let service = Arc::clone(service);
        let service = service_fn(move |request: Request<_>| {
            let service = Arc::clone(&service);
            async move {
                let (method, path) = (request.method(), request.uri().path());
                Ok::<_, Infallible>(respond(&service, method, path).await)
            }
        });
        let connection = http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        // A client may disconnect at any time.
        tokio::spawn(async { drop(connection.await) });
    }
}

async fn respond(service: &Arc<Service>, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match (path, method) {
        (api::PATH_METRICS, &Method::GET) => {
            let text = snapshot::take(service).await.text(&service.metrics);
            (StatusCode::OK, text)
        }
        (api::PATH_METRICS, _) => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}
