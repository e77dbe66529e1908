//! An API server with only the parts of Kubernetes that a daemon uses: a fixed set of pods and network definitions. It uses next to no
//! CPU, so that the measurements are of the daemon.
//!
//! It is this program in another role, in the daemon's node. It does no checks of a real API server.

use std::{
    convert::Infallible,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::SystemTime,
};

use anyhow::Context as _;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use super::pods;

/// The argument that makes this program the server.
pub(crate) const NAME: &str = "bench-api-server";
/// Bytes of a list that are sent at once.
const CHUNK: usize = 64 << 10;

/// Serves until it is killed: `bench-api-server PORT PODS NODE DIRECTORY`, with the certificate in that directory. When a client has read
/// a list of pods to its end, the server writes the time to the file `listed` of the directory.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args: Vec<_> = args
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let [port, count, node, directory] = args.as_slice() else {
        anyhow::bail!("{NAME} PORT PODS NODE DIRECTORY");
    };
    let directory = Path::new(directory);
    let server = Arc::new(Server {
        pods: pods::all(count.parse()?, node),
        definitions: pods::definitions(),
        version: AtomicU64::new(1000),
        watches: Mutex::default(),
        listed: directory.join("listed"),
    });
    let certificate = CertificateDer::from_pem_file(directory.join("apiserver.crt"))
        .context("cannot read the server's certificate")?;
    let key = PrivateKeyDer::from_pem_file(directory.join("apiserver.key"))
        .context("cannot read the server's key")?;
    let mut tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let address = format!("127.0.0.1:{port}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (acceptor, server) = (acceptor.clone(), Arc::clone(&server));
            tokio::spawn(async move {
                // A client may close the connection at any time.
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(move |request| {
                    let server = Arc::clone(&server);
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    })
}

struct Server {
    pods: Vec<Value>,
    definitions: Vec<Value>,
    version: AtomicU64,
    /// Watches of pods, each with whether it wants metadata only.
    watches: Mutex<Vec<(bool, UnboundedSender<Part>)>>,
    listed: PathBuf,
}

/// A part of a response.
enum Part {
    Bytes(Bytes),
    /// The end of a list of pods.
    Listed,
}

/// A response body that is sent in parts.
struct Parts {
    parts: UnboundedReceiver<Part>,
    listed: PathBuf,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            return match self.parts.poll_recv(context) {
                Poll::Ready(Some(Part::Bytes(bytes))) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Poll::Ready(Some(Part::Listed)) => {
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                    let now = now.map_or(0, |since| since.as_nanos());
                    // Without the file the measurement fails with a reason.
                    let _ = fs::write(&self.listed, now.to_string());
                    continue;
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

/// The relevant parts of a request.
struct ApiRequest<'a> {
    path: Vec<&'a str>,
    query: &'a str,
    /// Whether the client requests metadata only.
    is_partial: bool,
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Response<Parts> {
        let (head, body) = request.into_parts();
        let accept = head
            .headers
            .get(ACCEPT)
            .and_then(|value| value.to_str().ok());
        let request = ApiRequest {
            path: head.uri.path().trim_matches('/').split('/').collect(),
            query: head.uri.query().unwrap_or_default(),
            is_partial: accept.is_some_and(|accept| accept.contains("as=PartialObjectMetadata")),
        };
        let is_read = head.method == Method::GET;
        match (request.path.as_slice(), is_read) {
            (["api", "v1", "pods"] | ["api", "v1", "namespaces", _, "pods"], true) => {
                self.list(&request, ("v1", "Pod"), &self.pods, true)
            }
            (["api", "v1", "namespaces", _, "pods", name, rest @ ..], _) => {
                drain(body).await;
                self.pod(name, is_read || rest.is_empty(), &request)
            }
            (["apis", "k8s.cni.cncf.io", "v1", rest @ ..], true) => {
                let kind = ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition");
                match rest {
                    ["namespaces", _, "network-attachment-definitions", name] => {
                        let found = self
                            .definitions
                            .iter()
                            .find(|one| one["metadata"]["name"] == *name);
                        found.map_or_else(|| self.absent(), |one| self.one(one))
                    }
                    _ => self.list(&request, kind, &self.definitions, false),
                }
            }
            (["apis", "apps", "v1", "namespaces", _, "daemonsets"], true) => {
                self.list(&request, ("apps/v1", "DaemonSet"), &[], false)
            }
            ([.., "events"], false) => {
                // The response is the client's own event, in the client's format.
                let kind = head
                    .headers
                    .get(CONTENT_TYPE)
                    .and_then(|value| value.to_str().ok());
                let kind = kind.unwrap_or("application/json").to_owned();
                let body = drain(body).await;
                self.respond(StatusCode::CREATED, &kind, [Part::Bytes(body)])
            }
            (["version"], true) => {
                self.one(&json!({"major": "1", "minor": "34", "gitVersion": "v1.34.4"}))
            }
            _ => self.absent(),
        }
    }

    /// Reads a pod, or accepts a write of its status and notifies the watches.
    fn pod(&self, name: &str, is_read: bool, request: &ApiRequest<'_>) -> Response<Parts> {
        let Some(pod) = self.pods.iter().find(|pod| pod["metadata"]["name"] == name) else {
            return self.absent();
        };
        if is_read {
            return self.one(&view(pod, request.is_partial));
        }
        let mut pod = pod.clone();
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        pod["metadata"]["resourceVersion"] = json!(version.to_string());
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|(is_partial, watch)| {
            let event = event("MODIFIED", &view(&pod, *is_partial));
            watch.send(Part::Bytes(event)).is_ok()
        });
        drop(watches);
        self.one(&view(&pod, request.is_partial))
    }

    /// Serves a list, a watch, or a watch with initial events.
    fn list(
        &self,
        request: &ApiRequest<'_>,
        (api_version, kind): (&str, &str),
        objects: &[Value],
        are_pods: bool,
    ) -> Response<Parts> {
        let has = |word: &str| request.query.split('&').any(|part| part == word);
        let version = self.version.load(Ordering::SeqCst).to_string();
        let (to, parts) = unbounded_channel();
        let send = |part| {
            // The client may have closed the connection.
            let _ = to.send(part);
        };
        let end = || {
            if are_pods {
                send(Part::Listed);
            }
        };
        let (list_kind, list_version) = if request.is_partial {
            ("PartialObjectMetadata", "meta.k8s.io/v1")
        } else {
            (kind, api_version)
        };
        if has("watch=true") || has("watch=1") {
            if has("sendInitialEvents=true") {
                for object in objects {
                    send(Part::Bytes(event(
                        "ADDED",
                        &view(object, request.is_partial),
                    )));
                }
                let mark = json!({"kind": list_kind, "apiVersion": list_version, "metadata": {
                    "resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}, "creationTimestamp": null,
                }});
                send(Part::Bytes(event("BOOKMARK", &mark)));
                end();
            }
            // A watch without events must stay open, too.
            let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
            if are_pods {
                watches.push((request.is_partial, to));
            } else {
                std::mem::forget(to);
            }
        } else {
            let items: Vec<_> = objects
                .iter()
                .map(|object| view(object, request.is_partial))
                .collect();
            let list = json!({
                "kind": format!("{list_kind}List"), "apiVersion": list_version,
                "metadata": {"resourceVersion": version}, "items": items,
            });
            let bytes = Bytes::from(list.to_string());
            for start in (0..bytes.len()).step_by(CHUNK) {
                send(Part::Bytes(
                    bytes.slice(start..bytes.len().min(start + CHUNK)),
                ));
            }
            end();
        }
        self.stream(StatusCode::OK, "application/json", parts)
    }

    fn one(&self, object: &Value) -> Response<Parts> {
        let bytes = Bytes::from(object.to_string());
        self.respond(StatusCode::OK, "application/json", [Part::Bytes(bytes)])
    }

    fn absent(&self) -> Response<Parts> {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not here"});
        let bytes = Bytes::from(status.to_string());
        self.respond(
            StatusCode::NOT_FOUND,
            "application/json",
            [Part::Bytes(bytes)],
        )
    }

    fn respond(
        &self,
        status: StatusCode,
        kind: &str,
        parts: impl IntoIterator<Item = Part>,
    ) -> Response<Parts> {
        let (to, from) = unbounded_channel();
        for part in parts {
            let _ = to.send(part);
        }
        self.stream(status, kind, from)
    }

    fn stream(
        &self,
        status: StatusCode,
        kind: &str,
        parts: UnboundedReceiver<Part>,
    ) -> Response<Parts> {
        let mut response = Response::new(Parts {
            parts,
            listed: self.listed.clone(),
        });
        *response.status_mut() = status;
        if let Ok(kind) = kind.parse() {
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        response
    }
}

/// Reads a request body to its end.
async fn drain(body: Incoming) -> Bytes {
    use http_body_util::BodyExt as _;
    body.collect()
        .await
        .map_or_else(|_| Bytes::new(), http_body_util::Collected::to_bytes)
}

/// Returns an object, or its metadata only.
fn view(object: &Value, is_partial: bool) -> Value {
    if is_partial {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
    } else {
        object.clone()
    }
}

/// Returns a line of a watch.
fn event(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_objects_have_kind_and_metadata_only() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
        let partial = view(&pod, true);
        assert_eq!(partial["kind"], "PartialObjectMetadata");
        assert_eq!(partial["metadata"], pod["metadata"]);
        assert!(partial["spec"].is_null());
        assert_eq!(view(&pod, false), pod);
        assert_eq!(
            event("ADDED", &json!({})),
            "{\"type\":\"ADDED\",\"object\":{}}\n"
        );
    }
}
