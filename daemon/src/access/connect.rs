//! Opens a connection to the API server: TCP that detects a dead peer, TLS, and the HTTP version that both sides speak.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    body::Bytes,
    client::conn::{http1, http2},
    http::Uri,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::net::sockopt;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufWriter},
    net::{TcpStream, lookup_host},
    task::AbortHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::{AccessError, Server};

/// The time limit of connecting, shared by all addresses of the server. A reachable API server answers in milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A watch is silent for minutes. A peer that acknowledges neither data nor probes counts as dead after about this time. A request that was
/// given up on leaves this machine no later, which the service of addresses counts on.
const PEER_TIMEOUT: Duration = Duration::from_secs(25);
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 2;
/// HTTP/2 pings also reach the program at the other end; a proxy in between cannot answer in its place.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The amount that the API server may send ahead, per request and per connection. It is small, since lists are decoded while they arrive.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
/// The largest buffer of an HTTP/1 connection.
const HTTP1_BUFFER: usize = 64 << 10;
/// The buffer that joins small HTTP/2 frames before they are encrypted: the size of the largest TLS record.
const HTTP2_BUFFER: usize = 16 << 10;

/// The body of a request.
pub(super) type Body = Full<Bytes>;

/// The sending side of a connection. The connection's task ends when the last sender and the last response are dropped.
pub(super) enum Sender {
    /// Accepts any number of concurrent requests.
    Http2(http2::SendRequest<Body>),
    /// Accepts one request after the other. The handle ends the connection.
    Http1(http1::SendRequest<Body>, AbortHandle),
}

/// Opens connections to one API server.
pub(super) struct Connector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// The reason why a connection cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot resolve {0}")]
    Name(String, #[source] io::Error),
    #[error("cannot connect to {0}")]
    Tcp(String, #[source] io::Error),
    #[error("the TLS handshake with {0} failed")]
    Tls(String, #[source] io::Error),
    #[error("the HTTP handshake with {0} failed")]
    Http(String, #[source] hyper::Error),
}

impl Connector {
    pub(super) fn new(server: &Server, tls: ClientConfig) -> Result<Self, AccessError> {
        let is_plain = server.url.scheme_str() == Some("http");
        let host = host(&server.url);
        let tls = if is_plain {
            None
        } else {
            let name = server.name.clone().unwrap_or_else(|| host.clone());
            let name = ServerName::try_from(name)
                .map_err(|error| AccessError::Tls("the API server's name", error.to_string()))?;
            let mut tls = tls;
            tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Some((TlsConnector::from(Arc::new(tls)), name))
        };
        let default = if is_plain { 80 } else { 443 };
        Ok(Self {
            host,
            port: server.url.port_u16().unwrap_or(default),
            tls,
        })
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<Sender, ConnectError> {
        let stream = self.tcp().await?;
        let Some((connector, name)) = &self.tls else {
            return self.http1(stream).await;
        };
        let stream = connector.connect(name.clone(), stream).await;
        let stream = stream.map_err(|error| ConnectError::Tls(self.address(), error))?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.http2(stream).await
        } else {
            self.http1(stream).await
        }
    }

    async fn tcp(&self) -> Result<TcpStream, ConnectError> {
        let addresses: Vec<SocketAddr> = match self.host.parse::<IpAddr>() {
            Ok(address) => vec![(address, self.port).into()],
            Err(_) => lookup_host((self.host.as_str(), self.port))
                .await
                .map_err(|error| ConnectError::Name(self.host.clone(), error))?
                .collect(),
        };
        let each = CONNECT_TIMEOUT / u32::try_from(addresses.len().max(1)).unwrap_or(1);
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            let connected = timeout(each, TcpStream::connect(address)).await;
            let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            match connected.and_then(|stream| detect_dead_peer(&stream).map(|()| stream)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(ConnectError::Tcp(self.address(), last))
    }

    async fn http1(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Sender, ConnectError> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HTTP1_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ConnectError::Http(self.address(), error))?;
        let task = tokio::spawn(drive(connection));
        Ok(Sender::Http1(sender, task.abort_handle()))
    }

    async fn http2(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Sender, ConnectError> {
        // Headers and body are separate frames. With a buffer, a request is one TLS record and one system call.
        let stream = BufWriter::with_capacity(HTTP2_BUFFER, stream);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ConnectError::Http(self.address(), error))?;
        tokio::spawn(drive(connection));
        Ok(Sender::Http2(sender))
    }

    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Returns the host of a URL, without the brackets of IPv6 addresses.
fn host(url: &Uri) -> String {
    let host = url.host().unwrap_or_default();
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).to_owned()
}

/// Configures the socket so that the kernel detects a peer that vanished without closing the connection.
fn detect_dead_peer(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    let timeout = u32::try_from(PEER_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, timeout)?;
    Ok(())
}

/// Runs a connection to its end. Its errors also end its requests, which report them.
async fn drive(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        debug!(%error, "a connection to the API server failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_may_be_names_ipv4_or_ipv6() {
        let host = |url: &str| host(&url.parse().unwrap());
        assert_eq!(host("https://10.43.0.1:443/"), "10.43.0.1");
        assert_eq!(host("https://[fd00::1]:443/"), "fd00::1");
        assert_eq!(host("https://server/"), "server");
    }

    #[tokio::test]
    async fn connections_detect_a_dead_peer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        detect_dead_peer(&stream).unwrap();
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 25_000);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBE_AFTER);
    }
}
