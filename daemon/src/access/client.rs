//! Sends requests to the API server, each with the server's address, the credential and a time limit of its own.

use std::{sync::Arc, time::Duration};

use cmdline::error_line;
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
use tokio::{sync::Notify, time::timeout};

use super::{
    connections::{Connections, Route},
    error::ApiError,
    pool::{Pool, PooledConnection},
};
use crate::{
    access::CurrentClient,
    metrics::{Metrics, Pending},
};

/// The limit for answers that are read at once: more than any single object or short list.
const MAX_BODY: usize = 32 << 20;
const JSON: &str = "application/json";
/// Requests only the metadata of an object. A server that does not know this form sends the complete object.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Requests only the metadata of the objects in a list.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The path of the small request that shows whether a connection works. Every client may send it, and a refusal is an answer, too.
const PING: &str = "/livez/ping";

/// Access to the API server; clones share their connections.
#[derive(Clone)]
pub struct Client {
    source: Source,
    metrics: Option<Arc<Metrics>>,
    /// Notified of each request that succeeds.
    succeeded: Arc<Notify>,
}

#[derive(Clone)]
enum Source {
    Fixed(Arc<Connections>),
    /// The client with the newest certificate.
    Newest(Arc<CurrentClient>),
}

/// One request to the API server.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    method: Method,
    path: String,
    body: Bytes,
    content_type: &'static str,
    accept: &'static str,
}

impl ApiRequest {
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
        let mut request = Self::new(Method::PATCH, path).with(changes);
        request.content_type = "application/merge-patch+json";
        request
    }

    /// A JSON patch (RFC 6902).
    pub(crate) fn json_patch(path: impl Into<String>, steps: &impl Serialize) -> Self {
        let mut request = Self::new(Method::PATCH, path).with(steps);
        request.content_type = "application/json-patch+json";
        request
    }

    pub(crate) fn delete(path: impl Into<String>, options: &impl Serialize) -> Self {
        Self::new(Method::DELETE, path).with(options)
    }

    fn with(mut self, object: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(object);
        self.body = bytes
            .expect("objects of the API have string keys and no other way to fail")
            .into();
        self
    }

    /// Requests an answer with only the object's metadata.
    pub(crate) fn metadata(mut self) -> Self {
        self.accept = METADATA;
        self
    }

    /// Requests a list of only the objects' metadata.
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
            succeeded: Arc::default(),
        }
    }
}

impl Client {
    /// Returns the same client, which counts its requests in `metrics`.
    #[must_use]
    pub(crate) fn observed(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Returns a guard that counts the request when it ends or is dropped.
    fn pending(&self, api_request: &ApiRequest) -> Option<Pending> {
        let metrics = self.metrics.as_ref()?;
        Some(Pending::new(
            Arc::clone(metrics),
            &api_request.method,
            &api_request.path,
        ))
    }

    pub(super) fn fixed(connections: Connections) -> Self {
        Self::from(Source::Fixed(Arc::new(connections)))
    }

    /// Returns a client whose requests wait for the first certificate and always use the newest.
    pub(crate) fn newest(current: Arc<CurrentClient>) -> Self {
        Self::from(Source::Newest(current))
    }

    /// Returns what is notified of each request that succeeds, other than those whose answer is read in chunks.
    pub(crate) fn succeeded(&self) -> &Notify {
        &self.succeeded
    }

    /// Sends a request and reads its complete answer within `time_limit`, which does not include the wait for other requests.
    pub(crate) async fn send(
        &self,
        api_request: &ApiRequest,
        time_limit: Duration,
    ) -> Result<Bytes, ApiError> {
        let pending = self.pending(api_request);
        let answer = self.exchange(api_request, time_limit).await;
        if let Some(pending) = pending {
            pending.ended(outcome(&answer));
        }
        if answer.is_ok() {
            self.succeeded.notify_waiters();
        }
        answer
    }

    async fn exchange(
        &self,
        api_request: &ApiRequest,
        time_limit: Duration,
    ) -> Result<Bytes, ApiError> {
        let timed_out = |_| ApiError::timed_out(time_limit);
        let route = timeout(time_limit, self.route()).await.map_err(timed_out)?;
        let _permit = route.pool.permit().await;
        let mut connection = None;
        let answer = timeout(
            time_limit,
            self.answer(&route, api_request, &mut connection),
        )
        .await;
        match (answer, connection) {
            (Ok(Ok(bytes)), Some(connection)) => {
                route.pool.release(connection);
                Ok(bytes)
            }
            (Ok(Err(failure)), Some(connection)) => {
                // A connection on which the server refuses a request works.
                if failure.code().is_some() {
                    route.pool.release(connection);
                } else {
                    route.pool.suspect(&connection);
                }
                Err(failure)
            }
            (Err(_), Some(connection)) => {
                route.pool.overdue(&connection);
                Err(ApiError::timed_out(time_limit))
            }
            (Err(_), None) => Err(ApiError::timed_out(time_limit)),
            (Ok(result), None) => result,
        }
    }

    /// Sends a request and parses its answer as an object.
    pub(crate) async fn object<T: DeserializeOwned>(
        &self,
        api_request: &ApiRequest,
        time_limit: Duration,
    ) -> Result<T, ApiError> {
        let bytes = self.send(api_request, time_limit).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::invalid(format!("the answer cannot be parsed: {error}")))
    }

    /// Sends a request whose answer is read in chunks. The head of the answer has to arrive within `time_limit`.
    pub(crate) async fn open(
        &self,
        api_request: &ApiRequest,
        time_limit: Duration,
    ) -> Result<BodyChunks, ApiError> {
        let pending = self.pending(api_request);
        let opened = self.start(api_request, time_limit).await;
        if let Some(pending) = pending {
            pending.ended(outcome(&opened));
        }
        opened
    }

    async fn start(
        &self,
        api_request: &ApiRequest,
        time_limit: Duration,
    ) -> Result<BodyChunks, ApiError> {
        let route = self.route().await;
        let mut connection = None;
        let head = timeout(time_limit, self.head(&route, api_request, &mut connection)).await;
        let Some(connection) = connection else {
            return Err(match head {
                Ok(Err(failure)) => failure,
                _ => ApiError::timed_out(time_limit),
            });
        };
        match head {
            Err(_) => {
                route.pool.overdue(&connection);
                Err(ApiError::timed_out(time_limit))
            }
            Ok(Err(failure)) => {
                route.pool.suspect(&connection);
                Err(failure)
            }
            Ok(Ok(response)) if response.status().is_success() => Ok(BodyChunks {
                body: response.into_body(),
                pool: Arc::clone(&route.pool),
                connection,
            }),
            Ok(Ok(response)) => {
                let failure = timeout(time_limit, refusal(response)).await;
                Err(failure.unwrap_or_else(|_| ApiError::timed_out(time_limit)))
            }
        }
    }

    /// Returns the current route. With certificates it waits for the first one.
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
        api_request: &ApiRequest,
        connection: &mut Option<PooledConnection>,
    ) -> Result<Bytes, ApiError> {
        let response = self.head(route, api_request, connection).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        collect(response.into_body()).await
    }

    async fn head(
        &self,
        route: &Route,
        api_request: &ApiRequest,
        connection: &mut Option<PooledConnection>,
    ) -> Result<Response<Incoming>, ApiError> {
        let request = request(route, api_request)?;
        let opened = route.pool.acquire().await;
        let opened = opened.map_err(|error| ApiError::broken(error_line(&error)))?;
        let connection = connection.insert(opened);
        let is_dead = connection.is_dead(ping(route));
        let response = tokio::select! {
            response = connection.send(request) => response,
            () = is_dead => return Err(ApiError::broken("the connection does not answer")),
        };
        let response = response.map_err(|error| ApiError::broken(error_line(&error)))?;
        if response.status() == hyper::StatusCode::UNAUTHORIZED {
            route.refused();
            if let Source::Newest(current) = &self.source {
                current.unauthorized(route.number);
            }
        }
        Ok(response)
    }
}

/// The body of an answer that is read in chunks.
pub(crate) struct BodyChunks {
    body: Incoming,
    pool: Arc<Pool>,
    connection: PooledConnection,
}

impl BodyChunks {
    /// Returns the next chunk, or `None` at the end.
    pub(crate) async fn next(&mut self, time_limit: Duration) -> Result<Option<Bytes>, ApiError> {
        loop {
            match timeout(time_limit, self.body.frame()).await {
                Err(_) => {
                    self.pool.suspect(&self.connection);
                    return Err(ApiError::timed_out(time_limit));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(ApiError::broken(error_line(&error))),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Returns the connection to the pool, after the end of the body.
    pub(crate) fn finish(self) {
        self.pool.release(self.connection);
    }
}

fn request(
    route: &Route,
    api_request: &ApiRequest,
) -> Result<Request<super::connect::Body>, ApiError> {
    let path = api_request.path.parse::<Uri>();
    let path = path.map_err(|error| ApiError::invalid(format!("{}: {error}", api_request.path)))?;
    let mut request = Request::new(api_request.body.clone().into());
    *request.method_mut() = api_request.method.clone();
    *request.uri_mut() = absolute(&route.server, &path);
    let headers = request.headers_mut();
    let program = concat!("multus-daemon/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(program));
    headers.insert(ACCEPT, HeaderValue::from_static(api_request.accept));
    if !api_request.body.is_empty() {
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static(api_request.content_type),
        );
    }
    if let Some(value) = route.authorization() {
        headers.insert(AUTHORIZATION, value);
    }
    Ok(request)
}

/// Returns the request that shows whether a connection works.
fn ping(route: &Route) -> Request<super::connect::Body> {
    let mut request = Request::new(Bytes::new().into());
    *request.uri_mut() = absolute(&route.server, &Uri::from_static(PING));
    if let Some(value) = route.authorization() {
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    request
}

async fn refusal(response: Response<Incoming>) -> ApiError {
    let code = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let body = collect(response.into_body()).await.unwrap_or_default();
    ApiError::refused(code, retry_after, &body)
}

/// Parses `Retry-After`, which API servers and their load balancers send in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

async fn collect(body: Incoming) -> Result<Bytes, ApiError> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::invalid(format!(
            "the answer is longer than {} MiB",
            MAX_BODY >> 20
        ))),
        Err(error) => Err(ApiError::broken(error_line(&*error))),
    }
}

/// Joins a path of the API to the server's address, which may itself have a path.
fn absolute(server: &Uri, request: &Uri) -> Uri {
    let prefix = server.path().trim_end_matches('/');
    let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut parts = server.clone().into_parts();
    parts.path_and_query = format!("{prefix}{path}").parse().ok();
    // Both parts come from valid addresses.
    Uri::from_parts(parts).unwrap_or_else(|_| request.clone())
}

/// Returns how a request ended, as it is counted.
fn outcome<T>(answer: &Result<T, ApiError>) -> Result<(), Option<u16>> {
    answer.as_ref().map(drop).map_err(ApiError::code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_to_the_servers_address() {
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
