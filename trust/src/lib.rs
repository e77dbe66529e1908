//! Verifies the certificate of a server: by a chain to trusted certificates, which webpki checks, or because the certificate itself is
//! one of them, which Go accepts. webpki refuses the latter where the certificate may sign others (`CaUsedAsEndEntity`), as the ones of
//! `openssl req -x509` do.

use std::{fmt, sync::Arc, time::Duration};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use x509_cert::{
    Certificate,
    der::{Decode as _, asn1::ObjectIdentifier},
    ext::pkix::ExtendedKeyUsage,
};

/// The extended key usages of a server's certificate.
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const ANY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");

/// Verifies certificates of servers.
pub struct Verifier {
    /// The error of every certificate where none is trusted.
    chains: Result<Arc<WebPkiServerVerifier>, CertificateError>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Creates a verifier that trusts these certificates and those that they have signed. A certificate that webpki cannot use is an
    /// error, and so is none.
    pub fn new(
        trusted: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            let added = roots.add(certificate.clone());
            added.map_err(|error| error.to_string())?;
        }
        let chains = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        Ok(Self {
            chains: Ok(chains.build().map_err(|error| error.to_string())?),
            trusted,
            provider,
        })
    }

    /// Creates a verifier from a list that may have certificates which webpki cannot use, as a machine's own may. Where none is left, all
    /// servers are refused with `without_trusted`.
    pub fn from_usable(
        trusted: Vec<CertificateDer<'static>>,
        without_trusted: CertificateError,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        Self {
            chains: chains.build().map_err(|_| without_trusted),
            trusted,
            provider,
        }
    }

    /// Whether this very certificate is trusted. Fails when it is, but not valid for a server of this name now.
    fn verify_listed(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, Error> {
        if !self.trusted.iter().any(|trusted| trusted == certificate) {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let parsed = Certificate::from_der(certificate);
        let parsed = parsed.map_err(|_| CertificateError::BadEncoding)?;
        let certificate = parsed.tbs_certificate();
        let (validity, now) = (certificate.validity(), now.as_secs());
        let at = |time: &x509_cert::time::Time| Duration::as_secs(&time.to_unix_duration());
        if now < at(&validity.not_before) {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > at(&validity.not_after) {
            return Err(CertificateError::Expired.into());
        }
        let usages = certificate.get_extension::<ExtendedKeyUsage>();
        let usages = usages.map_err(|_| CertificateError::BadEncoding)?;
        let serves = |usages: &ExtendedKeyUsage| {
            let mut usages = usages.0.iter();
            usages.any(|usage| [SERVER_AUTH, ANY_USAGE].contains(usage))
        };
        if usages.is_some_and(|(_, usages)| !serves(&usages)) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        Ok(true)
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
        let verified =
            chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // `CaUsedAsEndEntity` is one of the errors that rustls has no variant for. The signature is a bad one where another trusted
            // certificate has the same name and another key.
            Err(Error::InvalidCertificate(
                error @ (CertificateError::Other(_)
                | CertificateError::UnknownIssuer
                | CertificateError::BadSignature),
            )) => {
                if self.verify_listed(end_entity, server_name, now)? {
                    Ok(ServerCertVerified::assertion())
                } else {
                    Err(Error::InvalidCertificate(error))
                }
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rustls::{
        ClientConfig, ClientConnection, ServerConfig, ServerConnection,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    };

    use super::*;
    use testkit::authority::Authority;

    fn verifier(authority: &[&Authority]) -> Verifier {
        let certificates = authority.iter().map(|one| one.self_signed_server().into());
        Verifier::new(certificates.collect(), ring::default_provider().into()).unwrap()
    }

    fn later(hours: u64) -> UnixTime {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        UnixTime::since_unix_epoch(now + Duration::from_hours(hours))
    }

    /// Returns the error for a certificate, or `None` where it is trusted.
    fn verify(verifier: &Verifier, der: Vec<u8>, name: &str, now: UnixTime) -> Option<String> {
        let name = ServerName::try_from(name).unwrap();
        let outcome = verifier.verify_server_cert(&der.into(), &[], &name, &[], now);
        outcome.err().map(|error| error.to_string())
    }

    #[test]
    fn a_server_certificate_in_the_authority_file_is_trusted() {
        let own = Authority::generate();
        let der = own.self_signed_server();
        assert_eq!(verify(&verifier(&[&own]), der, "127.0.0.1", later(0)), None);
    }

    #[test]
    fn a_chain_to_the_authority_file_is_trusted() {
        let own = Authority::generate();
        let verifier = verifier(&[&own]);
        let server = own.server().0;
        assert_eq!(verify(&verifier, server, "127.0.0.1", later(0)), None);
        let foreign = Authority::generate().server().0;
        assert!(verify(&verifier, foreign, "127.0.0.1", later(0)).is_some());
    }

    #[test]
    fn a_listed_certificate_is_trusted_beside_an_authority_with_the_name_of_its_issuer() {
        let (own, other) = (Authority::generate(), Authority::generate());
        let der = own.server().0;
        let listed = [other.self_signed_server(), der.clone()];
        let listed = listed.into_iter().map(CertificateDer::from).collect();
        let verifier = Verifier::new(listed, ring::default_provider().into()).unwrap();
        assert_eq!(verify(&verifier, der, "127.0.0.1", later(0)), None);
    }

    #[test]
    fn a_list_without_a_usable_certificate_refuses_every_server() {
        let own = Authority::generate();
        let provider = ring::default_provider().into();
        let broken = vec![CertificateDer::from(vec![0_u8; 4])];
        let verifier = Verifier::from_usable(broken, CertificateError::Revoked, provider);
        let error = verify(&verifier, own.server().0, "127.0.0.1", later(0)).unwrap();
        assert!(error.contains("Revoked"), "{error}");
    }

    #[test]
    fn another_self_signed_certificate_is_refused() {
        let (own, other) = (Authority::generate(), Authority::generate());
        let der = other.self_signed_server();
        let error = verify(&verifier(&[&own]), der, "127.0.0.1", later(0)).unwrap();
        assert!(error.contains("CaUsedAsEndEntity"), "{error}");
    }

    #[test]
    fn a_listed_certificate_needs_the_right_name_and_time() {
        let own = Authority::generate();
        let verifier = verifier(&[&own]);
        for (name, now, expected) in [
            ("127.0.0.2", later(0), "not valid for name"),
            ("server", later(0), "not valid for name"),
            ("127.0.0.1", later(2), "expired"),
            (
                "127.0.0.1",
                UnixTime::since_unix_epoch(Duration::ZERO),
                "not valid yet",
            ),
        ] {
            let error = verify(&verifier, own.self_signed_server(), name, now).unwrap();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// Runs the client's side of a handshake with a server that has this certificate and key.
    fn handshake(authority: &Authority, key: &Authority) -> Result<(), Error> {
        let provider = Arc::new(ring::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier(&[authority])))
            .with_no_client_auth();
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.pkcs8()));
        let key = provider.key_provider.load_private_key(der)?;
        let chain = vec![authority.self_signed_server().into()];
        let certified = rustls::sign::CertifiedKey::new(chain, key);
        let resolver = rustls::sign::SingleCertAndKey::from(certified);
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(server))?;
        while client.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn a_server_needs_the_key_of_a_trusted_certificate() {
        let own = Authority::generate();
        handshake(&own, &own).unwrap();
        let error = handshake(&own, &Authority::generate()).unwrap_err();
        assert!(error.to_string().contains("BadSignature"), "{error}");
    }
}
