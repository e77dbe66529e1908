//! Encrypted connections to registries: which certificates are trusted, and what the errors say.

use std::{fs, path::Path, process::Command};

use testkit::{
    authority::{Authority, to_pem},
    http_server::{Server, tls},
};

use crate::{
    connection::{accept, push, refused},
    program::{FAILED, output, succeeds},
};

/// Starts a registry with this certificate; it wants one of the authority `clients` where there is one.
fn registry(identity: (Vec<u8>, Vec<u8>), clients: Option<&Authority>) -> Server {
    let config = tls(identity, clients);
    Server::start_with(Some(config), |_, request| accept(request))
}

/// Returns a command that trusts the certificates of this file alone.
fn trusting(mut command: Command, file: &Path) -> Command {
    command
        .env_remove("SSL_CERT_DIR")
        .env("SSL_CERT_FILE", file);
    command
}

fn write_pem(path: &Path, label: &str, der: &[u8]) {
    fs::create_dir_all(path.parent().expect("it has one")).expect("a directory of the test");
    fs::write(path, to_pem(label, der)).expect("a directory of the test");
}

#[test]
fn certificate_is_trusted_by_its_authority_or_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (Authority::generate(), Authority::generate());
    let file = |name: &str| dir.path().join(name);
    write_pem(&file("ca"), "CERTIFICATE", &own.certificate());
    write_pem(&file("other"), "CERTIFICATE", &other.certificate());
    write_pem(&file("itself"), "CERTIFICATE", &own.self_signed_server());
    let (signed, key) = own.server();
    write_pem(&file("signed"), "CERTIFICATE", &signed);
    for (identity, trusted) in [
        ((signed, key), &["ca", "signed"][..]),
        ((own.self_signed_server(), own.pkcs8()), &["itself"]),
    ] {
        let server = registry(identity, None);
        let at = server.host();
        let push_with = |name: &str| trusting(push(dir.path(), at, &[]), &file(name));
        for name in trusted {
            succeeds(push_with(name));
        }
        let requests = server.targets().len();
        let expected = format!("{at}'s certificate is not trusted: name its CA in SSL_CERT_FILE");
        refused(push_with("other"), &[&expected]);
        let mut by_default = push(dir.path(), at, &[]);
        by_default
            .env_remove("SSL_CERT_DIR")
            .env_remove("SSL_CERT_FILE");
        refused(by_default, &[&expected]);
        // A trusted certificate is so for its own names alone.
        let local = at.replace("127.0.0.1", "localhost");
        let elsewhere = trusting(push(dir.path(), &local, &[]), &file(trusted[0]));
        let expected = format!("{local}'s certificate is not valid");
        refused(elsewhere, &[&expected]);
        assert_eq!(server.targets().len(), requests);
    }
}

#[test]
fn unreadable_list_of_certificates_is_an_error_for_tls_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = registry(Authority::generate().server(), None);
    let push_with =
        |at: &str, args: &[&str]| trusting(push(dir.path(), at, args), &dir.path().join("absent"));
    refused(
        push_with(server.host(), &[]),
        &["cannot read the certificates of SSL_CERT_FILE", "absent"],
    );
    let plain = Server::start(|_, request| accept(request));
    succeeds(push_with(plain.host(), &["--plain-http"]));
}

#[test]
fn directory_of_a_host_has_its_authority_and_the_clients_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (own, clients) = (Authority::generate(), Authority::generate());
    let server = registry(own.server(), Some(&clients));
    let at = server.host();
    let file = |name: &str| dir.path().join("certs.d").join(at).join(name);
    let other = dir.path().join("other");
    write_pem(&other, "CERTIFICATE", &clients.certificate());
    let push_with = || {
        let certs_d = dir.path().join("certs.d");
        let args = ["--certs-d", certs_d.to_str().expect("a plain path")];
        trusting(push(dir.path(), at, &args), &other)
    };
    refused(push_with(), &["certificate is not trusted"]);
    write_pem(&file("ca.crt"), "CERTIFICATE", &own.certificate());
    let (status, _, stderr) = output(push_with());
    assert!(
        status == FAILED && !stderr.contains("not trusted"),
        "{stderr}"
    );
    assert_eq!(server.targets(), [""; 0]);
    let (certificate, key) = clients.server();
    write_pem(&file("client.cert"), "CERTIFICATE", &certificate);
    refused(
        push_with(),
        &["cannot use the certificates in", "client.key"],
    );
    write_pem(&file("client.key"), "PRIVATE KEY", &key);
    succeeds(push_with());
    // The directory is for this host alone.
    let elsewhere = registry(own.server(), None);
    let certs_d = dir.path().join("certs.d");
    let args = ["--certs-d", certs_d.to_str().unwrap()];
    let command = push(dir.path(), elsewhere.host(), &args);
    refused(trusting(command, &other), &["certificate is not trusted"]);
    fs::write(file("ca.crt"), "-----BEGIN CERTIFICATE-----\n!\n").unwrap();
    refused(push_with(), &["cannot use the certificates in", "ca.crt"]);
}
