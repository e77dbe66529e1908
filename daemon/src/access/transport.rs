//! The kube crate's client over connections of our own: TLS by rustls, the address in front of each request, the credential in it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{
    Request,
    header::{AUTHORIZATION, HeaderValue, USER_AGENT},
    http::{Uri, uri::PathAndQuery},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::client::Body;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

use super::{
    Access, AccessError, Credential, Server,
    token::{TokenFile, bearer},
};

/// An API server in reach answers in milliseconds.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// A watch is silent for minutes: only this tells that its other end is gone. Three questions, then the connection has ended.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_RETRIES: u32 = 3;

/// Connections that are kept open.
type Pool = Client<HttpsConnector<HttpConnector>, Body>;

/// What requests carry.
enum Authorization {
    Nothing,
    Fixed(HeaderValue),
    File(TokenFile),
}

/// A client with this access.
pub(crate) fn client_as(access: &Access) -> Result<kube::Client, AccessError> {
    let authorization = match &access.credential {
        Credential::Nobody | Credential::Certificate { .. } => Authorization::Nothing,
        Credential::Token(token) => {
            Authorization::Fixed(bearer(token).ok_or(AccessError::BadToken)?)
        }
        Credential::TokenFile(path) => {
            let file = TokenFile::new(path.clone());
            // At its first reading it has to be there; later on it may be away.
            file.now()
                .ok_or_else(|| AccessError::NoToken(path.clone()))?;
            Authorization::File(file)
        }
    };
    let connections = Connections::new(access.clone())?;
    let server = access.server.url.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        *request.uri_mut() = absolute(&server, request.uri());
        let headers = request.headers_mut();
        let program = concat!("multus-daemon/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(program));
        let value = match &authorization {
            Authorization::Nothing => None,
            Authorization::Fixed(value) => Some(value.clone()),
            Authorization::File(file) => file.now(),
        };
        if let Some(value) = value {
            headers.insert(AUTHORIZATION, value);
        }
        connections.pool().request(request)
    });
    Ok(kube::Client::new(service, "default"))
}

/// Connections to the API server, made anew when another authority signs its certificates. As with the token no clock is asked: the
/// file is read with each request.
struct Connections {
    now: Mutex<(Access, Pool)>,
}

impl Connections {
    fn new(access: Access) -> Result<Self, AccessError> {
        let pool = pool(&access)?;
        Ok(Self {
            now: Mutex::new((access, pool)),
        })
    }

    /// Those of the moment; the last ones while what the file holds cannot be used.
    fn pool(&self) -> Pool {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (access, pool) = &mut *now;
        let file = access.server.authority_file.as_deref();
        let found = file.and_then(|file| std::fs::read(file).ok());
        if found.is_some() && found != access.server.authority {
            let mut newer = access.clone();
            newer.server.authority = found;
            if let Ok(trusting) = self::pool(&newer) {
                *pool = trusting;
                *access = newer;
            }
        }
        pool.clone()
    }
}

fn pool(access: &Access) -> Result<Pool, AccessError> {
    Ok(Client::builder(TokioExecutor::new()).build(connector(access)?))
}

fn connector(access: &Access) -> Result<HttpsConnector<HttpConnector>, AccessError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_PATIENCE));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls(access)?)
        .https_or_http();
    let https = match &access.server.name {
        None => https,
        Some(name) => {
            let name = ServerName::try_from(name.clone())
                .map_err(|error| AccessError::Tls("tls-server-name", error.to_string()))?;
            https.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    Ok(https.enable_http1().wrap_connector(tcp))
}

fn tls(access: &Access) -> Result<ClientConfig, AccessError> {
    let roots = roots(&access.server)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| AccessError::Tls("TLS", error.to_string()))?
        .with_root_certificates(roots);
    let Credential::Certificate { chain, key } = &access.credential else {
        return Ok(builder.with_no_client_auth());
    };
    let unusable = |error: String| AccessError::Tls("the client's certificate", error);
    let chain = certificates(chain).map_err(unusable)?;
    // The error may quote what it could not read, and that is secret.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| unusable("there is no key in PEM".to_owned()))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| unusable(error.to_string()))
}

/// Who may have signed the API server's certificate.
fn roots(server: &Server) -> Result<RootCertStore, AccessError> {
    let mut roots = RootCertStore::empty();
    let Some(authority) = &server.authority else {
        return match server.url.scheme_str() {
            Some("http") => Ok(roots),
            _ => Err(AccessError::NoAuthority),
        };
    };
    let unusable = |error| AccessError::Tls("the API server's authority", error);
    for certificate in certificates(authority).map_err(unusable)? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(error.to_string()))?;
    }
    Ok(roots)
}

/// One or more, in PEM.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("there is no certificate in PEM".to_owned());
    }
    Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::authority::{Authority, in_pem};

    #[test]
    fn requests_go_below_the_address() {
        let full = |server: &str, path: &str| {
            absolute(&server.parse().unwrap(), &path.parse().unwrap()).to_string()
        };
        assert_eq!(full("https://a:1", "/api?x=y"), "https://a:1/api?x=y");
        assert_eq!(full("https://a/k8s/c/", "/api"), "https://a/k8s/c/api");
    }

    #[tokio::test]
    async fn another_authority_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        let [one, two] = [Authority::new(), Authority::new()]
            .map(|one| in_pem("CERTIFICATE", &one.certificate()).into_bytes());
        let connections = Connections::new(Access {
            server: Server {
                url: "https://a".parse().unwrap(),
                authority: Some(one.clone()),
                authority_file: Some(file.clone()),
                name: None,
            },
            credential: Credential::Nobody,
        });
        let connections = connections.unwrap();
        let trusted = || {
            connections.pool();
            let now = connections.now.lock().unwrap();
            now.0.server.authority.clone().unwrap()
        };
        assert!(trusted() == one, "there is no file");
        std::fs::write(&file, "half").unwrap();
        assert!(trusted() == one, "somebody is about to write it");
        std::fs::write(&file, &two).unwrap();
        assert!(trusted() == two);
    }

    #[tokio::test]
    async fn what_is_missing_or_broken_is_told() {
        let client = |url: &str, authority: Option<&[u8]>, credential| {
            let access = Access {
                server: Server {
                    url: url.parse().unwrap(),
                    authority: authority.map(<[u8]>::to_vec),
                    authority_file: None,
                    name: None,
                },
                credential,
            };
            client_as(&access).err().map(|error| error.to_string())
        };
        let certificate = |chain: &[u8]| Credential::Certificate {
            chain: chain.to_vec(),
            key: b"secret".to_vec(),
        };
        let told = client("https://a", None, Credential::Nobody).unwrap();
        assert!(told.contains("certificate-authority"), "{told}");
        let told = client("https://a", Some(b"x"), Credential::Nobody).unwrap();
        assert!(told.contains("no certificate in PEM"), "{told}");
        assert_eq!(client("http://a", None, Credential::Nobody), None);
        let told = client("http://a", None, Credential::Token("a\nb".into())).unwrap();
        assert!(!told.contains("a\nb"), "{told}");
        let file = Credential::TokenFile("/nowhere".into());
        assert!(client("http://a", None, file).unwrap().contains("/nowhere"));
        let told = client("http://a", None, certificate(b"x")).unwrap();
        assert!(!told.contains("secret"), "{told}");
    }
}
