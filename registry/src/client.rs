//! The client of one registry: checks for blobs and pushes them, resolves and sets tags (OCI distribution specification 1.1).
//!
//! Calls block until they have a response; temporary failures are retried.

mod challenge;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod login;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use archive::digest::{Digest, sha256};
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{
        ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, WWW_AUTHENTICATE,
    },
};

pub use self::login::{Login, StoredLoginError, stored_login};
use crate::http::{Environment, Failure, Http, SetupError, retry};
use challenge::Challenge;

/// Media types of manifests that are accepted.
const MANIFESTS: &[&str] = &[
    archive::oci::INDEX,
    archive::oci::MANIFEST,
    archive::oci::DOCKER_LIST,
    archive::oci::DOCKER_MANIFEST,
];
/// The largest index or manifest, and the largest response of a token server.
const MAX_JSON: u64 = 4 << 20;
/// How many tags are requested at once.
const TAG_PAGE: &str = "1000";
/// The most requests for the tags of one repository.
const MAX_TAG_PAGES: usize = 100;
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// How to connect to a registry.
#[derive(Debug, Clone)]
pub struct Access {
    /// Name and, unless it is 443, port.
    pub host: String,
    /// Connects without TLS.
    pub is_plain: bool,
    /// The user; anonymous without one.
    pub login: Option<Login>,
}

/// Why a request to a registry failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{host} does not let this user {action}")]
    Login { host: String, action: String },
    #[error("{host} does not accept user {user} with this password, or does not let them {action}")]
    Password {
        host: String,
        user: String,
        action: String,
    },
    #[error(
        "{host} does not accept the identity token of the stored login, or does not let it {action}: log in again, or give --user"
    )]
    Token { host: String, action: String },
    #[error("{host} has no {name}")]
    Missing {
        host: String,
        /// The requested blob or manifest.
        name: String,
    },
    #[error("{host} sends {found} for {expected}")]
    Digest {
        host: String,
        expected: Digest,
        found: Digest,
    },
    /// The registry names a longer pause than this client makes.
    #[error("{host} is busy for {seconds} s more: {action} then")]
    Busy {
        host: String,
        action: String,
        /// The pause.
        seconds: u64,
    },
    #[error("{host}'s token server is busy ({status}); try again later")]
    BusyTokens { host: String, status: u16 },
    /// The connection has a fault that the user can mend, or the address of another host has.
    #[error(transparent)]
    Connection(Box<Failure>),
    #[error("cannot {action} at {host}")]
    Refused {
        host: String,
        action: String,
        #[source]
        source: Box<Failure>,
    },
}

/// Returns `None` for what the registry does not have.
pub fn optional<T>(outcome: Result<T, Error>) -> Result<Option<T>, Error> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A client of one registry.
pub struct Registry {
    access: Access,
    http: Http,
    /// The address of the protocol's first version.
    base: Url,
    /// The header that lets requests through, by what they do.
    granted: RefCell<BTreeMap<Scope, String>>,
    /// The last failure is of the server that issues tokens.
    is_of_tokens: Cell<bool>,
}

/// Decides whether a body is what was requested.
type Check<'a> = &'a dyn Fn(&[u8]) -> Result<(), Failure>;

/// A page of a repository's tags.
#[derive(serde::Deserialize)]
struct TagList {
    tags: Option<Vec<String>>,
}

/// Returns the tags in a page. A page of a proxy is not an empty list: with that, moving tags would go back to an older release.
fn tag_list(body: &[u8]) -> Result<Vec<String>, Failure> {
    let list: TagList = serde_json::from_slice(body)
        .map_err(|_| Failure::Protocol("the registry's answer is not a list of tags"))?;
    Ok(list.tags.unwrap_or_default())
}

/// A part of a registry for which a login counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Scope {
    repository: String,
    is_push: bool,
}

impl Registry {
    /// Makes a client, which does not connect yet.
    pub fn new(access: Access, environment: &Environment<'_>) -> Result<Self, SetupError> {
        let scheme = if access.is_plain { "http" } else { "https" };
        // Docker's name for its registry is not that of a server.
        let server = match access.host.as_str() {
            "docker.io" => "registry-1.docker.io",
            host => host,
        };
        let base = format!("{scheme}://{server}/v2/").parse();
        Ok(Self {
            http: Http::new(environment, Some(&access.host))?,
            base: base.map_err(|_| SetupError::Host(access.host.clone()))?,
            granted: RefCell::default(),
            is_of_tokens: Cell::default(),
            access,
        })
    }

    pub fn host(&self) -> &str {
        &self.access.host
    }

    /// Returns whether the registry has a blob.
    pub(crate) fn has_blob(&self, repository: &str, digest: &Digest) -> Result<bool, Error> {
        let action = || format!("look for {repository}@{digest}");
        let path = format!("blobs/{digest}");
        let request = || self.request(Method::HEAD, repository, &path);
        Ok(optional(self.headers(&action, &push(repository), &request))?.is_some())
    }

    /// Returns the digest of a tag or digest, or `None` when the registry does not have it.
    pub fn digest_of(&self, repository: &str, name: &str) -> Result<Option<Digest>, Error> {
        let action = || format!("look for {repository} {name}");
        let request = || self.manifest_request(Method::HEAD, repository, name);
        let Some(found) = optional(self.headers(&action, &push(repository), &request))? else {
            return Ok(None);
        };
        let digest = found.get(CONTENT_DIGEST);
        match digest.and_then(|digest| digest.to_str().ok()?.parse().ok()) {
            Some(digest) => Ok(Some(digest)),
            None => Ok(Some(sha256(&self.manifest(repository, name)?))),
        }
    }

    /// Returns a manifest by its tag or digest.
    pub fn manifest(&self, repository: &str, name: &str) -> Result<Vec<u8>, Error> {
        let action = || format!("pull {repository} {name}");
        let request = || self.manifest_request(Method::GET, repository, name);
        let (_, bytes) = self.exchange(&action, &pull(repository), &request, Some(&|_| Ok(())))?;
        let found = sha256(&bytes);
        match name.parse() {
            Ok(expected) if expected != found => Err(Error::Digest {
                host: self.access.host.clone(),
                expected,
                found,
            }),
            _ => Ok(bytes),
        }
    }

    /// Returns the tags of a repository: none when the registry does not have it.
    pub fn tags(&self, repository: &str) -> Result<BTreeSet<String>, Error> {
        let mut tags = BTreeSet::new();
        let mut last: Option<String> = None;
        // A registry may send fewer tags than requested, or all of them each time.
        for _ in 0..MAX_TAG_PAGES {
            let action = || format!("list the tags of {repository}");
            let request = || {
                let mut address = self.address(repository, "tags/list");
                address.query_pairs_mut().append_pair("n", TAG_PAGE);
                if let Some(last) = &last {
                    address.query_pairs_mut().append_pair("last", last);
                }
                self.http.request(Method::GET, address)
            };
            let is_list = |body: &[u8]| tag_list(body).map(drop);
            let found = self.exchange(&action, &pull(repository), &request, Some(&is_list));
            let Some((_, body)) = optional(found)? else {
                break;
            };
            let page = tag_list(&body).unwrap_or_default();
            last = page.last().cloned();
            let before = tags.len();
            tags.extend(page);
            if tags.len() == before {
                break;
            }
        }
        Ok(tags)
    }

    /// Sends a blob.
    pub fn push_blob(&self, repository: &str, digest: &Digest, bytes: &[u8]) -> Result<(), Error> {
        let action = || format!("push {repository}@{digest}");
        let scope = push(repository);
        self.attempt(action, async || {
            let session = self.request(Method::POST, repository, "blobs/uploads/");
            let session = self.success(&scope, session).await?;
            let place = session.headers().get(LOCATION);
            let place = place.and_then(|place| session.url().join(place.to_str().ok()?).ok());
            let mut place = place.ok_or(Failure::Protocol("the registry names no upload"))?;
            let mut query = place.query_pairs_mut();
            query.append_pair("digest", &digest.to_string());
            drop(query);
            let upload = self.http.request(Method::PUT, place.clone());
            let upload = upload
                .header(CONTENT_TYPE, "application/octet-stream")
                .body(bytes.to_vec());
            // A registry may let another server store blobs, which must not get its login.
            if place.origin() == self.base.origin() {
                self.success(&scope, upload).await
            } else {
                self.ensure_success(self.http.send(upload).await?).await
            }
        })
        .map(drop)
    }

    /// Sends a manifest under a tag or its digest; the registry must have everything that it names.
    pub fn push_manifest(
        &self,
        repository: &str,
        name: &str,
        media_type: &'static str,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let action = || format!("push {repository} {name}");
        let request = || {
            let request = self.request(Method::PUT, repository, &format!("manifests/{name}"));
            request
                .header(CONTENT_TYPE, media_type)
                .body(bytes.to_vec())
        };
        self.headers(&action, &push(repository), &request).map(drop)
    }

    /// Returns whether the registry has the API that lists the artifacts about a manifest.
    pub(crate) fn lists_referrers(
        &self,
        repository: &str,
        subject: &Digest,
    ) -> Result<bool, Error> {
        let action = || format!("list what is attached to {repository}@{subject}");
        let request = || {
            let request = self.request(Method::GET, repository, &format!("referrers/{subject}"));
            request.header(ACCEPT, archive::oci::INDEX)
        };
        Ok(optional(self.headers(&action, &push(repository), &request))?.is_some())
    }

    fn request(&self, method: Method, repository: &str, rest: &str) -> RequestBuilder {
        self.http.request(method, self.address(repository, rest))
    }

    fn address(&self, repository: &str, rest: &str) -> Url {
        let mut address = self.base.clone();
        address.set_path(&format!("/v2/{repository}/{rest}"));
        address
    }

    fn manifest_request(&self, method: Method, repository: &str, name: &str) -> RequestBuilder {
        let request = self.request(method, repository, &format!("manifests/{name}"));
        request.header(ACCEPT, MANIFESTS.join(", "))
    }

    /// Sends a request, whose response must be a success.
    async fn success(&self, scope: &Scope, request: RequestBuilder) -> Result<Response, Failure> {
        self.ensure_success(self.send(scope, request).await?).await
    }

    async fn ensure_success(&self, response: Response) -> Result<Response, Failure> {
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.http.refusal(response).await)
    }

    /// Sends a request; once more with a new login when the registry refuses the first one.
    async fn send(&self, scope: &Scope, request: RequestBuilder) -> Result<Response, Failure> {
        let granted = self.granted.borrow().get(scope).cloned();
        let again = request.try_clone();
        let request = match granted {
            Some(granted) => request.header(AUTHORIZATION, granted),
            None => request,
        };
        let response = self.http.send(request).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        self.granted.borrow_mut().remove(scope);
        let (Some(again), Some(granted)) = (again, self.log_in(scope, &response).await?) else {
            return Ok(response);
        };
        let again = again.header(AUTHORIZATION, &granted);
        self.granted.borrow_mut().insert(scope.clone(), granted);
        self.http.send(again).await
    }

    /// Returns the header for a scope, or `None` when there is no login for it.
    async fn log_in(&self, scope: &Scope, refused: &Response) -> Result<Option<String>, Failure> {
        let challenges = refused.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenges = challenges.filter_map(|one| one.to_str().ok());
        let login = self.access.login.as_ref();
        match challenge::find(challenges) {
            None => Ok(None),
            Some(Challenge::Basic) => Ok(login.and_then(Login::basic)),
            Some(Challenge::Bearer(issuer)) => {
                if login.is_some() && !self.access.is_plain && issuer.is_plain() {
                    return Err(Failure::PlainTokens);
                }
                let request = issuer.request(&self.http, scope, login);
                let request =
                    request.ok_or(Failure::Protocol("the token server has no address"))?;
                self.is_of_tokens.set(true);
                let response = self.ensure_success(self.http.send(request).await?).await?;
                let body = self.http.body(response, MAX_JSON).await?;
                let token = challenge::token(&body);
                let token = token.ok_or(Failure::Protocol("the token server sends no token"))?;
                self.is_of_tokens.set(false);
                Ok(Some(format!("Bearer {token}")))
            }
        }
    }

    /// Sends a request until its response is a success; returns the headers.
    fn headers(
        &self,
        action: &dyn Fn() -> String,
        scope: &Scope,
        request: &dyn Fn() -> RequestBuilder,
    ) -> Result<HeaderMap, Error> {
        let (headers, _) = self.exchange(action, scope, request, None)?;
        Ok(headers)
    }

    /// Sends a request until its response has arrived, with a body that passes the check where there is one; no body is read without.
    ///
    /// It is not generic, since every instance of [`Self::attempt`] is large.
    fn exchange(
        &self,
        action: &dyn Fn() -> String,
        scope: &Scope,
        request: &dyn Fn() -> RequestBuilder,
        check: Option<Check<'_>>,
    ) -> Result<(HeaderMap, Vec<u8>), Error> {
        self.attempt(action, async || {
            let response = self.success(scope, request()).await?;
            let headers = response.headers().clone();
            let Some(check) = check else {
                return Ok((headers, Vec::new()));
            };
            let body = self.http.body(response, MAX_JSON).await?;
            check(&body)?;
            Ok((headers, body))
        })
    }

    /// Sends a request, and retries it while its failure may be temporary.
    fn attempt<T>(
        &self,
        action: impl Fn() -> String,
        mut request: impl AsyncFnMut() -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let attempt = async || {
            self.is_of_tokens.set(false);
            request().await
        };
        let outcome = self.http.block_on(retry::until_final(attempt, || 0));
        outcome.map_err(|failure| self.error(failure, action()))
    }

    fn error(&self, failure: Failure, action: String) -> Error {
        let host = self.access.host.clone();
        if let (Some(status), true) = (failure.busy(), self.is_of_tokens.get()) {
            return Error::BusyTokens { host, status };
        }
        if let Some(pause) = failure
            .retry_after()
            .filter(|pause| *pause > retry::LONGEST)
        {
            let seconds = pause.as_secs();
            return Error::Busy {
                host,
                action,
                seconds,
            };
        }
        match (failure.status(), failure) {
            // A token server refuses a bad identity token with the status 400 (RFC 6749, 5.2).
            (Some(status), _)
                if matches!(status, 401 | 403) || status == 400 && self.is_of_tokens.get() =>
            {
                match &self.access.login {
                    Some(Login::Password { user, .. }) => Error::Password {
                        host,
                        user: user.clone(),
                        action,
                    },
                    Some(Login::IdentityToken(_)) => Error::Token { host, action },
                    None => Error::Login { host, action },
                }
            }
            (Some(404), _) => Error::Missing {
                host,
                name: action
                    .split_once(' ')
                    .map_or_else(String::new, |(_, name)| name.to_owned()),
            },
            (
                _,
                failure @ (Failure::NoTls(_)
                | Failure::Certificate(_)
                | Failure::Invalid { .. }
                | Failure::ProxyRefused(_)
                | Failure::ProxyLogin(_)
                | Failure::Proxy { .. }),
            ) => Error::Connection(Box::new(failure)),
            (_, source) => Error::Refused {
                host,
                action,
                source: Box::new(source),
            },
        }
    }
}

fn pull(repository: &str) -> Scope {
    Scope {
        repository: repository.to_owned(),
        is_push: false,
    }
}

fn push(repository: &str) -> Scope {
    Scope {
        is_push: true,
        ..pull(repository)
    }
}
