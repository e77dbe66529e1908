//! The client of one registry: checks for blobs, pulls and pushes them, resolves and sets tags.
//!
//! The only module that uses the crate of the protocol. Calls block until they have a response; temporary errors are retried.

mod login;
mod partial_blob;
mod retry;
mod retry_after;

use std::{io, path::Path, sync::Once, time::Duration};

use archive::digest::{Digest, sha256};
use futures::StreamExt as _;
use oci_client::{
    Client, Reference,
    client::{BlobResponse, ClientConfig, ClientProtocol},
    errors::OciDistributionError,
    secrets::RegistryAuth,
};
use tokio::runtime::{Builder, Runtime};

pub use self::login::{Login, StoredLogin, in_docker_config, of_helper};
use self::partial_blob::PartialBlob;

/// Media types of manifests that are accepted.
const MANIFESTS: &[&str] = &[
    archive::oci::INDEX,
    archive::oci::MANIFEST,
    archive::oci::DOCKER_LIST,
    archive::oci::DOCKER_MANIFEST,
];
const USER_AGENT: &str = concat!("multus-rs/", env!("CARGO_PKG_VERSION"));
/// A connection on which nothing arrives for so long has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

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
    #[error("{0} speaks no TLS: give --plain-http")]
    NoTls(String),
    #[error("{0}'s certificate is not trusted: name its CA in SSL_CERT_FILE")]
    Certificate(String),
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
    #[error("cannot {action} at {host}")]
    Refused {
        host: String,
        action: String,
        #[source]
        source: Box<OciDistributionError>,
    },
    #[error("cannot store what {host} sends")]
    Io {
        host: String,
        #[source]
        source: io::Error,
    },
}

/// A client of one registry.
pub struct Registry {
    access: Access,
    auth: RegistryAuth,
    client: Client,
    /// For `Retry-After`, which the protocol's crate drops.
    http: reqwest::Client,
    runtime: Runtime,
}

impl Registry {
    /// Makes a client, which does not connect yet.
    pub fn new(access: Access) -> io::Result<Self> {
        static PROVIDER: Once = Once::new();
        // Fails when a provider is installed already, which serves as well.
        PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let protocol = if access.is_plain {
            ClientProtocol::Http
        } else {
            ClientProtocol::Https
        };
        // Proxies come from the usual variables of the environment: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY.
        let config = ClientConfig {
            protocol,
            use_monolithic_push: true,
            read_timeout: Some(TIMEOUT),
            connect_timeout: Some(TIMEOUT),
            user_agent: USER_AGENT,
            ..ClientConfig::default()
        };
        let auth = match &access.login {
            Some(login) => RegistryAuth::Basic(login.user.clone(), login.password.clone()),
            None => RegistryAuth::Anonymous,
        };
        let http = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .timeout(TIMEOUT);
        Ok(Self {
            auth,
            http: http.build().map_err(io::Error::other)?,
            client: Client::try_from(config).map_err(io::Error::other)?,
            runtime: Builder::new_current_thread().enable_all().build()?,
            access,
        })
    }

    pub fn host(&self) -> &str {
        &self.access.host
    }

    /// Returns whether the registry has a blob.
    pub fn has_blob(&self, repository: &str, digest: &Digest) -> Result<bool, Error> {
        let reference = self.by_digest(repository, digest);
        let digest = digest.to_string();
        let action = || format!("look for {repository}@{digest}");
        self.attempt(action, async || {
            self.client.blob_exists(&reference, &digest).await
        })
    }

    /// Returns the digest of a tag or digest, or `None` when the registry does not have it.
    pub fn digest_of(&self, repository: &str, name: &str) -> Result<Option<Digest>, Error> {
        let reference = self.reference(repository, name);
        let action = || format!("look for {repository} {name}");
        let found = self.attempt(action, async || {
            self.client
                .fetch_manifest_digest(&reference, &self.auth)
                .await
        });
        match found {
            Ok(text) => Ok(text.parse().ok()),
            Err(Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a manifest by its tag or digest.
    pub fn manifest(&self, repository: &str, name: &str) -> Result<Vec<u8>, Error> {
        let reference = self.reference(repository, name);
        let action = || format!("pull {repository} {name}");
        let (bytes, _) = self.attempt(action, async || {
            self.client
                .pull_manifest_raw(&reference, &self.auth, MANIFESTS)
                .await
        })?;
        if let Ok(expected) = name.parse::<Digest>() {
            self.ensure_same(expected, sha256(&bytes))?;
        }
        Ok(bytes.to_vec())
    }

    /// Fetches a blob into a file, resuming where an earlier attempt ended, and checks the digest of the file.
    pub fn pull_blob(
        &self,
        repository: &str,
        (digest, size): (Digest, u64),
        file: &Path,
        progress: &dyn Fn(u64),
    ) -> Result<(), Error> {
        let io_error = |source| Error::Io {
            host: self.access.host.clone(),
            source,
        };
        let mut part = PartialBlob::open(file, size).map_err(io_error)?;
        let reference = self.by_digest(repository, &digest);
        let action = || format!("pull {repository}@{digest}");
        if part.len < size {
            self.attempt(action, async || {
                self.receive(&reference, &digest, &mut part, progress).await
            })?;
        }
        let found = part.digest().map_err(io_error)?;
        if found != digest {
            // No further bytes can make a wrong file right, so the next attempt starts over.
            let _ = std::fs::remove_file(file);
        }
        self.ensure_same(digest, found)
    }

    async fn receive(
        &self,
        reference: &Reference,
        digest: &Digest,
        part: &mut PartialBlob,
        progress: &dyn Fn(u64),
    ) -> Result<(), OciDistributionError> {
        self.client
            .store_auth_if_needed(reference.resolve_registry(), &self.auth)
            .await;
        let digest = digest.to_string();
        let response = self
            .client
            .pull_blob_stream_partial(reference, digest.as_str(), part.len, None)
            .await?;
        let mut stream = match response {
            BlobResponse::Partial(stream) => stream,
            BlobResponse::Full(stream) => {
                part.restart()?;
                stream
            }
        };
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(bytes) => {
                    part.append(&bytes)?;
                    progress(bytes.len() as u64);
                }
                // All bytes have arrived although the stream ends with an error; the digest decides.
                Err(_) if part.is_complete() => break,
                Err(error) => return Err(error.into()),
            }
        }
        if part.is_complete() {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    /// Sends a blob.
    pub fn push_blob(&self, repository: &str, digest: &Digest, bytes: &[u8]) -> Result<(), Error> {
        let reference = self.by_digest(repository, digest);
        let digest = digest.to_string();
        let action = || format!("push {repository}@{digest}");
        self.attempt(action, async || {
            self.client
                .push_blob(&reference, bytes.to_vec(), &digest)
                .await
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
        let reference = self.reference(repository, name);
        let action = || format!("push {repository} {name}");
        self.attempt(action, async || {
            let media_type = media_type.parse().map_err(|_| {
                OciDistributionError::GenericError(Some(format!(
                    "{media_type} is not a media type"
                )))
            })?;
            self.client
                .push_manifest_raw(&reference, bytes.to_vec(), media_type)
                .await
        })
        .map(drop)
    }

    fn ensure_same(&self, expected: Digest, found: Digest) -> Result<(), Error> {
        if found == expected {
            return Ok(());
        }
        Err(Error::Digest {
            host: self.access.host.clone(),
            expected,
            found,
        })
    }

    fn reference(&self, repository: &str, name: &str) -> Reference {
        let (host, repository) = (self.access.host.clone(), repository.to_owned());
        if name.starts_with("sha256:") {
            Reference::with_digest(host, repository, name.to_owned())
        } else {
            Reference::with_tag(host, repository, name.to_owned())
        }
    }

    fn by_digest(&self, repository: &str, digest: &Digest) -> Reference {
        self.reference(repository, &digest.to_string())
    }

    /// Sends a request, and retries it while its error may be temporary.
    fn attempt<T>(
        &self,
        action: impl Fn() -> String,
        mut request: impl AsyncFnMut() -> Result<T, OciDistributionError>,
    ) -> Result<T, Error> {
        let outcome = self.runtime.block_on(async {
            let any = self.reference("x", "x");
            self.client
                .store_auth_if_needed(any.resolve_registry(), &self.auth)
                .await;
            let retry_after = async |address: &str| retry_after::fetch(&self.http, address).await;
            retry::until_final(&mut request, retry_after).await
        });
        outcome.map_err(|failure| {
            let host = self.access.host.clone();
            let source = match failure {
                retry::Failure::Final(source) => source,
                retry::Failure::Busy(wait) => {
                    return Error::Busy {
                        host,
                        action: action(),
                        seconds: wait.as_secs(),
                    };
                }
            };
            match retry::tls_fault(&source) {
                Some(retry::TlsFault::NoTls) => return Error::NoTls(host),
                Some(retry::TlsFault::Certificate) => return Error::Certificate(host),
                None => {}
            }
            match (retry::kind(&source), &self.access.login) {
                (retry::ErrorKind::Login, Some(login)) => Error::Password {
                    host,
                    user: login.user.clone(),
                    action: action(),
                },
                (retry::ErrorKind::Login, None) => Error::Login {
                    host,
                    action: action(),
                },
                (retry::ErrorKind::Missing, _) => Error::Missing {
                    host,
                    name: action()
                        .split_once(' ')
                        .map_or_else(String::new, |(_, name)| name.to_owned()),
                },
                (retry::ErrorKind::Temporary | retry::ErrorKind::Final, _) => Error::Refused {
                    host,
                    action: action(),
                    source: Box::new(source),
                },
            }
        })
    }
}
