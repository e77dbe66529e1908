//! One request that has a body: read within bounds, held until it may begin, served by a thread, answered.

use std::sync::Arc;

use api::Request;
use cmdline::causes;
use cni::{env::Command, types::CniError};
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
};
use tracing::{debug, error};

use super::{
    body::Unread,
    entry,
    hold::{Caller, hold, withdrawn},
    lane,
    queue::Turn,
};
use crate::{
    call::Call,
    engine::Waiting,
    readiness::Part,
    serving::{delegate::delegate, response::answer, service::Service},
};

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// A pod.
    Cni,
    /// One network of a pod that runs.
    Delegate,
}

/// Serves one request of this path.
pub(crate) async fn verb(
    service: Arc<Service>,
    request: hyper::Request<Incoming>,
    path: Path,
) -> Response<Full<Bytes>> {
    let caller = Caller::of(request.headers());
    let (body, share) = match service.bodies.read(request.into_body()).await {
        Ok(read) => read,
        Err(Unread::Broken(error)) => return failed(&error),
        Err(Unread::Busy(error)) => return not_begun(caller, &error),
    };
    let (asked, mut call) = match parse(&body) {
        Ok(parsed) => parsed,
        Err(error) => return failed(&error),
    };
    // What waits has the parsed request alone.
    drop(body);
    let mut client = Client::default();
    if let Some(request) = &mut call.request {
        request.waiting = client.waiting.clone();
    }
    if let Err(error) = hold(&service, path, &call, caller).await {
        client.is_served = true;
        return not_begun(caller, &error);
    }
    let busy = service.busy();
    let queued = service.metrics.queue_enter(lane(call.command).as_str());
    let turn = match turn(&service, path, &call, caller).await {
        Ok(turn) => turn,
        Err(error) => {
            client.is_served = true;
            return not_begun(caller, &error);
        }
    };
    let served = tokio::task::spawn_blocking(move || {
        // The thread has them, and not the connection: what has begun goes on when its caller leaves.
        let _at_work = (busy, turn, share, queued.start());
        match path {
            Path::Cni => service.cni(&call, &asked),
            Path::Delegate => delegate(&service, &call, &asked),
        }
    });
    let served = served.await;
    client.is_served = true;
    match served {
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

/// Waits for the verb's turn. A DEL that can only be written down needs none: no plugin holds it up.
async fn turn(
    service: &Arc<Service>,
    path: Path,
    call: &Call,
    caller: Caller,
) -> Result<Option<Turn>, CniError> {
    let is_known = service.readiness.once_well(Part::Discovery).is_ok();
    if path == Path::Cni && call.command == Command::Del && !is_known {
        return Ok(None);
    }
    let try_again = |text: String| CniError::new(CniError::TRY_AGAIN_LATER, text);
    tokio::select! {
        biased;
        turn = service.queue.turn(entry(call)) => turn.map(Some).map_err(|full| try_again(full.to_string())),
        () = withdrawn(service, caller) => Err(try_again("this daemon ends before it could begin".to_owned())),
    }
}

fn parse(body: &[u8]) -> Result<(Request, Call), CniError> {
    let asked = Request::from_json(body).map_err(|error| {
        let text = format!("the request is not JSON: {error}");
        CniError::new(CniError::DECODING_FAILURE, text)
    })?;
    let call = Call::parse(&asked)?;
    Ok((asked, call))
}

/// The caller. It is dropped with the connection when that ends before there is an answer.
#[derive(Default)]
struct Client {
    waiting: Waiting,
    is_served: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.is_served {
            debug!("a client has gone without waiting for its answer");
            self.waiting.gone();
        }
    }
}

/// The answer to a request of which nothing was begun.
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
    let mut response = answer(StatusCode::BAD_REQUEST, body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
