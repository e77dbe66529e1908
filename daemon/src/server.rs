//! HTTP on the unix socket: paths, bounds and status codes. What a request means is the service's business.

use std::{
    convert::Infallible, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration,
};

use anyhow::Context;
use cni::types::CniError;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use node::root::{Kind, Root, proc_path};
use tokio::net::UnixListener;
use tracing::{debug, error, warn};

use crate::{causes::causes, service::Service};

/// A client that sends nothing is not waited for.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// In-flight requests get this long after SIGTERM, less than the pod's grace period of 30 s.
const DRAIN_TIME: Duration = Duration::from_secs(20);

/// Opens the socket: directory 0700, socket 0600, and of what is there only a socket is removed.
pub fn listen(root: &Root, dir: &Path) -> anyhow::Result<UnixListener> {
    root.make_dirs(dir, 0o700)?;
    let path = dir.join(api::SOCKET_NAME);
    match root.kind(&path)? {
        None => {}
        Some(Kind::Other) => drop(root.remove(&path)?),
        Some(_) => anyhow::bail!("{} is not a socket: move it away", path.display()),
    }
    let handle = root.open_dir(dir)?;
    let usable = proc_path(&handle).join(api::SOCKET_NAME);
    let listener = UnixListener::bind(&usable)
        .with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(&usable, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot restrict {}", path.display()))?;
    Ok(listener)
}

/// Serves until `stop` is done, then finishes what is in flight.
pub async fn serve(listener: UnixListener, service: Arc<Service>, stop: impl Future<Output = ()>) {
    let mut stop = std::pin::pin!(stop);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, as a rule: others end meanwhile.
                warn!(error = %causes(&error), "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = Arc::clone(&service);
        let connection = http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| route(Arc::clone(&service), request)),
            );
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(error = %causes(&error), "a connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIME, graceful.shutdown())
        .await
        .is_err()
    {
        warn!("some requests did not end in time; the next start repairs what they leave");
    }
}

async fn route(
    service: Arc<Service>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let method = request.method().clone();
    let read = matches!(method, Method::GET | Method::POST);
    Ok(match (request.uri().path(), method) {
        (api::PATH_CNI, Method::POST) => cni(service, request.into_body()).await,
        (api::PATH_DELEGATE, Method::POST) => failed(&CniError::new(
            CniError::INTERNAL,
            "hot plug is not served by this version: delete the pod and create it again",
        )),
        (api::PATH_HEALTHZ, _) if read => answer(StatusCode::OK, ""),
        (api::PATH_READYZ, _) if read => match service.readiness.problem() {
            None => answer(StatusCode::OK, ""),
            Some(problem) => answer(StatusCode::INTERNAL_SERVER_ERROR, problem),
        },
        (api::PATH_CNI | api::PATH_DELEGATE | api::PATH_HEALTHZ | api::PATH_READYZ, _) => {
            answer(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed\n")
        }
        _ => answer(StatusCode::NOT_FOUND, ""),
    })
}

async fn cni(service: Arc<Service>, body: Incoming) -> Response<Full<Bytes>> {
    let body = match Limited::new(body, api::MAX_MESSAGE).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return failed(&CniError::new(
                CniError::DECODING_FAILURE,
                format!("cannot read the request: {}", causes(&*error)),
            ));
        }
    };
    match tokio::task::spawn_blocking(move || service.cni(&body)).await {
        Ok(Ok(bytes)) => answer(StatusCode::OK, bytes),
        Ok(Err(error)) => failed(&error),
        Err(panic) => {
            error!(error = %causes(&panic), "a request ended the thread that served it");
            failed(&CniError::new(
                CniError::INTERNAL,
                "internal error: see the log of multus-daemon",
            ))
        }
    }
}

fn failed(error: &CniError) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(error).expect("an error always serialises");
    let mut response = answer(StatusCode::BAD_REQUEST, body);
    let json = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    response
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
