//! The certificates that are trusted: those of the machine or of `SSL_CERT_FILE`, and those of a host in `certs.d`.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, OtherError,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use trust::Verifier;

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
    let verifier = Arc::new(Verifier::from_usable(
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
