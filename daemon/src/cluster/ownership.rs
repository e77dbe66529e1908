//! Finds out whether this daemon's `DaemonSet` is being deleted, or leaves this node. If so, everything that the daemon has installed on
//! the node goes too.
//!
//! The `DaemonSet` is not watched: its status changes with every pod that becomes ready, and each change would be sent to each node.
//! The daemon reads it after the start, every few minutes, and at a SIGTERM.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use plan::placement::{Placement, Taint};
use serde::Deserialize;
use tokio::time::sleep;
use tracing::{debug, info};

use super::{
    api_path,
    retry::{random, with_retries},
};
use crate::{
    access::{ApiError, ApiRequest, Client},
    backoff::backoff,
    readiness::Purpose,
};

/// The program of every daemon that serves multus-shim, upstream's too.
const DAEMON: &str = "multus-daemon";
/// The first check is made within this time after the start, at a random moment, so that not all nodes of a rollout ask at once.
const FIRST_CHECK_WITHIN: Duration = Duration::from_secs(2);
/// The time between two checks, up to twice as long.
const PERIOD: Duration = Duration::from_mins(4);
/// The pause after a failed check, doubled with each.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The time limit of a check with all its tries.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of the last check, at SIGTERM, when the runtime waits for the daemon's end.
const LAST_CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// The attempts to read the successor from an API server that does not answer, and the pause between them.
const SUCCESSOR_TRIES: u32 = 5;
const SUCCESSOR_PAUSE: Duration = Duration::from_millis(800);
/// The label of all pods of the `DaemonSet`, in every chart.
const APP: &str = "app";
/// The label that differs between pods of two revisions of a `DaemonSet`.
const REVISION: &str = "controller-revision-hash";

const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;

/// The argument of a daemon that installs plugins and serves no pods.
const PLUGINS: &str = "plugins";

/// The daemon's knowledge of its own `DaemonSet`.
#[derive(Debug, Default)]
pub struct Ownership {
    known: Mutex<Known>,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nothing,
    Present,
    Ending,
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The `DaemonSet` exists; it may be ending.
    Found { is_ending: bool },
    /// The `DaemonSet` does not exist.
    Absent,
    /// The API server refuses the request.
    Refused,
    /// The API server did not answer.
    Failed,
}

/// The other facts that count when the check at SIGTERM was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal {
    /// Whether our own pod is still in the watch.
    has_pod: bool,
    successor: Successor,
}

/// The pods that the `DaemonSet` runs after this daemon, while the `DaemonSet` itself cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    /// Nothing: the API server refuses even our own pod, which every chart's role lets us read.
    Nothing,
    /// Pods without a daemon.
    Thin,
    /// Pods with a daemon.
    Daemon,
    /// No node has a pod of another revision yet.
    NotYet,
    /// The API server did not answer.
    Unknown,
}

/// The daemon's own objects.
#[derive(Clone, Copy)]
pub struct OwnObjects<'a> {
    /// Namespace of `DaemonSet` and pod.
    pub namespace: &'a str,
    /// Name of the `DaemonSet`.
    pub daemon_set: &'a str,
    /// Name of the node.
    pub node: &'a str,
    /// Returns the name of our pod, as long as the watch of this node's pods has it.
    pub pod: &'a (dyn Fn() -> Option<String> + Sync),
}

impl Ownership {
    /// Knows nothing yet; the installation of this purpose ends when the `DaemonSet` gets another.
    pub fn new(purpose: Purpose) -> Self {
        let known = Mutex::default();
        Self { known, purpose }
    }

    /// Whether the `DaemonSet` is deleted, being deleted or leaves the node, so that the next SIGTERM ends the installation.
    pub fn is_ending(&self) -> bool {
        *self.lock() == Known::Ending
    }

    /// Checks periodically, for ever.
    pub async fn follow(&self, client: Client, namespace: &str, name: &str) {
        sleep(FIRST_CHECK_WITHIN.mul_f64(random())).await;
        // An answer from the API server's cache will do: only the check at SIGTERM needs etcd.
        let path = format!(
            "{}&resourceVersion=0",
            api_path::daemon_sets(namespace, name)
        );
        let mut failures = 0;
        loop {
            let checked = self.judge(&read(&client, &path, CHECK_TIMEOUT).await);
            self.learn(checked);
            let pause = if matches!(checked, Check::Refused | Check::Failed) {
                failures += 1;
                backoff(failures, FIRST_PAUSE, PERIOD, random())
            } else {
                failures = 0;
                PERIOD.mul_f64(1.0 + random())
            };
            sleep(pause).await;
        }
    }

    /// Checks once more, at SIGTERM, and returns whether the installation ends. A `DaemonSet` that was deleted may have been created again, as
    /// after `kubectl delete --cascade=orphan`.
    pub async fn check_at_end(&self, client: Client, own: OwnObjects<'_>) -> bool {
        let path = api_path::daemon_sets(own.namespace, own.daemon_set);
        let read = read(&client, &path, LAST_CHECK_TIMEOUT).await;
        let checked = self.judge(&read);
        self.learn(checked);
        match self.purpose {
            Purpose::Multiplexer if checked == (Check::Found { is_ending: false }) => {
                let found = read.ok().flatten().unwrap_or_default();
                if let Some(pods) = found.pods()
                    && Box::pin(has_left(&client, own, &pods.placement)).await
                {
                    self.set(Known::Ending);
                }
            }
            _ if checked != Check::Refused || *self.lock() != Known::Present => {}
            Purpose::Multiplexer => self.check_successor(&client, own).await,
            // It may read no pods. Where the installation does not end after all, the next daemon installs the plugins again.
            Purpose::Plugins => self.set(Known::Ending),
        }
        self.is_ending()
    }

    /// Whether a refused check means the end of the installation. Helm removes our right to read the `DaemonSet` before our pod ends,
    /// both when it uninstalls the release and when it returns to a chart without this right. It is the end if the `DaemonSet` was
    /// present before, if our pod still exists (the API server also refuses the token of a pod that a user has deleted by force), and
    /// if no other daemon follows.
    ///
    /// On the first node of a rollout no pod shows yet what follows. That counts as the end too: the published charts run no daemon by
    /// default, and a configuration that stays would keep every pod of the node waiting for ever. If a daemon follows after all, pods
    /// that start in the seconds between have the default network only.
    fn refusal_means_ending(&self, refusal: Refusal) -> bool {
        let is_last = matches!(
            refusal.successor,
            Successor::Nothing | Successor::Thin | Successor::NotYet
        );
        *self.lock() == Known::Present && refusal.has_pod && is_last
    }

    /// Decides by the pods of the `DaemonSet`, with further tries while the API server does not answer.
    async fn check_successor(&self, client: &Client, own: OwnObjects<'_>) {
        for _ in 0..SUCCESSOR_TRIES {
            let refusal = refusal(client, own).await;
            if self.refusal_means_ending(refusal) {
                return self.set(Known::Ending);
            }
            if refusal.successor != Successor::Unknown || *self.lock() != Known::Present {
                return;
            }
            sleep(SUCCESSOR_PAUSE).await;
        }
    }

    fn learn(&self, checked: Check) {
        match checked {
            Check::Found { is_ending: true } => self.set(Known::Ending),
            Check::Found { is_ending: false } => self.set(Known::Present),
            // Its absence counts only after it was present.
            Check::Absent if *self.lock() == Known::Present => self.set(Known::Ending),
            Check::Absent | Check::Refused | Check::Failed => {}
        }
    }

    fn set(&self, known: Known) {
        let before = std::mem::replace(&mut *self.lock(), known);
        match known {
            _ if known == before => {}
            Known::Ending => {
                info!(
                    "this daemon's DaemonSet is deleted, changes its purpose or leaves this node: the daemon removes what it installed when it ends"
                );
            }
            Known::Present | Known::Nothing => info!("this daemon's DaemonSet stays"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ownership {
    fn judge(&self, read: &Result<Option<DaemonSet>, ApiError>) -> Check {
        match read {
            Ok(Some(object)) => Check::Found {
                is_ending: is_daemon_set_ending(object, self.purpose),
            },
            Ok(None) => Check::Absent,
            Err(error) => {
                debug!(%error, "cannot read this daemon's DaemonSet");
                if is_refusal(error) {
                    Check::Refused
                } else {
                    Check::Failed
                }
            }
        }
    }
}

async fn read(
    client: &Client,
    path: &str,
    timeout: Duration,
) -> Result<Option<DaemonSet>, ApiError> {
    let request = ApiRequest::get(path);
    let list: DaemonSets = with_retries(timeout, |time| client.object(&request, time)).await?;
    Ok(list.items.into_iter().next())
}

/// Whether our pod is being deleted and the `DaemonSet` makes none for this node again, since the node's labels or taints no longer fit.
/// A configuration that stays would keep every pod of the node waiting for ever. While it is unknown the installation stays.
///
/// A pod that is not being deleted, as when the node restarts, comes back.
async fn has_left(client: &Client, own: OwnObjects<'_>, placement: &Placement) -> bool {
    let Some(pod) = (own.pod)() else {
        return false;
    };
    let pod = ApiRequest::get(api_path::pod(own.namespace, &pod));
    let node = ApiRequest::get(api_path::node(own.node));
    let read = tokio::try_join!(
        with_retries(LAST_CHECK_TIMEOUT, |time| client.object::<Pod>(&pod, time)),
        with_retries(LAST_CHECK_TIMEOUT, |time| client
            .object::<Node>(&node, time)),
    );
    match read {
        Ok((pod, node)) => {
            let taints = node.spec.map(|spec| spec.taints).unwrap_or_default();
            pod.metadata.deletion_timestamp.is_some()
                && !placement.selects(own.node, &node.metadata.labels, &taints)
        }
        Err(error) => {
            debug!(%error, "cannot read our pod and our node");
            false
        }
    }
}

async fn refusal(client: &Client, own: OwnObjects<'_>) -> Refusal {
    let successor = match (own.pod)() {
        Some(pod) => successor(client, own.namespace, &pod).await,
        None => Successor::Unknown,
    };
    Refusal {
        successor,
        // The watch is read last: during these requests it may have learned that the pod was deleted.
        has_pod: (own.pod)().is_some(),
    }
}

async fn successor(client: &Client, namespace: &str, name: &str) -> Successor {
    let by_failure = |error: ApiError| {
        if is_refusal(&error) {
            Successor::Nothing
        } else {
            Successor::Unknown
        }
    };
    let request = ApiRequest::get(api_path::pod(namespace, name));
    let own: Pod =
        match with_retries(LAST_CHECK_TIMEOUT, |time| client.object(&request, time)).await {
            Ok(own) => own,
            Err(error) => return by_failure(error),
        };
    let Some(app) = own.metadata.labels.get(APP) else {
        return Successor::NotYet;
    };
    let request = ApiRequest::get(api_path::labelled_pods(namespace, APP, app));
    match with_retries(LAST_CHECK_TIMEOUT, |time| {
        client.object::<Pods>(&request, time)
    })
    .await
    {
        Ok(pods) => successor_among(&own, &pods.items),
        Err(error) => by_failure(error),
    }
}

/// Returns what the newest pod of another revision runs; pods older than our own do not count.
fn successor_among(own: &Pod, pods: &[Pod]) -> Successor {
    let revision = |pod: &Pod| pod.metadata.labels.get(REVISION).cloned();
    let owner = |pod: &Pod| {
        pod.metadata
            .owner_references
            .first()
            .map(|one| one.uid.clone())
    };
    let newest = pods
        .iter()
        .filter(|pod| owner(pod) == owner(own) && revision(pod) != revision(own))
        // RFC 3339 in UTC sorts as text.
        .filter(|pod| pod.metadata.creation_timestamp >= own.metadata.creation_timestamp)
        .max_by_key(|pod| &pod.metadata.creation_timestamp);
    match newest.and_then(|pod| pod.spec.as_ref()) {
        Some(spec) if spec.containers.iter().any(is_daemon) => Successor::Daemon,
        Some(_) => Successor::Thin,
        None => Successor::NotYet,
    }
}

fn is_refusal(failure: &ApiError) -> bool {
    matches!(failure.code(), Some(UNAUTHORIZED | FORBIDDEN))
}

/// A list of `DaemonSet`s, with the fields that are read here.
#[derive(Deserialize)]
struct DaemonSets {
    #[serde(default)]
    items: Vec<DaemonSet>,
}

#[derive(Deserialize, Default)]
struct DaemonSet {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

impl DaemonSet {
    /// The spec of its pods.
    fn pods(&self) -> Option<&PodSpec> {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.template.spec.as_ref())
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    creation_timestamp: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Deserialize)]
struct OwnerReference {
    #[serde(default)]
    uid: String,
}

/// A list of pods, with the fields that are read here.
#[derive(Deserialize)]
struct Pods {
    #[serde(default)]
    items: Vec<Pod>,
}

#[derive(Deserialize, Default)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Option<PodSpec>,
}

#[derive(Deserialize)]
struct Spec {
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    #[serde(default)]
    spec: Option<PodSpec>,
}

#[derive(Deserialize)]
struct PodSpec {
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(flatten)]
    placement: Placement,
}

/// A node, with the fields that are read here.
#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Option<NodeSpec>,
}

#[derive(Deserialize)]
struct NodeSpec {
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    command: Option<Vec<String>>,
    #[serde(default)]
    args: Vec<String>,
}

/// Whether the `DaemonSet` is being deleted, or runs no daemon of this purpose any longer. Without a daemon that serves the shim, a
/// configuration that stays would keep every pod of the node waiting.
fn is_daemon_set_ending(object: &DaemonSet, purpose: Purpose) -> bool {
    object.metadata.deletion_timestamp.is_some()
        || (object.pods()).is_some_and(|pods| !pods.containers.iter().any(|one| runs(one, purpose)))
}

/// Whether the container may run a daemon that serves pods.
fn is_daemon(container: &Container) -> bool {
    runs(container, Purpose::Multiplexer)
}

/// Whether the container may run a daemon of this purpose. Without a command the image's own runs, which may be a daemon.
fn runs(container: &Container, purpose: Purpose) -> bool {
    let command = container.command.as_deref().unwrap_or_default();
    let is_daemon = command
        .first()
        .is_none_or(|program| Path::new(program).file_name() == Some(DAEMON.as_ref()));
    let args = command.iter().skip(1).chain(&container.args);
    let installs_plugins = args.into_iter().any(|arg| arg == PLUGINS);
    is_daemon && installs_plugins == (purpose == Purpose::Plugins)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_daemon_set_ends_when_it_was_present_and_is_deleted() {
        let ownership = Ownership::default();
        for (checked, ends) in [
            (Check::Absent, false),
            (Check::Found { is_ending: false }, false),
            (Check::Failed, false),
            (Check::Refused, false),
            (Check::Absent, true),
            (Check::Failed, true),
            (Check::Found { is_ending: false }, false),
            (Check::Found { is_ending: true }, true),
        ] {
            ownership.learn(checked);
            assert_eq!(ownership.is_ending(), ends, "{checked:?}");
        }
    }

    #[test]
    fn a_refusal_is_the_end_unless_a_daemon_follows() {
        let ends = |checks: &[Check], has_pod, successor| {
            let ownership = Ownership::default();
            for checked in checks {
                ownership.learn(*checked);
            }
            ownership.refusal_means_ending(Refusal { has_pod, successor })
        };
        let present = [Check::Found { is_ending: false }, Check::Refused];
        assert!(ends(&present, true, Successor::Nothing), "an uninstall");
        assert!(
            ends(&present, true, Successor::Thin),
            "back to thin plugins"
        );
        assert!(ends(&present, true, Successor::NotYet), "the first node");
        assert!(!ends(&present, true, Successor::Daemon), "back to daemons");
        assert!(!ends(&present, true, Successor::Unknown), "no answer");
        let deleted = ends(&present, false, Successor::Nothing);
        assert!(!deleted, "the pod was deleted by force");
        let never_present = ends(&[Check::Refused], true, Successor::Nothing);
        assert!(!never_present, "it was never present");
    }

    #[test]
    fn the_newest_pod_of_another_revision_shows_the_successor() {
        let pod = |revision: &str, owner: &str, minute: u8, program: &str| -> Pod {
            let object = json!({
                "metadata": {
                    "labels": {"app": "rke2-multus", "controller-revision-hash": revision},
                    "ownerReferences": [{"uid": owner}],
                    "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
                },
                "spec": {"containers": [{"name": "a", "command": [program]}]},
            });
            serde_json::from_value(object).unwrap()
        };
        let own = || pod("ours", "set", 10, "/multus-daemon");
        for (others, expected) in [
            (vec![], Successor::NotYet),
            (
                vec![pod("ours", "set", 20, "/multus-daemon")],
                Successor::NotYet,
            ),
            (
                vec![pod("before", "set", 5, "/thin_entrypoint")],
                Successor::NotYet,
            ),
            (
                vec![pod("other", "another", 20, "/thin_entrypoint")],
                Successor::NotYet,
            ),
            (
                vec![pod("thin", "set", 20, "/thin_entrypoint")],
                Successor::Thin,
            ),
            (
                vec![
                    pod("thin", "set", 20, "/thin_entrypoint"),
                    pod("thick", "set", 30, "/multus-daemon"),
                ],
                Successor::Daemon,
            ),
        ] {
            let all: Vec<_> = others.into_iter().chain([own()]).collect();
            assert_eq!(successor_among(&own(), &all), expected);
        }
    }

    #[test]
    fn a_daemon_set_is_ending_when_it_is_deleted_or_runs_no_daemon() {
        let with = |containers: Value| json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": {"containers": containers}}}});
        let daemon = json!({"name": "a", "command": ["/usr/src/multus-cni/bin/multus-daemon"]});
        let other = json!({"name": "b", "command": ["/thin_entrypoint"]});
        let plugins = json!({"name": "a", "command": ["/multus-daemon"], "args": ["plugins"]});
        let ends = |object: &Value, purpose| {
            let set = serde_json::from_value(object.clone()).unwrap();
            is_daemon_set_ending(&set, purpose)
        };
        assert!(!ends(&with(json!([plugins])), Purpose::Plugins));
        assert!(ends(&with(json!([daemon])), Purpose::Plugins));
        for (object, expected) in [
            (json!({"metadata": {}}), false),
            (with(json!([plugins])), true),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                true,
            ),
            (with(json!([daemon])), false),
            (with(json!([other, daemon])), false),
            (with(json!([{"name": "a"}])), false),
            (with(json!([other])), true),
        ] {
            assert_eq!(ends(&object, Purpose::Multiplexer), expected, "{object}");
        }
    }
}
