//! The HTTP client of registries and downloads: proxies, trusted certificates, time limits and retries are the same for both.

pub mod download;
mod failure;
mod part;
mod proxy;
pub(crate) mod retry;
mod tls;
mod transfer;

use std::{io, path::PathBuf, time::Duration};

use reqwest::{Client, Method, RequestBuilder, Response, Url};
use tokio::runtime::{Builder, Runtime};

pub use self::{failure::Failure, transfer::Arrived};
use proxy::Proxies;

const USER_AGENT: &str = concat!("multus-rs/", env!("CARGO_PKG_VERSION"));
/// A connection on which nothing arrives for so long has failed.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The slowest connection on which a request is not taken for one that hangs, in bytes per second.
const SLOWEST: u64 = 16 << 10;

/// The settings of the user's machine.
pub struct Environment<'a> {
    /// Returns a variable of the environment: those of proxies, and those that name certificates.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Directories that have a directory with certificates for each host, as `/etc/docker/certs.d`.
    pub certs_d: &'a [PathBuf],
}

/// Returns a variable of this process, for [`Environment`].
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("`{0}` is not the name of a host")]
    Host(String),
    #[error("{0} names no proxy: write http://HOST:PORT")]
    Proxy(&'static str),
    #[error("cannot use the certificates in {path}: {reason}")]
    Certificates { path: PathBuf, reason: String },
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
    #[error("cannot set up the HTTP client")]
    Io(#[from] io::Error),
}

/// A client that blocks until it has a response.
pub struct Http {
    client: Client,
    proxies: Proxies,
    runtime: Runtime,
}

impl Http {
    /// Makes a client, which does not connect yet. `host` is the one whose certificates are used.
    pub fn new(environment: &Environment<'_>, host: Option<&str>) -> Result<Self, SetupError> {
        let proxies = Proxies::new(environment.variable)?;
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .referer(false)
            .connect_timeout(TIMEOUT)
            .tls_backend_preconfigured(tls::config(environment, host)?)
            .proxy(proxies.rule());
        Ok(Self {
            client: client.build()?,
            proxies,
            runtime: Builder::new_current_thread().enable_all().build()?,
        })
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn request(&self, method: Method, address: Url) -> RequestBuilder {
        self.client.request(method, address)
    }

    /// Sends a request; a response of any status is a success.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let request = request.build().map_err(|error| self.failure(error))?;
        let body = request.body().and_then(reqwest::Body::as_bytes);
        let len = body.map_or(0, <[u8]>::len) as u64;
        let limit = TIMEOUT + Duration::from_secs(len / SLOWEST);
        let response = tokio::time::timeout(limit, self.client.execute(request)).await;
        let response = response.map_err(|_| Failure::TimedOut)?;
        let response = response.map_err(|error| self.failure(error))?;
        let proxy = self.proxies.of(response.url());
        match (response.status().as_u16(), proxy) {
            (407, Some(proxy)) => Err(Failure::ProxyLogin(proxy.clone())),
            _ => Ok(response),
        }
    }

    /// Returns the next bytes of a body.
    pub(crate) async fn chunk(&self, response: &mut Response) -> Result<Option<Vec<u8>>, Failure> {
        let chunk = tokio::time::timeout(TIMEOUT, response.chunk()).await;
        let chunk = chunk.map_err(|_| Failure::TimedOut)?;
        let chunk = chunk.map_err(|error| self.failure(error))?;
        Ok(chunk.map(Into::into))
    }

    /// Returns a complete body, which has at most `limit` bytes.
    pub(crate) async fn body(
        &self,
        mut response: Response,
        limit: u64,
    ) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            if (body.len() + chunk.len()) as u64 > limit {
                return Err(Failure::TooLarge(limit));
            }
            body.extend(chunk);
        }
        Ok(body)
    }

    /// Makes a failure of a response that is not a success.
    pub(crate) async fn refusal(&self, response: Response) -> Failure {
        let (status, headers) = (response.status(), response.headers());
        let retry_after = retry::named_pause(status.as_u16(), headers);
        // A body that does not arrive says nothing, and the status is known.
        let body = self.body(response, 64 << 10).await.unwrap_or_default();
        Failure::Status {
            status: status.as_u16(),
            retry_after,
            message: failure::message(status, &body),
        }
    }

    fn failure(&self, error: reqwest::Error) -> Failure {
        let proxy = error.url().and_then(|address| self.proxies.of(address));
        Failure::of(error, proxy)
    }
}
