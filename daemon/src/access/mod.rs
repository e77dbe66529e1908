//! Access to the API server: its address and the daemon's identity, which is the pod's service account or the user of a kubeconfig.
//!
//! The kube crate could do this, together with everything for workstations: commands that print credentials, cloud providers, proxies.
//! A node has none of that, and neither the crate's decoding of complete lists nor its retries suit one.

mod client;
mod connections;
mod current_client;
mod error;
mod kubeconfig;

mod connect;
mod pool;
mod stamp;
mod token;

use std::{
    cell::RefCell,
    env, fs, io,
    path::{Path, PathBuf},
};

use hyper::http::Uri;

pub(crate) use client::ApiRequest;
pub use client::Client;
pub(crate) use connections::client_with;
pub use current_client::CurrentClient;
pub(crate) use error::{ApiError, ApiErrorKind};
pub(crate) use kubeconfig::parse;
pub use kubeconfig::{KubeconfigError, ParseError};

/// The directory of a pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The API server, and the identity for its requests.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) server: Server,
    pub(crate) credential: Credential,
    /// The kubeconfig that both come from, and the files that it names.
    kubeconfig: Option<PathBuf>,
    files: Vec<PathBuf>,
}

impl Access {
    /// Creates an access whose source is never read again.
    pub(crate) fn new(server: Server, credential: Credential) -> Self {
        Self {
            server,
            credential,
            kubeconfig: None,
            files: Vec::new(),
        }
    }

    /// Whether connections of `other` can be used for this access.
    fn same_as(&self, other: &Self) -> bool {
        self.server == other.server && self.credential == other.credential
    }

    #[cfg(test)]
    fn anonymous() -> Self {
        let server = Server {
            url: Uri::from_static("https://a"),
            authority: None,
            authority_file: None,
            name: None,
        };
        Self::new(server, Credential::Anonymous)
    }
}

/// The API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// `https`, or `http` to proxies on this machine.
    url: Uri,
    /// The certificate authority of the server, in PEM.
    authority: Option<Vec<u8>>,
    /// The file that has the current authority.
    authority_file: Option<PathBuf>,
    /// The name in the server's certificate, where it differs from the address.
    name: Option<String>,
}

/// The proof of identity. It must not be printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    Anonymous,
    Token(String),
    TokenFile(PathBuf),
    /// Both in PEM.
    Certificate {
        chain: Vec<u8>,
        key: Vec<u8>,
    },
}

/// The reason why there is no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Neither a kubeconfig nor a service account.
    #[error(
        "neither a kubeconfig nor a service account has the address of the API server: set KUBECONFIG, or run in a pod"
    )]
    NoIdentity,
    /// The kubeconfig, or a file that it names, cannot be used.
    #[error("kubeconfig {}", path.display())]
    Kubeconfig {
        /// The path of the kubeconfig.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: KubeconfigError<io::Error>,
    },
    /// A file of the service account cannot be read.
    #[error("cannot read {}", path.display())]
    Account {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: io::Error,
    },
    /// The environment has no valid address of the API server.
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not a valid address")]
    Address(#[source] hyper::http::Error),
    /// The token file of the service account or kubeconfig cannot be read.
    #[error("{}: has no readable token", .0.display())]
    NoToken(PathBuf),
    /// The token has characters that no token can have.
    #[error("the token has characters that are not allowed in a header")]
    BadToken,
    /// A certificate, its key or a certificate authority cannot be used.
    #[error("{0} cannot be used: {1}")]
    Tls(&'static str, String),
    /// The kubeconfig has no certificate authority.
    #[error(
        "the certificate authority of the API server is missing: add certificate-authority to the kubeconfig"
    )]
    NoAuthority,
}

/// Returns a client with this process's identity: the user of the kubeconfig in `KUBECONFIG` or in the home directory, else the pod's
/// service account.
pub fn client() -> Result<Client, AccessError> {
    client_with(&from_environment()?)
}

/// Returns the access with this process's identity.
pub(crate) fn from_environment() -> Result<Access, AccessError> {
    match kubeconfig_path() {
        Some(path) => from_kubeconfig(&path),
        None => account(),
    }
}

fn kubeconfig_path() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let home = || {
        let path = Path::new(&set("HOME")?).join(".kube/config");
        path.exists().then_some(path)
    };
    set("KUBECONFIG").map(PathBuf::from).or_else(home)
}

fn from_kubeconfig(path: &Path) -> Result<Access, AccessError> {
    let dir = path.parent().unwrap_or(path);
    let files = RefCell::new(Vec::new());
    let read = |file: &Path| {
        let file = dir.join(file);
        let content = fs::read(&file);
        files.borrow_mut().push(file);
        content
    };
    let access = fs::read(path)
        .map_err(|source| KubeconfigError::File {
            path: path.to_owned(),
            source,
        })
        .and_then(|text| parse(&text, read));
    let mut access = access.map_err(|source| AccessError::Kubeconfig {
        path: path.to_owned(),
        source,
    })?;
    if let Credential::TokenFile(file) = &mut access.credential {
        *file = dir.join(&file);
    }
    access.kubeconfig = Some(path.to_owned());
    access.files = files.into_inner();
    Ok(access)
}

/// Returns the access of the pod's service account.
fn account() -> Result<Access, AccessError> {
    let variable = |name| env::var(name).map_err(|_| AccessError::NoIdentity);
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let file = Path::new(ACCOUNT).join("ca.crt");
    let authority = fs::read(&file).map_err(|source| AccessError::Account {
        path: file.clone(),
        source,
    })?;
    let server = Server {
        url: address(&host, &port).map_err(AccessError::Address)?,
        authority: Some(authority),
        authority_file: Some(file),
        name: None,
    };
    let token = Path::new(ACCOUNT).join("token");
    Ok(Access::new(server, Credential::TokenFile(token)))
}

/// Returns the URL of an address. IPv6 addresses get brackets.
fn address(host: &str, port: &str) -> Result<Uri, hyper::http::Error> {
    let authority = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let uri = Uri::builder().scheme("https").authority(authority);
    uri.path_and_query("/").build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_ipv4_or_ipv6() {
        let text = |host| address(host, "443").unwrap().to_string();
        assert_eq!(text("10.43.0.1"), "https://10.43.0.1:443/");
        assert_eq!(text("fd00::1"), "https://[fd00::1]:443/");
        assert!(address("a b", "443").is_err());
    }
}
