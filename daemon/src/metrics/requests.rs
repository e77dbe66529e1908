//! Counts every request of the daemon's client to the API server, watches included.

use std::{sync::Arc, time::Instant};

use hyper::Method;

use super::Metrics;

/// Resources with a label of their own; all others are `other`.
const RESOURCES: [&str; 14] = [
    "addressblocks",
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

/// The codes of requests without an answer.
const CONNECTION_FAILED: &str = "error";
const CANCELED: &str = "canceled";
/// The code of every success: the daemon does not distinguish kinds of success.
const OK: &str = "200";

/// A request to the API server that has no answer yet. When this is dropped, the request counts as canceled.
pub(crate) struct Pending {
    metrics: Arc<Metrics>,
    verb: &'static str,
    resource: &'static str,
    since: Instant,
    is_answered: bool,
}

impl Pending {
    pub(crate) fn new(metrics: Arc<Metrics>, method: &Method, path: &str) -> Self {
        let (verb, resource) = verb_and_resource(method, path);
        Self {
            metrics,
            verb,
            resource,
            since: Instant::now(),
            is_answered: false,
        }
    }

    /// Counts the request by its outcome: an error carries the response's status code, or `None` when the connection failed.
    pub(crate) fn ended(mut self, outcome: Result<(), Option<u16>>) {
        self.is_answered = true;
        match outcome {
            Ok(()) => self.count(OK),
            Err(Some(code)) => self.count(&code.to_string()),
            Err(None) => self.count(CONNECTION_FAILED),
        }
    }

    fn count(&self, code: &str) {
        self.metrics
            .api_request(self.verb, self.resource, code, self.since.elapsed());
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_answered {
            self.count(CANCELED);
        }
    }
}

/// Returns the verb of a request as in roles, and the resource with its subresource.
fn verb_and_resource(method: &Method, path: &str) -> (&'static str, &'static str) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut path = path.split('/').filter(|part| !part.is_empty());
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
    let matches = |known: &&str| match subresource {
        Some(subresource) => known.split_once('/') == Some((resource, subresource)),
        None => **known == *resource,
    };
    let resource = RESOURCES.into_iter().find(matches);
    let pairs = || query.split('&');
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
    fn verbs_and_resources_are_named_as_in_roles() {
        const NADS: &str = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
        let check = |method: Method, path: &str, expected: (&str, &str)| {
            assert_eq!(verb_and_resource(&method, path), expected, "{path}");
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

    #[test]
    fn requests_are_counted_by_outcome() {
        let metrics = Arc::new(Metrics::default());
        let pending = |path: &str| Pending::new(Arc::clone(&metrics), &Method::GET, path);
        pending("/api/v1/pods").ended(Ok(()));
        pending("/api/v1/nodes").ended(Err(Some(503)));
        pending("/api/v1/leases").ended(Err(None));
        drop(pending("/api/v1/events"));
        let text = metrics.text();
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
