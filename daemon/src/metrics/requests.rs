//! Requests to the API server, counted as they leave: every request of the daemon's client, watches included.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{Method, Request};
use kube::client::Body;

use super::Metrics;

/// Resources that are told apart; all others are `other`.
const RESOURCES: [&str; 13] = [
    "certificatesigningrequests",
    "daemonsets",
    "events",
    "leases",
    "namespaces",
    "network-attachment-definitions",
    "nodes",
    "pods",
    "pods/status",
    "resourceclaims",
    "resourceslices",
    "selfsubjectaccessreviews",
    "tokenreviews",
];

/// How a request ended that got no answer.
const CONNECTION_FAILED: &str = "error";
const GIVEN_UP: &str = "canceled";

impl Metrics {
    /// The same client with its requests counted.
    pub fn observed(self: &Arc<Self>, client: kube::Client) -> kube::Client {
        let metrics = Arc::clone(self);
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, metrics) = (client.clone(), Arc::clone(&metrics));
            async move {
                let (verb, resource) = meaning(request.method(), request.uri());
                let mut pending = Pending::new(&metrics, verb, resource);
                let answer = client.send(request).await;
                match &answer {
                    Ok(response) => pending.answered(response.status().as_str()),
                    Err(_) => pending.answered(CONNECTION_FAILED),
                }
                answer
            }
        });
        kube::Client::new(service, namespace)
    }
}

/// A request without an answer. Dropped like that, it was given up.
struct Pending<'a> {
    metrics: &'a Metrics,
    verb: &'static str,
    resource: &'static str,
    since: Instant,
    is_answered: bool,
}

impl<'a> Pending<'a> {
    fn new(metrics: &'a Metrics, verb: &'static str, resource: &'static str) -> Self {
        Self {
            metrics,
            verb,
            resource,
            since: Instant::now(),
            is_answered: false,
        }
    }

    fn answered(&mut self, code: &str) {
        self.is_answered = true;
        self.count(code, self.since.elapsed());
    }

    fn count(&self, code: &str, took: Duration) {
        self.metrics
            .api_request(self.verb, self.resource, code, took);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.count(GIVEN_UP, self.since.elapsed());
        }
    }
}

/// What a request does to what: the verb as in roles, and the resource with its subresource.
fn meaning(method: &Method, uri: &hyper::Uri) -> (&'static str, &'static str) {
    let mut path = uri.path().split('/').filter(|part| !part.is_empty());
    // /api/v1/..., /apis/GROUP/VERSION/...
    let skipped = match path.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => usize::MAX,
    };
    let parts: Vec<_> = path.skip(skipped).take(5).collect();
    let (resource, name, subresource) = match *parts.as_slice() {
        ["namespaces", _, resource, ref rest @ ..] | [resource, ref rest @ ..] => {
            (resource, rest.first(), rest.get(1))
        }
        [] => ("", None, None),
    };
    let is_meant = |known: &&str| match subresource {
        Some(subresource) => known.split_once('/') == Some((resource, subresource)),
        None => **known == *resource,
    };
    let resource = RESOURCES.into_iter().find(is_meant);
    let pairs = || uri.query().unwrap_or_default().split('&');
    let verb = match *method {
        Method::GET if pairs().any(|pair| pair == "watch=true" || pair == "watch=1") => "watch",
        Method::GET if name.is_none() => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    };
    (verb, resource.unwrap_or("other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_and_resources_are_those_of_roles() {
        const NADS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
        let check = |method: Method, path: &str, expected: (&str, &str)| {
            assert_eq!(meaning(&method, &path.parse().unwrap()), expected, "{path}");
        };
        check(Method::GET, "/api/v1/pods?limit=500", ("list", "pods"));
        check(Method::GET, "/api/v1/pods?&watch=true", ("watch", "pods"));
        check(Method::GET, "/api/v1/namespaces/a/pods/b", ("get", "pods"));
        check(
            Method::PATCH,
            "/api/v1/namespaces/a/pods/b/status",
            ("patch", "pods/status"),
        );
        check(
            Method::POST,
            "/api/v1/namespaces/a/events",
            ("create", "events"),
        );
        check(
            Method::GET,
            NADS,
            ("list", "network-attachment-definitions"),
        );
        check(Method::GET, "/api/v1/namespaces/a", ("get", "namespaces"));
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods/b/log",
            ("get", "other"),
        );
        check(Method::GET, "/version", ("list", "other"));
        check(
            Method::GET,
            "/apis/x.y/v1/secrets-of-mine/z",
            ("get", "other"),
        );
        check(Method::OPTIONS, "/", ("other", "other"));
    }

    #[tokio::test]
    async fn requests_are_counted_with_their_end() {
        let metrics = Arc::new(Metrics::default());
        let service = tower::service_fn(|request: Request<Body>| async move {
            let code = match request.uri().path() {
                "/api/v1/pods" => 200,
                "/api/v1/nodes" => 503,
                "/api/v1/events" => std::future::pending().await,
                _ => return Err(std::io::Error::other("no way there")),
            };
            let answer = hyper::Response::builder().status(code);
            Ok(answer.body(Body::empty()).unwrap())
        });
        let client = metrics.observed(kube::Client::new(service, "default"));
        for path in ["/api/v1/pods", "/api/v1/nodes", "/api/v1/leases"] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            drop(client.send(request).await);
        }
        let request = Request::get("/api/v1/events").body(Body::empty()).unwrap();
        {
            let mut asked = std::pin::pin!(client.send(request));
            for _ in 0..100 {
                assert!(futures::poll!(&mut asked).is_pending());
                tokio::task::yield_now().await;
            }
        }
        // The client's own worker drops the request.
        let text = loop {
            let text = metrics.text();
            if text.contains("canceled") {
                break text;
            }
            tokio::task::yield_now().await;
        };
        for line in [
            "multus_api_requests_total{verb=\"list\",resource=\"pods\",code=\"200\"} 1\n",
            "multus_api_requests_total{verb=\"list\",resource=\"nodes\",code=\"503\"} 1\n",
            "multus_api_requests_total{verb=\"list\",resource=\"leases\",code=\"error\"} 1\n",
            "multus_api_requests_total{verb=\"list\",resource=\"events\",code=\"canceled\"} 1\n",
            "multus_api_request_duration_seconds_count{verb=\"list\",resource=\"pods\"} 1\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
