//! The daemons' requests in the API server's audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
    path::PathBuf,
};

use anyhow::Context as _;
use serde_json::{Value, json};

/// The log, and the part of it that is read already.
pub(super) struct Audit {
    file: PathBuf,
    offset: u64,
    /// The audit IDs of the counted requests.
    known: BTreeSet<String>,
}

/// Counters of requests.
#[derive(Debug, Default, Clone)]
pub(super) struct Requests {
    /// Number by kind: verb, resource, and parameters of lists and watches.
    pub(super) kinds: BTreeMap<String, usize>,
    /// Number per second.
    seconds: BTreeMap<String, usize>,
    /// Number of failed requests by status code.
    pub(super) refused: BTreeMap<u64, usize>,
    /// Field selectors of watches of pods: one per node.
    pub(super) pod_watches: BTreeSet<String>,
    /// Number of started watches of network definitions.
    pub(super) definition_watches: usize,
    /// Number of changes of Nodes. One that the server has no time for, which is sent again, counts once.
    pub(super) node_changes: usize,
}

impl Audit {
    pub(super) fn new(file: PathBuf) -> Self {
        Self {
            file,
            offset: 0,
            known: BTreeSet::new(),
        }
    }

    /// Counts the requests that were logged since the last call.
    pub(super) fn read(&mut self, requests: &mut Requests) -> anyhow::Result<()> {
        let mut file = File::open(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut lines = BufReader::new(file);
        let mut line = String::new();
        loop {
            line.clear();
            let count = lines.read_line(&mut line)?;
            if count == 0 || !line.ends_with('\n') {
                return Ok(());
            }
            self.offset += u64::try_from(count)?;
            // A killed API server leaves an incomplete line.
            let Ok(event) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            let id = event["auditID"].as_str().unwrap_or_default();
            if self.known.insert(id.to_owned()) {
                requests.add(&event);
            }
        }
    }
}

impl Requests {
    fn add(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (uri, verb) = (text(&event["requestURI"]), text(&event["verb"]));
        let object = &event["objectRef"];
        let mut resource = text(&object["resource"]);
        if let Some(part) = object["subresource"].as_str() {
            resource = format!("{resource}/{part}");
        }
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        let parameters: BTreeMap<_, _> = query
            .split('&')
            .filter_map(|word| word.split_once('='))
            .collect();
        let mut kind = format!("{verb} {resource}");
        for name in ["limit", "resourceVersion", "sendInitialEvents"] {
            let value = match parameters.get(name).copied() {
                None => continue,
                Some("0") => "0",
                Some(_) if name == "resourceVersion" => "N",
                Some(value) => value,
            };
            kind.extend([" ", name, "=", value]);
        }
        *self.kinds.entry(kind).or_default() += 1;
        let time = text(&event["requestReceivedTimestamp"]);
        *self
            .seconds
            .entry(time.chars().take(19).collect())
            .or_default() += 1;
        let code = event["responseStatus"]["code"].as_u64().unwrap_or(200);
        self.node_changes += usize::from(verb == "patch" && resource == "nodes" && code != 429);
        if code >= 300 {
            *self.refused.entry(code).or_default() += 1;
            return;
        }
        if verb == "watch" && resource == "pods" {
            let selector = parameters.get("fieldSelector").copied().unwrap_or_default();
            self.pod_watches.insert(selector.to_owned());
        }
        if verb == "watch" && resource == "network-attachment-definitions" {
            self.definition_watches += 1;
        }
    }

    pub(super) fn total(&self) -> usize {
        self.kinds.values().sum()
    }

    /// Returns the most requests in one second.
    pub(super) fn peak(&self) -> usize {
        self.seconds.values().max().copied().unwrap_or_default()
    }

    /// Counts paginated lists, which older API servers read from etcd.
    pub(super) fn paginated_lists(&self) -> usize {
        let limited = |kind: &&String| kind.starts_with("list ") && kind.contains(" limit=");
        let kinds = self.kinds.keys().filter(limited);
        kinds.map(|kind| self.kinds[kind]).sum()
    }

    pub(super) fn json(&self) -> Value {
        let refused = self.refused.iter();
        let refused: BTreeMap<_, _> = refused.map(|(code, n)| (code.to_string(), n)).collect();
        json!({"total": self.total(), "peakPerSecond": self.peak(), "kinds": self.kinds, "refused": refused})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, event: Value, expected: &str) {
        let mut event = event;
        event["requestURI"] = json!(uri);
        let mut requests = Requests::default();
        requests.add(&event);
        let kinds: Vec<_> = requests.kinds.keys().collect();
        assert_eq!(kinds, [expected]);
    }

    #[test]
    fn kinds_have_verb_resource_and_parameters() {
        let pods = json!({"verb": "list", "objectRef": {"resource": "pods"}});
        check("/api/v1/pods", pods.clone(), "list pods");
        check(
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500",
            pods.clone(),
            "list pods limit=500",
        );
        check(
            "/api/v1/pods?resourceVersion=0",
            pods,
            "list pods resourceVersion=0",
        );
        let watch = json!({"verb": "watch", "objectRef": {"resource": "pods"}});
        check(
            "/api/v1/pods?watch=true&resourceVersion=4711",
            watch,
            "watch pods resourceVersion=N",
        );
        let patch =
            json!({"verb": "patch", "objectRef": {"resource": "pods", "subresource": "status"}});
        check(
            "/api/v1/namespaces/a/pods/b/status",
            patch,
            "patch pods/status",
        );
    }

    #[test]
    fn refused_watches_do_not_count_as_watches() {
        let mut requests = Requests::default();
        let mut event = json!({"verb": "watch", "objectRef": {"resource": "pods"},
            "requestURI": "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1", "responseStatus": {"code": 429}});
        requests.add(&event);
        assert!(requests.pod_watches.is_empty());
        event["responseStatus"]["code"] = json!(200);
        requests.add(&event);
        assert_eq!((requests.pod_watches.len(), requests.total()), (1, 2));
        assert_eq!(requests.refused[&429], 1);
    }

    #[test]
    fn change_of_a_node_that_is_sent_again_counts_once() {
        let mut requests = Requests::default();
        for code in [429, 200, 409] {
            requests.add(&json!({"verb": "patch", "objectRef": {"resource": "nodes"},
                "requestURI": "/api/v1/nodes/n1", "responseStatus": {"code": code}}));
        }
        assert_eq!((requests.node_changes, requests.total()), (2, 3));
    }
}
