//! The credentials and connections of one identity. They are replaced when one of the files that they come from changes.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use hyper::{header::HeaderValue, http::Uri};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use trust::Verifier;

use super::{
    Access, AccessError, Client, Credential, Server,
    connect::Connector,
    from_kubeconfig,
    pool::Pool,
    stamp::Stamp,
    token::{TokenFile, bearer},
};

/// Returns a client with this access.
pub(crate) fn client_with(access: &Access) -> Result<Client, AccessError> {
    Ok(Client::fixed(Connections::new(access.clone())?))
}

/// The authorization header of requests.
#[derive(Clone)]
enum Authorization {
    Nothing,
    Fixed(HeaderValue),
    File(Arc<TokenFile>),
}

/// The server, the connections and the identity for a request.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) server: Uri,
    pub(super) pool: Arc<Pool>,
    /// The number of the daemon's certificate, which rises with each renewal.
    pub(super) number: u64,
    authorization: Authorization,
}

impl Route {
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        match &self.authorization {
            Authorization::Nothing => None,
            Authorization::Fixed(value) => Some(value.clone()),
            Authorization::File(file) => file.now(),
        }
    }

    /// Reports that the API server refused the credential.
    pub(super) fn refused(&self) {
        if let Authorization::File(file) = &self.authorization {
            file.refused();
        }
    }
}

/// The connections to the API server with one identity.
pub(super) struct Connections(Mutex<CurrentAccess>);

struct CurrentAccess {
    access: Access,
    route: Route,
    /// The files that `access` came from, with their stamps at that time. A token file has a stamp of its own.
    files: Vec<(PathBuf, Option<Stamp>)>,
}

impl Connections {
    pub(super) fn new(access: Access) -> Result<Self, AccessError> {
        let files = stamped(&access);
        let route = route(&access)?;
        Ok(Self(Mutex::new(CurrentAccess {
            access,
            route,
            files,
        })))
    }

    /// Returns the current route, which stays the previous one while the files cannot be used.
    pub(super) fn route(&self) -> Route {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = current
            .files
            .iter()
            .any(|(path, stamp)| Stamp::of(path) != *stamp);
        if changed {
            current.reload();
        }
        current.route.clone()
    }
}

impl CurrentAccess {
    fn reload(&mut self) {
        // Stamped before they are read, so that a file which changes meanwhile is read once more.
        let files = stamped(&self.access);
        let Some(newer) = read_again(&self.access) else {
            return;
        };
        if newer.same_as(&self.access) {
            self.files = files;
        } else if let Ok(route) = route(&newer) {
            self.files = if newer.files == self.access.files {
                files
            } else {
                stamped(&newer)
            };
            self.route = route;
            self.access = newer;
        }
    }
}

fn stamped(access: &Access) -> Vec<(PathBuf, Option<Stamp>)> {
    let authority = access.server.authority_file.iter();
    let kubeconfig = access.kubeconfig.iter().chain(&access.files);
    let files = authority.chain(kubeconfig);
    files.map(|file| (file.clone(), Stamp::of(file))).collect()
}

/// Returns the access from the current files, or `None` while they cannot be read.
fn read_again(access: &Access) -> Option<Access> {
    let mut newer = match &access.kubeconfig {
        Some(path) => from_kubeconfig(path).ok()?,
        None => access.clone(),
    };
    if let Some(file) = &access.server.authority_file {
        newer.server.authority = Some(std::fs::read(file).ok()?);
    }
    Some(newer)
}

fn route(access: &Access) -> Result<Route, AccessError> {
    let authorization = match &access.credential {
        Credential::Anonymous | Credential::Certificate { .. } => Authorization::Nothing,
        Credential::Token(token) => {
            Authorization::Fixed(bearer(token).ok_or(AccessError::BadToken)?)
        }
        Credential::TokenFile(path) => {
            let file = TokenFile::new(path.clone());
            // The first read has to succeed; later the file may be missing for a while.
            file.now()
                .ok_or_else(|| AccessError::NoToken(path.clone()))?;
            Authorization::File(Arc::new(file))
        }
    };
    let connector = Connector::new(&access.server, tls(access)?)?;
    Ok(Route {
        server: access.server.url.clone(),
        pool: Arc::new(Pool::new(connector)),
        number: 0,
        authorization,
    })
}

fn tls(access: &Access) -> Result<ClientConfig, AccessError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| AccessError::Tls("TLS", error.to_string()))?;
    let builder = match verifier(&access.server, provider)? {
        Some(verifier) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier)),
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let Credential::Certificate { chain, key } = &access.credential else {
        return Ok(builder.with_no_client_auth());
    };
    let unusable = |error: String| AccessError::Tls("the client's certificate", error);
    let chain = certificates(chain).map_err(unusable)?;
    // The error may quote its input, which is secret.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| unusable("it has no key in PEM".to_owned()))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| unusable(error.to_string()))
}

/// Returns a verifier that trusts the API server's authority, or `None` where the server has no certificate.
fn verifier(
    server: &Server,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Verifier>, AccessError> {
    let Some(authority) = &server.authority else {
        return match server.url.scheme_str() {
            Some("http") => Ok(None),
            _ => Err(AccessError::NoAuthority),
        };
    };
    let verifier =
        certificates(authority).and_then(|certificates| Verifier::new(certificates, provider));
    verifier
        .map(Some)
        .map_err(|error| AccessError::Tls("the API server's authority", error))
}

/// Parses one or more certificates in PEM.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("it has no certificate in PEM".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::authority::{Authority, to_pem};

    #[tokio::test]
    async fn a_changed_authority_takes_effect_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        let [one, two] = [Authority::generate(), Authority::generate()]
            .map(|one| to_pem("CERTIFICATE", &one.certificate()).into_bytes());
        let connections = Connections::new(Access {
            server: Server {
                url: "https://a".parse().unwrap(),
                authority: Some(one.clone()),
                authority_file: Some(file.clone()),
                name: None,
            },
            ..Access::anonymous()
        });
        let connections = connections.unwrap();
        let trusted = || {
            connections.route();
            let current = connections.0.lock().unwrap();
            current.access.server.authority.clone().unwrap()
        };
        assert!(trusted() == one, "there is no file");
        std::fs::write(&file, "half").unwrap();
        assert!(trusted() == one, "another process is about to write it");
        std::fs::write(&file, &two).unwrap();
        assert!(trusted() == two);
    }

    #[tokio::test]
    async fn a_changed_kubeconfig_or_file_in_it_takes_effect_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let write = |server: &str| {
            let text = format!(
                "clusters: [{{name: c, cluster: {{server: '{server}', certificate-authority: ca.crt}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c}}}}]\ncurrent-context: x\n"
            );
            std::fs::write(&path, text).unwrap();
        };
        let authority = || to_pem("CERTIFICATE", &Authority::generate().certificate());
        let (one, two) = (authority(), authority());
        std::fs::write(dir.path().join("ca.crt"), &one).unwrap();
        write("https://a");
        let connections = Connections::new(from_kubeconfig(&path).unwrap()).unwrap();
        let pool = |route: &Route| Arc::as_ptr(&route.pool);
        let first = connections.route();
        assert_eq!(pool(&first), pool(&connections.route()));
        std::fs::write(dir.path().join("ca.crt"), &two).unwrap();
        let second = connections.route();
        assert_ne!(
            pool(&first),
            pool(&second),
            "connections trust another authority"
        );
        write("https://another");
        assert_eq!(connections.route().server, "https://another/");
        std::fs::write(&path, "torn").unwrap();
        assert_eq!(connections.route().server, "https://another/");
    }

    #[tokio::test]
    async fn missing_or_broken_credentials_are_reported() {
        let client = |url: &str, authority: Option<&[u8]>, credential| {
            let access = Access {
                server: Server {
                    url: url.parse().unwrap(),
                    authority: authority.map(<[u8]>::to_vec),
                    authority_file: None,
                    name: None,
                },
                credential,
                ..Access::anonymous()
            };
            client_with(&access).err().map(|error| error.to_string())
        };
        let certificate = |chain: &[u8]| Credential::Certificate {
            chain: chain.to_vec(),
            key: b"secret".to_vec(),
        };
        let error = client("https://a", None, Credential::Anonymous).unwrap();
        assert!(error.contains("certificate-authority"), "{error}");
        let error = client("https://a", Some(b"x"), Credential::Anonymous).unwrap();
        assert!(error.contains("no certificate in PEM"), "{error}");
        assert_eq!(client("http://a", None, Credential::Anonymous), None);
        let error = client("http://a", None, Credential::Token("a\nb".into())).unwrap();
        assert!(!error.contains("a\nb"), "{error}");
        let file = Credential::TokenFile("/nowhere".into());
        assert!(client("http://a", None, file).unwrap().contains("/nowhere"));
        let error = client("http://a", None, certificate(b"x")).unwrap();
        assert!(!error.contains("secret"), "{error}");
    }
}
