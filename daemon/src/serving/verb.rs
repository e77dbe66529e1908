//! Serves one CNI request: reads its body, holds and queues it, runs it on a thread, and replies.

use std::sync::Arc;

use api::Request;
use cmdline::error_line;
use cni::{env::Command, types::CniError};
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::sync::oneshot;
use tracing::{debug, error};

use super::{
    body::BodyError,
    entry,
    hold::{Caller, hold, withdrawn},
    lane,
    queue::Turn,
};
use crate::{
    call::CniCall,
    engine::Cancellation,
    readiness::Gate,
    serving::{delegate::delegate, response::reply, service::Service},
};

/// The path that a CNI request was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/cni`: all networks of a pod.
    Cni,
    /// `/delegate`: one network of a running pod.
    Delegate,
}

pub(crate) async fn verb(
    service: Arc<Service>,
    request: hyper::Request<Incoming>,
    endpoint: Endpoint,
) -> Response<Full<Bytes>> {
    let caller = Caller::of(request.headers());
    let (body, share) = match service.bodies.read(request.into_body()).await {
        Ok(read) => read,
        Err(BodyError::Broken(error)) => return failed(&error),
        Err(BodyError::Busy(error)) => return not_begun(caller, &error),
    };
    let (raw_request, mut call) = match parse(&body) {
        Ok(parsed) => parsed,
        Err(error) => return failed(&error),
    };
    // A waiting request keeps only its parsed form in memory.
    drop(body);
    let mut client = Client::default();
    if let Some(request) = &mut call.request {
        request.cancellation = client.cancellation.clone();
    }
    if let Err(error) = hold(&service, endpoint, &call, caller).await {
        client.is_served = true;
        return not_begun(caller, &error);
    }
    let busy = service.busy();
    let queued = service.metrics.queue_enter(lane(call.command).as_str());
    let turn = match turn(&service, endpoint, &call, caller).await {
        Ok(turn) => turn,
        Err(error) => {
            client.is_served = true;
            return not_begun(caller, &error);
        }
    };
    let (sender, receiver) = oneshot::channel();
    let served = tokio::task::spawn_blocking(move || {
        // The thread owns these, not the connection: a verb that has begun goes on when its client disconnects.
        let _running = (busy, turn, share, queued.start());
        let mut sender = Some(sender);
        let mut answer = |answer| {
            if let Some(sender) = sender.take() {
                // The client may have disconnected.
                let _ = sender.send(answer);
            }
        };
        match endpoint {
            Endpoint::Cni => service.cni(&call, &raw_request, &mut answer),
            Endpoint::Delegate => delegate(&service, &call, &raw_request, &mut answer),
        }
    });
    let answer = receiver.await;
    client.is_served = true;
    match answer {
        Ok(Ok(bytes)) => reply(StatusCode::OK, bytes),
        Ok(Err(error)) => failed(&error),
        Err(_) => {
            let panic = served.await.err();
            let panic = panic.map(|panic| error_line(&panic));
            error!(error = panic, "a request handler panicked");
            failed(&CniError::new(
                CniError::INTERNAL,
                "internal error: see the log of multus-daemon",
            ))
        }
    }
}

/// Waits for the verb's turn. A DEL that can only be journaled needs none, since it runs no plugin.
async fn turn(
    service: &Arc<Service>,
    endpoint: Endpoint,
    call: &CniCall,
    caller: Caller,
) -> Result<Option<Turn>, CniError> {
    let is_known = service.readiness.was_open(Gate::Discovery).is_ok();
    if endpoint == Endpoint::Cni && call.command == Command::Del && !is_known {
        return Ok(None);
    }
    let try_again = |text: String| CniError::new(CniError::TRY_AGAIN_LATER, text);
    tokio::select! {
        biased;
        turn = service.queue.turn(entry(call)) => turn.map(Some).map_err(|full| try_again(full.to_string())),
        () = withdrawn(service, caller) => Err(try_again("this daemon shut down before the request could begin".to_owned())),
    }
}

fn parse(body: &[u8]) -> Result<(Request, CniCall), CniError> {
    let raw_request = Request::from_json(body).map_err(|error| {
        let text = format!("the request is not JSON: {error}");
        CniError::new(CniError::DECODING_FAILURE, text)
    })?;
    let call = CniCall::parse(&raw_request)?;
    Ok((raw_request, call))
}

/// The client. It is dropped with the connection when that ends before there is a response.
#[derive(Default)]
struct Client {
    cancellation: Cancellation,
    is_served: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.is_served {
            debug!("a client disconnected before its response");
            self.cancellation.cancel();
        }
    }
}

/// The response to a request of which nothing was begun.
fn not_begun(caller: Caller, error: &CniError) -> Response<Full<Bytes>> {
    let mut response = failed(error);
    if let Caller::Holding(_) = caller {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let header = HeaderValue::from_static("true");
        response.headers_mut().insert(api::HEADER_NOT_BEGUN, header);
    }
    response
}

fn failed(error: &CniError) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(error).expect("an error always serialises");
    let mut response = reply(StatusCode::BAD_REQUEST, body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
