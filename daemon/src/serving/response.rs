//! One response on the socket.

use http_body_util::Full;
use hyper::{Response, StatusCode, body::Bytes};

pub(crate) fn reply(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
