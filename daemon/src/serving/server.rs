//! HTTP on the unix socket: paths, bounds and status codes. What a request means is the service's business.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use anyhow::Context;
use cmdline::causes;
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
    host::dir_watch::DirectoryWatch,
    readiness::Part,
    serving::{
        Path,
        response::answer,
        service::Service,
        snapshot,
        socket::{Holder, Socket},
        verb,
    },
};

/// A client that sends nothing is not waited for.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// In-flight requests get this long after SIGTERM, less than the pod's grace period of 30 s.
const DRAIN_TIME: Duration = Duration::from_secs(20);
/// The same for those that were queued when nobody else could find us any more.
const QUEUE_TIME: Duration = Duration::from_secs(5);
/// Pause while no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause between two attempts to put the socket where it belongs.
const RETRY: Duration = Duration::from_secs(1);

/// Serves until `stop` is done, then finishes what is queued or in flight. Takes the name that shims know once `publish` is done.
pub async fn serve(
    mut socket: Socket,
    service: Arc<Service>,
    publish: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) {
    let limit = service.config.connection_limit.unwrap_or(usize::MAX);
    let (mut publish, mut stop) = (pin!(publish.fuse()), pin!(stop));
    let mut connections = JoinSet::new();
    loop {
        let tended = tend(&mut socket);
        let holder = socket.holder();
        match (&tended, unpublished(holder)) {
            (Ok(_), None) => service.readiness.well(Part::Socket),
            (Ok(_), Some(reason)) => service.readiness.waiting(Part::Socket, reason),
            (Err(error), _) => service
                .readiness
                .missing(Part::Socket, format!("{error:#}")),
        }
        let is_standby = holder == Holder::Another && socket.is_served();
        service.readiness.standby(is_standby);
        // Who waits here is better served there.
        service.withdrawn.send_replace(is_standby);
        let disturbed = async {
            match &tended {
                // Nobody tells of the death of another one.
                Ok(watch) if holder == Holder::Another => {
                    let _ = tokio::time::timeout(RETRY, watch.changed()).await;
                }
                Ok(watch) => watch.changed().await,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        let mut disturbed = pin!(disturbed);
        loop {
            tokio::select! {
                // Those beyond the limit wait in the kernel's queue.
                accepted = socket.accept(), if connections.len() < limit => match accepted {
                    Ok(stream) => drop(connections.spawn(converse(Arc::clone(&service), stream))),
                    Err(error) => {
                        // Out of descriptors, as a rule: others end meanwhile.
                        warn!(error = %causes(&error), "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = &mut publish => {
                    socket.publish();
                    break;
                }
                () = &mut disturbed => break,
                () = &mut stop => return drain(socket, &service, connections).await,
            }
        }
    }
}

/// The names as they should be, and what will tell when they are not.
fn tend(socket: &mut Socket) -> anyhow::Result<DirectoryWatch> {
    let watch = socket.watch();
    socket.look_after_names()?;
    // The directory may have been made just now.
    let watch = watch.or_else(|_| socket.watch());
    watch.context("cannot watch the socket's directory")
}

/// Goes on as long as a verb is under way, and is found meanwhile: whoever comes to delete is served, whoever comes to add is told
/// to wait. Then nobody finds us any more, and who is queued is served.
async fn drain(mut socket: Socket, service: &Arc<Service>, mut connections: JoinSet<()>) {
    let mut busy = service.busy.subscribe();
    let idle = async {
        // The sender lives in the service, which lives here.
        let _ = busy.wait_for(|verbs| *verbs == 0).await;
    };
    let mut idle = pin!(tokio::time::timeout(DRAIN_TIME, idle));
    let left = loop {
        tokio::select! {
            biased;
            ended = &mut idle => break ended,
            Ok(stream) = socket.accept() => drop(connections.spawn(converse(Arc::clone(service), stream))),
            Some(_) = connections.join_next() => {}
        }
    };
    if let Err(error) = socket.withdraw() {
        warn!(%error, "cannot withdraw the socket");
    }
    // Requests that are held go to the next daemon.
    service.withdrawn.send_replace(true);
    let ended = async {
        loop {
            while let Some(stream) = socket.queued() {
                connections.spawn(converse(Arc::clone(service), stream));
            }
            if connections.join_next().await.is_none() {
                break;
            }
        }
    };
    let rest = if left.is_ok() { QUEUE_TIME } else { PAUSE };
    if tokio::time::timeout(rest, ended).await.is_err() || left.is_err() {
        warn!("some requests did not end in time; the next start repairs what they leave");
    }
}

fn unpublished(holder: Holder) -> Option<&'static str> {
    match holder {
        Holder::Us => None,
        Holder::Another => Some("another daemon of this node serves pods"),
        Holder::Nobody => Some("shims do not find it yet"),
    }
}

/// One request and its answer.
async fn converse(service: Arc<Service>, stream: UnixStream) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request| route(Arc::clone(&service), request)),
        );
    if let Err(error) = connection.await {
        debug!(error = %causes(&error), "a connection ended early");
    }
}

async fn route(
    service: Arc<Service>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    const PATHS: [&str; 7] = [
        api::PATH_CNI,
        api::PATH_DELEGATE,
        api::PATH_HEALTHZ,
        api::PATH_READYZ,
        api::PATH_FAILURES,
        api::PATH_METRICS,
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
        (api::PATH_CNI, Method::POST) => verb(service, request, Path::Cni).await,
        (api::PATH_DELEGATE, Method::POST) => verb(service, request, Path::Delegate).await,
        (api::PATH_HEALTHZ, _) if read => answer(StatusCode::OK, service.readiness.notes()),
        (api::PATH_READYZ, _) if read => match service.readiness.problem() {
            None => answer(StatusCode::OK, service.readiness.notes()),
            Some(problem) => answer(StatusCode::INTERNAL_SERVER_ERROR, problem),
        },
        (api::PATH_FAILURES, Method::GET) => answer(StatusCode::OK, service.failures.to_json()),
        (api::PATH_METRICS, Method::GET) => {
            let text = snapshot::take(&service).await.text(&service.metrics);
            answer(StatusCode::OK, text)
        }
        (api::PATH_STATUS, Method::GET) => {
            let status = snapshot::take(&service).await.status(&service.metrics);
            let json = serde_json::to_vec(&status).expect("a status always serialises");
            answer(StatusCode::OK, json)
        }
        (
            api::PATH_CNI
            | api::PATH_DELEGATE
            | api::PATH_HEALTHZ
            | api::PATH_READYZ
            | api::PATH_FAILURES
            | api::PATH_METRICS
            | api::PATH_STATUS,
            _,
        ) => answer(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed\n"),
        _ => answer(StatusCode::NOT_FOUND, ""),
    }
}
