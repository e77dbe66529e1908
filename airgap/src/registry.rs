//! One registry, by the four things that are asked of it: is it there, give it, take it, name it.
//!
//! The only place that knows the crate that speaks the protocol. Calls wait for their answer; what may pass by itself is tried again.

mod busy;
mod login;
mod part;
mod retry;

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

pub use self::login::{Found, Login, in_docker_config, of_helper};
use self::part::Part;

/// Media types of manifests that are taken.
const MANIFESTS: &[&str] = &[
    archive::oci::INDEX,
    archive::oci::MANIFEST,
    archive::oci::DOCKER_LIST,
    archive::oci::DOCKER_MANIFEST,
];
/// Who asks.
const NAME: &str = concat!("multus-rs/", env!("CARGO_PKG_VERSION"));
/// A server that sends nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// How a registry is reached.
#[derive(Debug, Clone)]
pub struct Access {
    /// Name and, where it is not 443, port.
    pub host: String,
    /// Without TLS.
    pub is_plain: bool,
    /// As whom; nobody unless given.
    pub login: Option<Login>,
}

/// Why a registry did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It wants a login, or another.
    #[error("{host} does not let this user {what}")]
    Login {
        /// The registry.
        host: String,
        /// What was wanted.
        what: String,
    },
    /// It does not have it.
    #[error("{host} has no {what}")]
    Missing {
        /// The registry.
        host: String,
        /// What was asked for.
        what: String,
    },
    /// It sent something else.
    #[error("{host} sends {found} for {expected}")]
    Digest {
        /// The registry.
        host: String,
        /// What was asked for.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// It wants to be left alone for longer than anybody waits here.
    #[error("{host} is busy for {seconds} s more by its own word: {what} then")]
    Busy {
        /// The registry.
        host: String,
        /// What was wanted.
        what: String,
        /// How long it is.
        seconds: u64,
    },
    /// It refused, or cannot be reached.
    #[error("cannot {what} at {host}")]
    Refused {
        /// The registry.
        host: String,
        /// What was wanted.
        what: String,
        /// Why not.
        #[source]
        source: Box<OciDistributionError>,
    },
    /// A file on this side.
    #[error("cannot keep what {host} sends")]
    Io {
        /// The registry.
        host: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A connection to one registry.
pub struct Registry {
    access: Access,
    auth: RegistryAuth,
    client: Client,
    /// Asks how long to wait.
    asking: reqwest::Client,
    runtime: Runtime,
}

impl Registry {
    /// Says nothing to it yet.
    pub fn new(access: Access) -> io::Result<Self> {
        static PROVIDER: Once = Once::new();
        // Somebody else's provider serves as well.
        PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let protocol = if access.is_plain {
            ClientProtocol::Http
        } else {
            ClientProtocol::Https
        };
        // Proxies are those of the environment, as every program reads it: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY.
        let config = ClientConfig {
            protocol,
            use_monolithic_push: true,
            read_timeout: Some(SILENCE),
            connect_timeout: Some(SILENCE),
            user_agent: NAME,
            ..ClientConfig::default()
        };
        let auth = match &access.login {
            Some(login) => RegistryAuth::Basic(login.user.clone(), login.password.clone()),
            None => RegistryAuth::Anonymous,
        };
        let asking = reqwest::Client::builder().user_agent(NAME).timeout(SILENCE);
        Ok(Self {
            auth,
            asking: asking.build().map_err(io::Error::other)?,
            client: Client::try_from(config).map_err(io::Error::other)?,
            runtime: Builder::new_current_thread().enable_all().build()?,
            access,
        })
    }

    /// Its name.
    pub fn host(&self) -> &str {
        &self.access.host
    }

    /// Whether it has a blob.
    pub fn has_blob(&self, repository: &str, digest: &Digest) -> Result<bool, Error> {
        let reference = self.by_digest(repository, digest);
        let digest = digest.to_string();
        let what = || format!("look for {repository}@{digest}");
        self.attempt(what, async || {
            self.client.blob_exists(&reference, &digest).await
        })
    }

    /// What a tag or digest stands for, if anything.
    pub fn digest_of(&self, repository: &str, name: &str) -> Result<Option<Digest>, Error> {
        let reference = self.reference(repository, name);
        let what = || format!("look for {repository} {name}");
        let found = self.attempt(what, async || {
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

    /// A manifest by its tag or digest.
    pub fn manifest(&self, repository: &str, name: &str) -> Result<Vec<u8>, Error> {
        let reference = self.reference(repository, name);
        let what = || format!("pull {repository} {name}");
        let (bytes, _) = self.attempt(what, async || {
            self.client
                .pull_manifest_raw(&reference, &self.auth, MANIFESTS)
                .await
        })?;
        if let Ok(expected) = name.parse::<Digest>() {
            self.same(expected, sha256(&bytes))?;
        }
        Ok(bytes.to_vec())
    }

    /// Gets a blob into a file, going on where an earlier attempt ended; what the file holds in the end is that blob.
    pub fn pull_blob(
        &self,
        repository: &str,
        (digest, size): (Digest, u64),
        file: &Path,
        moved: &dyn Fn(u64),
    ) -> Result<(), Error> {
        let io_error = |source| Error::Io {
            host: self.access.host.clone(),
            source,
        };
        let mut part = Part::open(file, size).map_err(io_error)?;
        let reference = self.by_digest(repository, &digest);
        let what = || format!("pull {repository}@{digest}");
        if part.len < size {
            self.attempt(what, async || {
                self.receive(&reference, &digest, &mut part, moved).await
            })?;
        }
        let found = part.digest().map_err(io_error)?;
        if found != digest {
            // Nothing can be appended to that would make it right.
            drop(std::fs::remove_file(file));
        }
        self.same(digest, found)
    }

    async fn receive(
        &self,
        reference: &Reference,
        digest: &Digest,
        part: &mut Part,
        moved: &dyn Fn(u64),
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
                    part.take(&bytes)?;
                    moved(bytes.len() as u64);
                }
                // Complete, but the stream does not like it: the digest will tell.
                Err(_) if part.is_complete() => break,
                Err(error) => return Err(error.into()),
            }
        }
        if part.is_complete() {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    /// Gives it a blob.
    pub fn push_blob(&self, repository: &str, digest: &Digest, bytes: &[u8]) -> Result<(), Error> {
        let reference = self.by_digest(repository, digest);
        let digest = digest.to_string();
        let what = || format!("push {repository}@{digest}");
        self.attempt(what, async || {
            self.client
                .push_blob(&reference, bytes.to_vec(), &digest)
                .await
        })
        .map(drop)
    }

    /// Gives it a manifest under a tag or its digest; what it points at must be there.
    pub fn push_manifest(
        &self,
        repository: &str,
        name: &str,
        media_type: &'static str,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let reference = self.reference(repository, name);
        let what = || format!("push {repository} {name}");
        self.attempt(what, async || {
            let media_type = media_type.parse().map_err(|_| {
                OciDistributionError::GenericError(Some(format!("{media_type} is no media type")))
            })?;
            self.client
                .push_manifest_raw(&reference, bytes.to_vec(), media_type)
                .await
        })
        .map(drop)
    }

    fn same(&self, expected: Digest, found: Digest) -> Result<(), Error> {
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

    /// Asks until there is an answer that will not change by asking again.
    fn attempt<T>(
        &self,
        what: impl Fn() -> String,
        mut ask: impl AsyncFnMut() -> Result<T, OciDistributionError>,
    ) -> Result<T, Error> {
        let answer = self.runtime.block_on(async {
            let anyone = self.reference("x", "x");
            self.client
                .store_auth_if_needed(anyone.resolve_registry(), &self.auth)
                .await;
            let told = async |address: &str| busy::wait(&self.asking, address).await;
            retry::until_final(&mut ask, told).await
        });
        answer.map_err(|end| {
            let host = self.access.host.clone();
            let source = match end {
                retry::End::No(source) => source,
                retry::End::Later(wait) => {
                    return Error::Busy {
                        host,
                        what: what(),
                        seconds: wait.as_secs(),
                    };
                }
            };
            match retry::kind(&source) {
                retry::Kind::Login => Error::Login { host, what: what() },
                retry::Kind::Missing => Error::Missing {
                    host,
                    what: what()
                        .split_once(' ')
                        .map_or_else(String::new, |(_, it)| it.to_owned()),
                },
                retry::Kind::Passing | retry::Kind::Final => Error::Refused {
                    host,
                    what: what(),
                    source: Box::new(source),
                },
            }
        })
    }
}
