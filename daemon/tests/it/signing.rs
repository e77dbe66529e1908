//! Who asks the fake API server, and certificate signing requests: it keeps them, and signs what is approved as a cluster's signer does.

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

/// Who is at the other end of a connection, by its certificate.
#[derive(Clone)]
pub(crate) struct Peer {
    name: String,
    not_after: Duration,
}

/// How requests are signed.
pub(crate) struct Signer {
    pub(crate) authority: Authority,
    /// How long certificates are valid.
    pub(crate) life: Duration,
    /// Whether everything counts as approved.
    pub(crate) approves: bool,
    /// Whether certificates are accepted.
    pub(crate) accepts: bool,
    /// Before how many of the next decisions somebody changes the request.
    pub(crate) conflicts: u32,
}

impl Default for Signer {
    fn default() -> Self {
        Self {
            authority: Authority::new(),
            life: Duration::from_hours(1),
            approves: true,
            accepts: true,
            conflicts: 0,
        }
    }
}

impl Signer {
    /// TLS for a server at 127.0.0.1 that takes client certificates of this authority, and clients without; `http2` is offered or not.
    pub(crate) fn acceptor(&self, http2: bool) -> TlsAcceptor {
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

    /// The name of who asks; a certificate is looked at with each request, however old its connection is.
    pub(crate) fn user(
        &self,
        peer: Option<&Peer>,
        headers: &HeaderMap,
    ) -> Result<String, StatusCode> {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let token = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        match (peer, token) {
            (Some(peer), None) if self.accepts && now < peer.not_after => Ok(peer.name.clone()),
            (None, Some(token)) => Ok(token.trim_start_matches("Bearer ").to_owned()),
            // Without TLS nobody has a name.
            (None, None) => Ok(String::new()),
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }

    /// A request as the API server keeps it.
    pub(crate) fn complete(&self, mut request: Value, user: &str, number: u64) -> Value {
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
        if self.approves {
            request["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
        }
        request
    }

    /// Puts the certificate into an approved request.
    pub(crate) fn sign(&self, request: &mut Value) {
        let conditions = request["status"]["conditions"].as_array();
        let approved =
            conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Approved"));
        if approved && request["status"]["certificate"].is_null() {
            let pem = BASE64_STANDARD.decode(request["spec"]["request"].as_str().unwrap());
            let pem = String::from_utf8(pem.unwrap()).unwrap();
            let certificate = self.authority.sign(&pem, self.life);
            request["status"]["certificate"] = json!(BASE64_STANDARD.encode(certificate));
        }
    }
}

/// Who showed a certificate.
pub(crate) fn peer(connection: &ServerConnection) -> Option<Peer> {
    let certificate = connection.peer_certificates()?.first()?;
    let certificate = Certificate::from_der(certificate).unwrap();
    let certificate = certificate.tbs_certificate();
    let name = certificate.subject().common_name().unwrap().unwrap();
    Some(Peer {
        name: name.value().into_owned(),
        not_after: certificate.validity().not_after.to_unix_duration(),
    })
}
