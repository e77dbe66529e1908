//! Authentication of clients, and certificate signing requests: approved ones are signed as a cluster's signer does.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::{HeaderMap, StatusCode, header::AUTHORIZATION};
use serde_json::{Value, json};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig, ServerConnection,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
        server::WebPkiClientVerifier,
    },
};
use x509_cert::{Certificate, der::Decode as _};

use crate::authority::Authority;

/// The client of a connection, by its certificate.
#[derive(Clone)]
pub(super) struct Peer {
    name: String,
    not_after: Duration,
}

/// How certificates are issued and checked.
pub struct Signer {
    /// The authority of the server's certificate and of the clients'.
    pub authority: Authority,
    /// How long an issued certificate is valid.
    pub lifetime: Duration,
    /// Whether every request is approved when it is created.
    pub approves_requests: bool,
    /// Whether clients' certificates are accepted.
    pub accepts_certificates: bool,
    /// How many of the next decisions meet a request that was changed meanwhile.
    pub conflicts: u32,
}

impl Default for Signer {
    fn default() -> Self {
        Self {
            authority: Authority::generate(),
            lifetime: Duration::from_hours(1),
            approves_requests: true,
            accepts_certificates: true,
            conflicts: 0,
        }
    }
}

impl Signer {
    /// TLS for a server at 127.0.0.1 that accepts clients with a certificate of this authority and clients without one; `http2` offers HTTP/2.
    pub(super) fn acceptor(&self, http2: bool) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate().into()).unwrap();
        let provider = Arc::new(default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let clients = clients.allow_unauthenticated().build().unwrap();
        let (certificate, key) = self.authority.server();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from(certificate)],
                PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)),
            );
        let mut config = config.unwrap();
        if http2 {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        Arc::new(config).into()
    }

    /// The client's name. A certificate is checked with each request, however old its connection is.
    pub(super) fn user(
        &self,
        peer: Option<&Peer>,
        headers: &HeaderMap,
    ) -> Result<String, StatusCode> {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let token = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        match (peer, token) {
            (Some(peer), None) if self.accepts_certificates && now < peer.not_after => {
                Ok(peer.name.clone())
            }
            (None, Some(token)) => Ok(token.trim_start_matches("Bearer ").to_owned()),
            // Without TLS clients have no name.
            (None, None) => Ok(String::new()),
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }

    /// A new request as the API server stores it.
    pub(super) fn complete(&self, mut request: Value, user: &str, number: u64) -> Value {
        let base = request["metadata"]["generateName"]
            .as_str()
            .unwrap()
            .to_owned();
        request["metadata"]["name"] = json!(format!("{base}{number}"));
        let group = if user.starts_with("system:multus:") {
            "system:multus"
        } else {
            "system:nodes"
        };
        request["spec"]["username"] = json!(user);
        request["spec"]["groups"] = json!([group, "system:authenticated"]);
        if self.approves_requests {
            request["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
        }
        request
    }

    /// Adds the certificate to an approved request.
    pub(super) fn sign(&self, request: &mut Value) {
        let conditions = request["status"]["conditions"].as_array();
        let approved =
            conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Approved"));
        if approved && request["status"]["certificate"].is_null() {
            let pem = BASE64_STANDARD.decode(request["spec"]["request"].as_str().unwrap());
            let pem = String::from_utf8(pem.unwrap()).unwrap();
            let certificate = self.authority.sign(&pem, self.lifetime);
            request["status"]["certificate"] = json!(BASE64_STANDARD.encode(certificate));
        }
    }
}

/// The client by the certificate that it presented, if any.
pub(super) fn peer(connection: &ServerConnection) -> Option<Peer> {
    let certificate = connection.peer_certificates()?.first()?;
    let certificate = Certificate::from_der(certificate).unwrap();
    let certificate = certificate.tbs_certificate();
    let name = certificate.subject().common_name().unwrap().unwrap();
    Some(Peer {
        name: name.value().into_owned(),
        not_after: certificate.validity().not_after.to_unix_duration(),
    })
}
