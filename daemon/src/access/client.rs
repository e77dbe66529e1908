//! Requests to the API server: the address in front of each, the credential in it, a time of its own for it.

use std::{sync::Arc, time::Duration};

use cmdline::causes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    header::{
        ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT,
    },
    http::{Uri, uri::PathAndQuery},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::{
    connections::{Connections, Route},
    failure::Failure,
    pool::{Lane, Pool},
};
use crate::{
    access::Current,
    metrics::{Metrics, Pending},
};

/// More than any single object or list that is not read piece by piece.
const MAX_BODY: usize = 32 << 20;
const JSON: &str = "application/json";
/// Of an object its metadata alone; a server that does not know the form sends all of it.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same of the objects in a list or watch.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Access to the API server; clones share their connections.
#[derive(Clone)]
pub struct Client {
    source: Source,
    metrics: Option<Arc<Metrics>>,
}

#[derive(Clone)]
enum Source {
    Fixed(Arc<Connections>),
    /// Whatever is the newest.
    Newest(Arc<Current>),
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    body: Bytes,
    content_type: &'static str,
    accept: &'static str,
}

impl Ask {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: Bytes::new(),
            content_type: JSON,
            accept: JSON,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>, object: &impl Serialize) -> Self {
        Self::new(Method::POST, path).with(object)
    }

    pub(crate) fn put(path: impl Into<String>, object: &impl Serialize) -> Self {
        Self::new(Method::PUT, path).with(object)
    }

    /// A merge patch (RFC 7386).
    pub(crate) fn patch(path: impl Into<String>, changes: &impl Serialize) -> Self {
        let mut ask = Self::new(Method::PATCH, path).with(changes);
        ask.content_type = "application/merge-patch+json";
        ask
    }

    fn with(mut self, object: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(object);
        self.body = bytes
            .expect("objects of the API have string keys and no other way to fail")
            .into();
        self
    }

    /// Has the API server answer with the object's metadata alone.
    pub(crate) fn metadata(mut self) -> Self {
        self.accept = METADATA;
        self
    }

    /// Has it list the metadata of objects alone.
    pub(crate) fn metadata_list(mut self) -> Self {
        self.accept = METADATA_LIST;
        self
    }
}

impl From<Source> for Client {
    fn from(source: Source) -> Self {
        Self {
            source,
            metrics: None,
        }
    }
}

impl Client {
    /// The same client with its requests counted.
    #[must_use]
    pub(crate) fn observed(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Counts a request when what is returned is told of its end, or dropped.
    fn pending(&self, ask: &Ask) -> Option<Pending> {
        let metrics = self.metrics.as_ref()?;
        Some(Pending::new(Arc::clone(metrics), &ask.method, &ask.path))
    }

    pub(super) fn fixed(connections: Connections) -> Self {
        Self::from(Source::Fixed(Arc::new(connections)))
    }

    /// A client whose requests wait until there is a certificate and always go out with the newest.
    pub(crate) fn newest(current: Arc<Current>) -> Self {
        Self::from(Source::Newest(current))
    }

    /// Sends a request and reads its answer, all of it within `patience`. Waiting for a turn among others is not counted.
    pub(crate) async fn send(&self, ask: &Ask, patience: Duration) -> Result<Bytes, Failure> {
        let pending = self.pending(ask);
        let answer = self.exchange(ask, patience).await;
        if let Some(pending) = pending {
            pending.ended(outcome(&answer));
        }
        answer
    }

    async fn exchange(&self, ask: &Ask, patience: Duration) -> Result<Bytes, Failure> {
        let silent = |_| Failure::silent(patience);
        let route = timeout(patience, self.route()).await.map_err(silent)?;
        let _turn = route.pool.turn().await;
        let mut lane = None;
        let answer = timeout(patience, self.answer(&route, ask, &mut lane)).await;
        match (answer, lane) {
            (Ok(Ok(bytes)), Some(lane)) => {
                route.pool.give_back(lane);
                Ok(bytes)
            }
            (Ok(Err(failure)), Some(lane)) => {
                // One that refuses is well.
                if failure.code().is_some() {
                    route.pool.give_back(lane);
                } else {
                    route.pool.suspect(&lane);
                }
                Err(failure)
            }
            (Err(_), Some(lane)) => {
                route.pool.suspect(&lane);
                Err(Failure::silent(patience))
            }
            (Err(_), None) => Err(Failure::silent(patience)),
            (Ok(result), None) => result,
        }
    }

    /// Sends a request and reads its answer as an object.
    pub(crate) async fn object<T: DeserializeOwned>(
        &self,
        ask: &Ask,
        patience: Duration,
    ) -> Result<T, Failure> {
        let bytes = self.send(ask, patience).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::unusable(format!("the answer cannot be read: {error}")))
    }

    /// Sends a request whose answer is read piece by piece; its head has to come within `patience`.
    pub(crate) async fn open(&self, ask: &Ask, patience: Duration) -> Result<Pieces, Failure> {
        let pending = self.pending(ask);
        let opened = self.start(ask, patience).await;
        if let Some(pending) = pending {
            pending.ended(outcome(&opened));
        }
        opened
    }

    async fn start(&self, ask: &Ask, patience: Duration) -> Result<Pieces, Failure> {
        let route = self.route().await;
        let mut lane = None;
        let head = timeout(patience, self.head(&route, ask, &mut lane)).await;
        let Some(lane) = lane else {
            return Err(match head {
                Ok(Err(failure)) => failure,
                _ => Failure::silent(patience),
            });
        };
        match head {
            Err(_) => {
                route.pool.suspect(&lane);
                Err(Failure::silent(patience))
            }
            Ok(Err(failure)) => {
                route.pool.suspect(&lane);
                Err(failure)
            }
            Ok(Ok(response)) if response.status().is_success() => Ok(Pieces {
                body: response.into_body(),
                pool: Arc::clone(&route.pool),
                lane,
            }),
            Ok(Ok(response)) => {
                let failure = timeout(patience, refusal(response)).await;
                Err(failure.unwrap_or_else(|_| Failure::silent(patience)))
            }
        }
    }

    /// Where a request goes now. With certificates this waits for the first.
    async fn route(&self) -> Route {
        match &self.source {
            Source::Fixed(connections) => connections.route(),
            Source::Newest(current) => {
                let (number, client) = current.newest().await;
                let mut route = Box::pin(client.route()).await;
                route.number = number;
                route
            }
        }
    }

    async fn answer(
        &self,
        route: &Route,
        ask: &Ask,
        lane: &mut Option<Lane>,
    ) -> Result<Bytes, Failure> {
        let response = self.head(route, ask, lane).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        collect(response.into_body()).await
    }

    async fn head(
        &self,
        route: &Route,
        ask: &Ask,
        lane: &mut Option<Lane>,
    ) -> Result<Response<Incoming>, Failure> {
        let request = request(route, ask)?;
        let opened = route.pool.lane().await;
        let opened = opened.map_err(|error| Failure::broken(causes(&error)))?;
        let response = lane.insert(opened).send(request).await;
        let response = response.map_err(|error| Failure::broken(causes(&error)))?;
        if response.status() == hyper::StatusCode::UNAUTHORIZED {
            route.refused();
            if let Source::Newest(current) = &self.source {
                current.unauthorized(route.number);
            }
        }
        Ok(response)
    }
}

/// An answer that is read piece by piece.
pub(crate) struct Pieces {
    body: Incoming,
    pool: Arc<Pool>,
    lane: Lane,
}

impl Pieces {
    /// Returns the next piece, or `None` at the end.
    pub(crate) async fn next(&mut self, patience: Duration) -> Result<Option<Bytes>, Failure> {
        loop {
            match timeout(patience, self.body.frame()).await {
                Err(_) => {
                    self.pool.suspect(&self.lane);
                    return Err(Failure::silent(patience));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(Failure::broken(causes(&error))),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// It was read to its end.
    pub(crate) fn finish(self) {
        self.pool.give_back(self.lane);
    }
}

fn request(route: &Route, ask: &Ask) -> Result<Request<super::connect::Body>, Failure> {
    let path = ask.path.parse::<Uri>();
    let path = path.map_err(|error| Failure::unusable(format!("{}: {error}", ask.path)))?;
    let mut request = Request::new(ask.body.clone().into());
    *request.method_mut() = ask.method.clone();
    *request.uri_mut() = absolute(&route.server, &path);
    let headers = request.headers_mut();
    let program = concat!("multus-daemon/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(program));
    headers.insert(ACCEPT, HeaderValue::from_static(ask.accept));
    if !ask.body.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(ask.content_type));
    }
    if let Some(value) = route.authorization() {
        headers.insert(AUTHORIZATION, value);
    }
    Ok(request)
}

async fn refusal(response: Response<Incoming>) -> Failure {
    let code = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let body = collect(response.into_body()).await.unwrap_or_default();
    Failure::refused(code, retry_after, &body)
}

/// API servers and their load balancers give seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

async fn collect(body: Incoming) -> Result<Bytes, Failure> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::unusable(format!(
            "the answer is longer than {} MiB",
            MAX_BODY >> 20
        ))),
        Err(error) => Err(Failure::broken(causes(&*error))),
    }
}

/// A path of the API below the server's own address, which may have a path, too.
fn absolute(server: &Uri, request: &Uri) -> Uri {
    let prefix = server.path().trim_end_matches('/');
    let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut parts = server.clone().into_parts();
    parts.path_and_query = format!("{prefix}{path}").parse().ok();
    // Both were parts of addresses before.
    Uri::from_parts(parts).unwrap_or_else(|_| request.clone())
}

/// Returns how a request ended, as it is counted.
fn outcome<T>(answer: &Result<T, Failure>) -> Result<(), Option<u16>> {
    answer.as_ref().map(drop).map_err(Failure::code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_below_the_address() {
        let full = |server: &str, path: &str| {
            absolute(&server.parse().unwrap(), &path.parse().unwrap()).to_string()
        };
        assert_eq!(full("https://a:1", "/api?x=y"), "https://a:1/api?x=y");
        assert_eq!(full("https://a/k8s/c/", "/api"), "https://a/k8s/c/api");
    }

    #[test]
    fn retry_after_is_in_seconds() {
        let of = |text: &'static str| {
            retry_after(&HeaderMap::from_iter([(
                RETRY_AFTER,
                HeaderValue::from_static(text),
            )]))
        };
        assert_eq!(of("2"), Some(Duration::from_secs(2)));
        assert_eq!(of("Wed, 21 Oct 2015 07:28:00 GMT"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
