//! HTTP on the unix socket: paths, limits and status codes. The service handles the requests.

use std::{convert::Infallible, io, pin::pin, sync::Arc, time::Duration};

use cmdline::error_line;
use futures::FutureExt;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::UnixStream, task::JoinSet};
use tracing::{debug, warn};

use crate::{
    host::{dir_watch::DirectoryWatch, orphans},
    readiness::Gate,
    serving::{
        Endpoint, networks,
        response::reply,
        service::Service,
        snapshot,
        socket::{Socket, SocketOwner},
        verb,
    },
};

/// Limit for a client to send its headers.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// In-flight requests get this long after SIGTERM, less than the pod's grace period of 30 s.
const DRAIN_TIME: Duration = Duration::from_secs(20);
/// The same for connections that were queued when the socket was withdrawn.
const QUEUE_TIME: Duration = Duration::from_secs(5);
/// Pause when no file descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause between two attempts to publish the socket.
const RETRY: Duration = Duration::from_secs(1);

/// Serves until `stop` is done, then finishes requests that are queued or in flight. Takes the name that shims connect to once `publish` is
/// done.
pub async fn serve(
    mut socket: Socket,
    service: Arc<Service>,
    publish: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) {
    let limit = service.config.connection_limit.unwrap_or(usize::MAX);
    let (mut publish, mut stop) = (pin!(publish.fuse()), pin!(stop));
    let mut connections = JoinSet::new();
    let mut other_was_served = false;
    loop {
        let maintained = maintain(&mut socket);
        let owner = socket.owner();
        let other_is_served = socket.has_others();
        if std::mem::replace(&mut other_was_served, other_is_served) && !other_is_served {
            tokio::spawn(end_orphans());
        }
        match (&maintained, unpublished(owner)) {
            (Ok(_), None) => service.readiness.open(Gate::Socket),
            (Ok(_), Some(reason)) => service.readiness.close_while_starting(Gate::Socket, reason),
            (Err(error), _) => service.readiness.close(Gate::Socket, format!("{error:#}")),
        }
        let is_standby = owner == SocketOwner::OtherDaemon && socket.is_served();
        service.readiness.standby(is_standby);
        // Requests that are held here are sent again to the other daemon.
        service.withdrawn.send_replace(is_standby);
        let disturbed = async {
            // No event reports the death of the other daemon.
            let is_quiet = owner != SocketOwner::OtherDaemon && !other_is_served;
            changed_or_due(maintained.as_ref().ok(), is_quiet).await;
        };
        let mut disturbed = pin!(disturbed);
        loop {
            tokio::select! {
                // Connections beyond the limit wait in the kernel's queue.
                accepted = socket.accept(), if connections.len() < limit => match accepted {
                    Ok(stream) => drop(connections.spawn(serve_connection(Arc::clone(&service), stream))),
                    Err(error) => {
                        // Usually no descriptors are left; other connections end meanwhile.
                        warn!(error = %error_line(&error), "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = &mut publish => {
                    socket.publish();
                    tokio::spawn(end_orphans());
                    break;
                }
                () = &mut disturbed => break,
                () = &mut stop => return drain(socket, &service, connections).await,
            }
        }
    }
}

/// Restores the socket's names. The returned watch reports when they change; a node may have no inotify instance left.
fn maintain(socket: &mut Socket) -> anyhow::Result<io::Result<DirectoryWatch>> {
    let watch = socket.watch();
    socket.restore_names()?;
    // The first attempt fails when the directory was created just now.
    Ok(watch.or_else(|_| socket.watch()))
}

/// Returns when the names have changed, or when it is time to look at them again; without a watch, that is soon.
async fn changed_or_due(watch: Option<&io::Result<DirectoryWatch>>, is_quiet: bool) {
    match watch {
        Some(Ok(watch)) if is_quiet => watch.changed().await,
        Some(Ok(watch)) => {
            let _ = tokio::time::timeout(RETRY, watch.changed()).await;
        }
        Some(Err(_)) | None => tokio::time::sleep(RETRY).await,
    }
}

/// Ends the plugins of a daemon that served before this one, once its process has had the time to end after its socket.
async fn end_orphans() {
    tokio::time::sleep(RETRY).await;
    // It cannot fail but at the end of this daemon.
    let _ = tokio::task::spawn_blocking(orphans::end).await;
}

/// Accepts connections while a verb is in flight: a DEL is served, an ADD is told to wait. Then withdraws the socket and serves the
/// connections that are already queued.
async fn drain(mut socket: Socket, service: &Arc<Service>, mut connections: JoinSet<()>) {
    let mut busy = service.busy.subscribe();
    let idle = async {
        // It cannot fail: the service owns the sender, and this function borrows the service.
        let _ = busy.wait_for(|verbs| *verbs == 0).await;
    };
    let mut idle = pin!(tokio::time::timeout(DRAIN_TIME, idle));
    let left = loop {
        tokio::select! {
            biased;
            ended = &mut idle => break ended,
            Ok(stream) = socket.accept() => drop(connections.spawn(serve_connection(Arc::clone(service), stream))),
            Some(_) = connections.join_next() => {}
        }
    };
    if let Err(error) = socket.withdraw() {
        warn!(%error, "cannot withdraw the socket");
    }
    // Clients send held requests again, to the next daemon.
    service.withdrawn.send_replace(true);
    let ended = async {
        loop {
            while let Some(stream) = socket.queued() {
                connections.spawn(serve_connection(Arc::clone(service), stream));
            }
            if connections.join_next().await.is_none() {
                break;
            }
        }
    };
    let rest = if left.is_ok() { QUEUE_TIME } else { PAUSE };
    if tokio::time::timeout(rest, ended).await.is_err() || left.is_err() {
        warn!("some requests did not end in time; the next start cleans up after them");
    }
}

fn unpublished(owner: SocketOwner) -> Option<&'static str> {
    match owner {
        SocketOwner::ThisDaemon => None,
        SocketOwner::OtherDaemon => Some("another daemon of this node serves pods"),
        SocketOwner::None => Some("shims do not connect to this daemon yet"),
    }
}

/// Serves the one request of a connection.
async fn serve_connection(service: Arc<Service>, stream: UnixStream) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request| route(Arc::clone(&service), request)),
        );
    if let Err(error) = connection.await {
        debug!(error = %error_line(&error), "a connection failed");
    }
}

async fn route(
    service: Arc<Service>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    const PATHS: [&str; 8] = [
        api::PATH_CNI,
        api::PATH_DELEGATE,
        api::PATH_HEALTHZ,
        api::PATH_READYZ,
        api::PATH_FAILURES,
        api::PATH_METRICS,
        api::PATH_NETWORKS,
        api::PATH_STATUS,
    ];
    let path = request.uri().path();
    let handler = PATHS.into_iter().find(|known| *known == path);
    let (metrics, method) = (Arc::clone(&service.metrics), request.method().clone());
    let response = respond(service, request).await;
    metrics.request(handler.unwrap_or("NotFound"), response.status(), &method);
    Ok(response)
}

async fn respond(service: Arc<Service>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let method = request.method().clone();
    let read = matches!(method, Method::GET | Method::POST);
    match (request.uri().path(), method) {
        (api::PATH_CNI, Method::POST) => verb(service, request, Endpoint::Cni).await,
        (api::PATH_DELEGATE, Method::POST) => verb(service, request, Endpoint::Delegate).await,
        (api::PATH_HEALTHZ, _) if read => reply(StatusCode::OK, service.readiness.notes()),
        (api::PATH_READYZ, _) if read => match service.readiness.problem() {
            None => reply(StatusCode::OK, service.readiness.notes()),
            Some(problem) => reply(StatusCode::INTERNAL_SERVER_ERROR, problem),
        },
        (api::PATH_FAILURES, Method::GET) => reply(StatusCode::OK, service.failures.to_json()),
        (api::PATH_METRICS, Method::GET) => {
            let text = snapshot::take(&service).await.text(&service.metrics);
            reply(StatusCode::OK, text)
        }
        (api::PATH_NETWORKS, Method::GET) => match networks::report(&service).await {
            Ok(json) => reply(StatusCode::OK, json),
            Err(reason) => reply(StatusCode::SERVICE_UNAVAILABLE, reason),
        },
        (api::PATH_STATUS, Method::GET) => {
            let status = snapshot::take(&service).await.status(&service.metrics);
            let json = serde_json::to_vec(&status).expect("a status always serialises");
            reply(StatusCode::OK, json)
        }
        (
            api::PATH_CNI
            | api::PATH_DELEGATE
            | api::PATH_HEALTHZ
            | api::PATH_READYZ
            | api::PATH_FAILURES
            | api::PATH_METRICS
            | api::PATH_NETWORKS
            | api::PATH_STATUS,
            _,
        ) => reply(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed\n"),
        _ => reply(StatusCode::NOT_FOUND, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_are_looked_at_again_without_a_watch() {
        let no_instance = Err(io::Error::from(rustix::io::Errno::MFILE));
        let due = changed_or_due(Some(&no_instance), true);
        assert!(tokio::time::timeout(60 * RETRY, due).await.is_ok());
    }
}
