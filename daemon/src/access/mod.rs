//! Where the API server is, and who the daemon is towards it: the pod's own account, or the user of a kubeconfig.
//!
//! The kube crate could do all that, with everything that a desktop has: commands that are run for a credential, cloud providers,
//! proxies. None of that is on a node, and neither its way to decode a list whole nor its retries suit one.

mod client;
mod connections;
mod current;
mod failure;
mod kubeconfig;

mod connect;
mod pool;
mod stamp;
mod token;
mod verify;

use std::{
    cell::RefCell,
    env, fs, io,
    path::{Path, PathBuf},
};

use hyper::http::Uri;

pub(crate) use client::Ask;
pub use client::Client;
pub(crate) use connections::client_as;
pub use current::Current;
pub(crate) use failure::{Failure, FailureKind};
pub(crate) use kubeconfig::parse;
pub use kubeconfig::{KubeconfigError, ParseError};

/// Where a pod finds its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The API server, and who asks it.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) server: Server,
    pub(crate) credential: Credential,
    /// The kubeconfig that both came from, and the files that it names.
    kubeconfig: Option<PathBuf>,
    files: Vec<PathBuf>,
}

impl Access {
    /// Access that no file is looked at again for.
    pub(crate) fn new(server: Server, credential: Credential) -> Self {
        Self {
            server,
            credential,
            kubeconfig: None,
            files: Vec::new(),
        }
    }

    /// Whether connections made with the other one serve this one, too.
    fn same_as(&self, other: &Self) -> bool {
        self.server == other.server && self.credential == other.credential
    }

    #[cfg(test)]
    fn nobody() -> Self {
        let server = Server {
            url: Uri::from_static("https://a"),
            authority: None,
            authority_file: None,
            name: None,
        };
        Self::new(server, Credential::Nobody)
    }
}

/// The API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// `https`, or `http` to this machine's own proxies.
    url: Uri,
    /// Who signed its certificate, in PEM.
    authority: Option<Vec<u8>>,
    /// Where that is kept up to date.
    authority_file: Option<PathBuf>,
    /// The name in its certificate, where it is not the one in the address.
    name: Option<String>,
}

/// What shows who asks. Not to be printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    Nobody,
    Token(String),
    TokenFile(PathBuf),
    /// Both in PEM.
    Certificate {
        chain: Vec<u8>,
        key: Vec<u8>,
    },
}

/// There is no identity, or none that can be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Neither a kubeconfig nor a service account.
    #[error("neither a kubeconfig nor a service account says where the API server is")]
    Nobody,
    /// The kubeconfig, or a file that it names.
    #[error("kubeconfig {}", path.display())]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: KubeconfigError<io::Error>,
    },
    /// A file of the service account.
    #[error("cannot read {}", path.display())]
    Account {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What the environment says of the API server.
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT give no address")]
    Address(#[source] hyper::http::Error),
    /// The token of the service account or kubeconfig.
    #[error("{}: there is no token that can be read", .0.display())]
    NoToken(PathBuf),
    /// A token with characters that no token has.
    #[error("the token cannot be sent in a header")]
    BadToken,
    /// A certificate, its key or an authority.
    #[error("{0} cannot be used: {1}")]
    Tls(&'static str, String),
    /// An authority is needed.
    #[error(
        "nothing says who signed the API server's certificate: put certificate-authority into the kubeconfig"
    )]
    NoAuthority,
}

/// A client as whoever this process is: the user of the kubeconfig in `KUBECONFIG` or in the home folder, else its pod's account.
pub fn client() -> Result<Client, AccessError> {
    client_as(&own()?)
}

/// Who this process is.
pub(crate) fn own() -> Result<Access, AccessError> {
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

/// The account of the pod that this process is in.
fn account() -> Result<Access, AccessError> {
    let variable = |name| env::var(name).map_err(|_| AccessError::Nobody);
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

/// An address of version 6 stands in brackets.
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
    fn both_versions_of_addresses_are_taken() {
        let text = |host| address(host, "443").unwrap().to_string();
        assert_eq!(text("10.43.0.1"), "https://10.43.0.1:443/");
        assert_eq!(text("fd00::1"), "https://[fd00::1]:443/");
        assert!(address("a b", "443").is_err());
    }
}
