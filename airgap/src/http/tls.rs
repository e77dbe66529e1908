//! The certificates that are trusted: those of the machine or of `SSL_CERT_FILE`, and those of a host in `certs.d`.
//!
//! A server's certificate is accepted by a chain that webpki checks, or because it is itself one of the trusted ones, which webpki
//! refuses where it may sign others (`CaUsedAsEndEntity`), as those of `openssl req -x509` may.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};

use super::{Environment, SetupError};

/// The variables that name trusted certificates, which replace the machine's own list.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The variables name no certificate that can be read. Only a connection with TLS fails for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot read the certificates of SSL_CERT_FILE and SSL_CERT_DIR: {0}")]
pub struct Unreadable(String);

/// Returns the configuration for a host.
pub(super) fn config(
    environment: &Environment<'_>,
    host: Option<&str>,
) -> Result<ClientConfig, SetupError> {
    let native = rustls_native_certs::load_native_certs();
    let is_named = VARIABLES
        .iter()
        .any(|name| (environment.variable)(name).is_some());
    let error = native.errors.first();
    let error = error.filter(|_| is_named && native.certs.is_empty());
    let without_trusted = match error.map(|error| Unreadable(error.to_string())) {
        Some(unreadable) => CertificateError::Other(OtherError(Arc::new(unreadable))),
        None => CertificateError::UnknownIssuer,
    };
    let certs_d = environment.certs_d;
    let mut trusted = native.certs;
    let mut identity = None;
    for dir in host
        .iter()
        .flat_map(|host| certs_d.iter().map(move |dir| dir.join(host)))
    {
        for path in files(&dir)? {
            match path.extension().and_then(|end| end.to_str()) {
                Some("crt") => trusted.extend(certificates(&path)?),
                Some("cert") if identity.is_none() => {
                    let key = path.with_extension("key");
                    let key = PrivateKeyDer::from_pem_file(&key).map_err(unusable(&key))?;
                    identity = Some((certificates(&path)?, key, path));
                }
                _ => {}
            }
        }
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier::new(
        trusted,
        without_trusted,
        Arc::clone(&provider),
    ));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key, path)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(unusable(&path)),
    }
}

/// Returns the files of a directory by name; there are none where there is no directory.
fn files(dir: &Path) -> Result<Vec<PathBuf>, SetupError> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let read = || fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect();
    let files: std::io::Result<Vec<_>> = read();
    let mut files = files.map_err(unusable(dir))?;
    files.sort();
    Ok(files)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(unusable(path))?;
    let certificates: Result<Vec<_>, _> = certificates.collect();
    certificates.map_err(unusable(path))
}

fn unusable<E: fmt::Display>(path: &Path) -> impl Fn(E) -> SetupError + '_ {
    move |reason| SetupError::Certificates {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// Verifies certificates of servers.
struct Verifier {
    /// The fault of every certificate where none is trusted.
    chains: Result<Arc<WebPkiServerVerifier>, CertificateError>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(
        trusted: Vec<CertificateDer<'static>>,
        without_trusted: CertificateError,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        // A machine's own list may have certificates that webpki cannot use.
        roots.add_parsable_certificates(trusted.iter().cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        Self {
            chains: chains.build().map_err(|_| without_trusted),
            trusted,
            provider,
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Verifier of {} certificates", self.trusted.len())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chains = self.chains.as_ref().map_err(Clone::clone)?;
        let (name, response) = (server_name, ocsp_response);
        match chains.verify_server_cert(end_entity, intermediates, name, response, now) {
            // webpki checks the times of a certificate before it finds one of these faults.
            Err(Error::InvalidCertificate(
                CertificateError::Other(_)
                | CertificateError::UnknownIssuer
                | CertificateError::BadSignature,
            )) if self.trusted.iter().any(|trusted| trusted == end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
