//! What Prometheus reads when `metricsPort` is set: how requests of the socket ended, and how long verbs took.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, body::Bytes, server::conn::http1, service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use node::dirs::CniDirs;
use tokio::net::TcpListener;
use tracing::warn;

use crate::causes::causes;

/// Where it is read.
pub const PATH: &str = "/metrics";
/// A client that sends nothing is not waited for.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Pause before an address that is taken is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By path, status and method in lower case.
    requests: BTreeMap<(String, u16, String), u64>,
    /// By verb and whether it was done: how many, and how long together.
    verbs: BTreeMap<(String, bool), (u64, Duration)>,
    /// Where the runtime looks, as labels.
    place: Option<String>,
}

impl Metrics {
    /// A request of the socket was answered.
    pub fn request(&self, handler: &str, status: StatusCode, method: &Method) {
        let method = method.as_str().to_lowercase();
        let key = (handler.to_owned(), status.as_u16(), method);
        *self.counts().requests.entry(key).or_default() += 1;
    }

    /// A verb has ended.
    pub fn verb(&self, command: &str, done: bool, took: Duration) {
        let mut counts = self.counts();
        let (count, sum) = counts.verbs.entry((command.to_owned(), done)).or_default();
        *count += 1;
        *sum += took;
    }

    /// The runtime looks there now.
    pub fn place(&self, runtime: &str, dirs: &CniDirs) {
        let [bin, conf] = [&dirs.install_dir, &dirs.conf_dir].map(|dir| dir.to_string_lossy());
        let labels = [
            ("bin_dir", &*bin),
            ("conf_dir", &*conf),
            ("runtime", runtime),
            ("source", dirs.source.as_str()),
        ];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        self.counts().place = Some(labels.join(","));
    }

    /// All of it in Prometheus' text format, version 0.0.4.
    pub fn text(&self) -> String {
        let counts = self.counts();
        let mut out = String::from(
            "# HELP multus_server_request_total Counter of HTTP requests\n# TYPE multus_server_request_total counter\n",
        );
        for ((handler, code, method), count) in &counts.requests {
            // Writing into a text cannot fail.
            let _ = writeln!(
                out,
                "multus_server_request_total{{code=\"{code}\",handler=\"{handler}\",method=\"{method}\"}} {count}"
            );
        }
        out.push_str("# HELP multus_cni_duration_seconds Time that CNI verbs took\n# TYPE multus_cni_duration_seconds summary\n");
        for ((command, done), (count, sum)) in &counts.verbs {
            let labels = format!(
                "{{command=\"{command}\",outcome=\"{}\"}}",
                if *done { "done" } else { "failed" }
            );
            let _ = writeln!(
                out,
                "multus_cni_duration_seconds_sum{labels} {}\nmultus_cni_duration_seconds_count{labels} {count}",
                sum.as_secs_f64()
            );
        }
        if let Some(labels) = &counts.place {
            let _ = writeln!(
                out,
                "# HELP multus_node_directories Where the container runtime looks for CNI plugins and configurations\n# TYPE multus_node_directories gauge\nmultus_node_directories{{{labels}}} 1"
            );
        }
        out
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Serves them on every address of the node, as upstream does. A port that is taken is told and tried again.
pub async fn serve(metrics: Arc<Metrics>, port: u16) {
    loop {
        let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
            // A node without IPv6.
            Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
            listener => listener,
        };
        match listener {
            Ok(listener) => accept(&metrics, &listener).await,
            Err(error) => {
                warn!(port, error = %causes(&error), "cannot serve metrics: set metricsPort to a free port");
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Until a connection cannot be accepted.
async fn accept(metrics: &Arc<Metrics>, listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let metrics = Arc::clone(metrics);
        let service = service_fn(move |request: Request<_>| {
            let answer = answer(&metrics, request.method(), request.uri().path());
            async { Ok::<_, Infallible>(answer) }
        });
        let connection = http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME)
            .serve_connection(TokioIo::new(stream), service);
        // Whoever reads them may go whenever he likes.
        tokio::spawn(async { drop(connection.await) });
    }
}

fn answer(metrics: &Metrics, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match (path, method) {
        (PATH, &Method::GET) => (StatusCode::OK, metrics.text()),
        (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use node::dirs::Source;

    use super::*;

    #[test]
    fn counts_are_told_in_order() {
        let metrics = Metrics::default();
        for status in [200, 400, 200] {
            let status = StatusCode::from_u16(status).unwrap();
            metrics.request("/cni", status, &Method::POST);
        }
        metrics.verb("ADD", true, Duration::from_millis(1500));
        metrics.verb("ADD", true, Duration::from_millis(500));
        metrics.verb("ADD", false, Duration::ZERO);
        let text = metrics.text();
        for line in [
            "multus_server_request_total{code=\"200\",handler=\"/cni\",method=\"post\"} 2\n",
            "multus_server_request_total{code=\"400\",handler=\"/cni\",method=\"post\"} 1\n",
            "multus_cni_duration_seconds_sum{command=\"ADD\",outcome=\"done\"} 2\n",
            "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"done\"} 2\n",
            "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"failed\"} 1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("multus_node_directories"), "{text}");
        let dirs = CniDirs {
            bin_dirs: vec!["/b".into()],
            install_dir: "/b".into(),
            conf_dir: "/c\"\\".into(),
            source: Source::File,
        };
        metrics.place("containerd 2.4.2", &dirs);
        let line = r#"multus_node_directories{bin_dir="/b",conf_dir="/c\"\\",runtime="containerd 2.4.2",source="file"} 1"#;
        assert!(metrics.text().contains(line), "{}", metrics.text());
        assert_eq!(answer(&metrics, &Method::GET, "/").status(), 404);
        assert_eq!(answer(&metrics, &Method::POST, PATH).status(), 405);
    }
}
