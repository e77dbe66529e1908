//! A server of the test on a node's loopback, with the certificate of the API server, which offers HTTP/2 and HTTP/1.1 as that one does.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::pki::Pki;
use crate::node::{Node, thread::spawn_server};

/// Listens on the node, and gives each connection to `serve`; the server's thread ends with the test.
pub(crate) fn start<F>(
    node: &Node,
    port: u16,
    pki: &Pki,
    serve: impl Fn(TcpStream, TlsAcceptor) -> F + Send + 'static,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let acceptor = acceptor(pki)?;
    let listen = move || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        io::Result::Ok((runtime, listener))
    };
    // A runtime on this one thread, because sockets belong to the network namespace of the thread that creates them.
    spawn_server(
        node,
        &format!("port {port}"),
        listen,
        move |(runtime, listener)| {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                    return;
                };
                loop {
                    let Ok((stream, _)) = listener.accept().await else {
                        // Usually the process has no free file descriptor; connections that end meanwhile free some.
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    // The client handles a broken connection; the server has nothing to report.
                    tokio::spawn(serve(stream, acceptor.clone()));
                }
            });
        },
    )
}

fn acceptor(pki: &Pki) -> anyhow::Result<TlsAcceptor> {
    let chain = certificates(pki, "apiserver.crt")?;
    let file = pki.file("apiserver.key");
    let key = PrivateKeyDer::from_pem_file(&file)
        .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Reads certificates of the control plane.
pub(super) fn certificates(pki: &Pki, name: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let file = pki.file(name);
    CertificateDer::pem_file_iter(&file)
        .and_then(Iterator::collect)
        .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}
