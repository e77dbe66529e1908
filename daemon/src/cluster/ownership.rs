//! Whether this daemon's `DaemonSet` goes, and with it all that the daemon has put on the node.
//!
//! The `DaemonSet` is not watched: its status changes with every pod of it that becomes ready, and each change would be sent to each
//! node. It is looked at after the start, every few minutes, and at a SIGTERM.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::Deserialize;
use tokio::time::sleep;
use tracing::{debug, info};

use super::{
    path,
    retry::{backoff, patiently, random},
};
use crate::access::{Ask, Client, Failure};

/// The program of every daemon that serves multus-shim, upstream's too.
const DAEMON: &str = "multus-daemon";
/// The first look comes within this time after the start, so that not all nodes of a rollout come at once.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Each further one comes after this time, up to twice that.
const PERIOD: Duration = Duration::from_mins(4);
/// The pause after a look that failed, doubled with each.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// How long a look may take with all its tries.
const LOOK: Duration = Duration::from_secs(5);
/// The last one may not take longer than the runtime waits for us.
const LAST_LOOK: Duration = Duration::from_secs(3);

/// The attempts to read the successor from an API server that does not answer, and the pause between them.
const OTHER_LOOKS: u32 = 5;
const OTHER_PAUSE: Duration = Duration::from_millis(800);
/// The label of all pods of the `DaemonSet`, in every chart.
const APP: &str = "app";
/// The label that differs between pods of two revisions of a `DaemonSet`.
const REVISION: &str = "controller-revision-hash";

const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;

/// What is known of our own `DaemonSet`.
#[derive(Debug, Default)]
pub struct Ownership(Mutex<Known>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nothing,
    Seen,
    Goes,
}

/// What a look has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It is there, and goes or stays.
    Seen { goes: bool },
    /// It is not there.
    Absent,
    /// The API server does not let us look.
    Refused,
    /// The API server did not answer.
    Failed,
}

/// What is known beside the last look when it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal {
    /// Whether our own pod, as the watch has it, is still an object of the API.
    pod_is_there: bool,
    successor: Successor,
}

/// What the `DaemonSet` runs after this daemon, as its pods show while the `DaemonSet` itself cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    /// Nothing: we may not even read our own pod any more, which every chart's role allows.
    Nothing,
    /// Pods without a daemon.
    Thin,
    /// Pods with a daemon.
    Daemon,
    /// No node has a pod of another revision yet.
    NotThereYet,
    /// The API server did not answer.
    Unknown,
}

/// The daemon's own objects.
#[derive(Clone, Copy)]
pub struct Own<'a> {
    /// Namespace of `DaemonSet` and pod.
    pub namespace: &'a str,
    /// Name of the `DaemonSet`.
    pub daemon_set: &'a str,
    /// Name of our pod, while the watch of this node's pods has it.
    pub pod: &'a (dyn Fn() -> Option<String> + Sync),
}

impl Ownership {
    /// Whether it was there and is gone, or goes: the next SIGTERM is the end.
    pub fn ends(&self) -> bool {
        *self.lock() == Known::Goes
    }

    /// Looks now and then, for ever.
    pub async fn follow(&self, client: Client, namespace: &str, name: &str) {
        sleep(FIRST_LOOK.mul_f64(random())).await;
        // A few minutes old is as good: no look but the last one needs etcd.
        let path = format!("{}&resourceVersion=0", path::daemon_sets(namespace, name));
        let mut failures = 0;
        loop {
            let looked = look(&client, &path, LOOK).await;
            self.learn(looked);
            let pause = if matches!(looked, Look::Refused | Look::Failed) {
                failures += 1;
                backoff(failures, FIRST_PAUSE, PERIOD, random())
            } else {
                failures = 0;
                PERIOD.mul_f64(1.0 + random())
            };
            sleep(pause).await;
        }
    }

    /// The same at a SIGTERM: one more look, which decides.
    pub async fn ends_now(&self, client: Client, own: Own<'_>) -> bool {
        if self.ends() {
            return true;
        }
        let path = path::daemon_sets(own.namespace, own.daemon_set);
        let looked = look(&client, &path, LAST_LOOK).await;
        self.learn(looked);
        if looked == Look::Refused {
            self.look_elsewhere(&client, own).await;
        }
        self.ends()
    }

    /// Helm removes our right to look before our pod ends, both when it uninstalls the release and when it returns to a chart that
    /// has no such right. It is the end if the `DaemonSet` was seen before, if our pod is still an object, so that its token was not
    /// refused because somebody deleted the pod by force, and unless another daemon follows.
    ///
    /// On the first node of a rollout nothing shows yet what follows. Then it is the end as well: the published charts run no daemon
    /// by default, and a configuration that stays would keep every pod of the node waiting for ever. If a daemon follows all the same,
    /// pods of the seconds between have the primary network alone.
    fn refusal_ends(&self, refusal: Refusal) -> bool {
        let is_last = matches!(
            refusal.successor,
            Successor::Nothing | Successor::Thin | Successor::NotThereYet
        );
        *self.lock() == Known::Seen && refusal.pod_is_there && is_last
    }

    /// Looks at what else the API server shows, again while it does not answer.
    async fn look_elsewhere(&self, client: &Client, own: Own<'_>) {
        for _ in 0..OTHER_LOOKS {
            let refusal = refusal(client, own).await;
            if self.refusal_ends(refusal) {
                return self.set(Known::Goes);
            }
            if refusal.successor != Successor::Unknown || *self.lock() != Known::Seen {
                return;
            }
            sleep(OTHER_PAUSE).await;
        }
    }

    fn learn(&self, looked: Look) {
        match looked {
            Look::Seen { goes: true } => self.set(Known::Goes),
            Look::Seen { goes: false } => self.set(Known::Seen),
            // That means something only after it was there.
            Look::Absent if *self.lock() == Known::Seen => self.set(Known::Goes),
            Look::Absent | Look::Refused | Look::Failed => {}
        }
    }

    fn set(&self, known: Known) {
        let before = std::mem::replace(&mut *self.lock(), known);
        match known {
            _ if known == before => {}
            Known::Goes => {
                info!("our DaemonSet is deleted: the next end takes configuration and shim along");
            }
            Known::Seen | Known::Nothing => info!("our DaemonSet stays"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn look(client: &Client, path: &str, patience: Duration) -> Look {
    let ask = Ask::get(path);
    let listed = patiently(patience, |time| client.object::<DaemonSets>(&ask, time));
    match listed.await {
        Ok(list) => match list.items.first() {
            Some(object) => Look::Seen { goes: goes(object) },
            None => Look::Absent,
        },
        Err(error) => {
            debug!(%error, "cannot look at our DaemonSet");
            if is_refusal(&error) {
                Look::Refused
            } else {
                Look::Failed
            }
        }
    }
}

async fn refusal(client: &Client, own: Own<'_>) -> Refusal {
    let successor = match (own.pod)() {
        Some(pod) => successor(client, own.namespace, &pod).await,
        None => Successor::Unknown,
    };
    Refusal {
        successor,
        // The watch has had the time of these requests to tell of a pod that is gone.
        pod_is_there: (own.pod)().is_some(),
    }
}

async fn successor(client: &Client, namespace: &str, name: &str) -> Successor {
    let unread = |error: Failure| {
        if is_refusal(&error) {
            Successor::Nothing
        } else {
            Successor::Unknown
        }
    };
    let ask = Ask::get(path::pod(namespace, name));
    let own: Pod = match patiently(LAST_LOOK, |time| client.object(&ask, time)).await {
        Ok(own) => own,
        Err(error) => return unread(error),
    };
    let Some(app) = own.metadata.labels.get(APP) else {
        return Successor::NotThereYet;
    };
    let ask = Ask::get(path::labelled_pods(namespace, APP, app));
    match patiently(LAST_LOOK, |time| client.object::<Pods>(&ask, time)).await {
        Ok(pods) => of_newest(&own, &pods.items),
        Err(error) => unread(error),
    }
}

/// Returns what the newest pod of another revision runs; pods older than our own do not count.
fn of_newest(own: &Pod, pods: &[Pod]) -> Successor {
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
        None => Successor::NotThereYet,
    }
}

fn is_refusal(failure: &Failure) -> bool {
    matches!(failure.code(), Some(UNAUTHORIZED | FORBIDDEN))
}

/// A list of them, as much of each as is needed.
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

/// A list of pods, as much of each as is needed.
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
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    command: Option<Vec<String>>,
}

/// Whether it is being deleted, or has become one without a daemon: who comes then serves no shim, so that a configuration which
/// is left to the next one would keep every pod waiting.
fn goes(object: &DaemonSet) -> bool {
    let pods = object
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    object.metadata.deletion_timestamp.is_some()
        || pods.is_some_and(|pods| !pods.containers.iter().any(is_daemon))
}

/// An image whose own command runs may be a daemon's.
fn is_daemon(container: &Container) -> bool {
    let command = container.command.as_ref().and_then(|words| words.first());
    command.is_none_or(|program| Path::new(program).file_name() == Some(DAEMON.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_end_is_seen_and_gone() {
        let ownership = Ownership::default();
        for (looked, ends) in [
            (Look::Absent, false),
            (Look::Seen { goes: false }, false),
            (Look::Failed, false),
            (Look::Refused, false),
            (Look::Absent, true),
            (Look::Failed, true),
            (Look::Seen { goes: false }, false),
            (Look::Seen { goes: true }, true),
        ] {
            ownership.learn(looked);
            assert_eq!(ownership.ends(), ends, "{looked:?}");
        }
    }

    #[test]
    fn a_refusal_is_the_end_unless_a_daemon_follows() {
        let check = |known: &[Look], pod_is_there, successor| {
            let ownership = Ownership::default();
            for looked in known {
                ownership.learn(*looked);
            }
            ownership.refusal_ends(Refusal {
                pod_is_there,
                successor,
            })
        };
        let seen = [Look::Seen { goes: false }, Look::Refused];
        assert!(check(&seen, true, Successor::Nothing), "an uninstall");
        assert!(check(&seen, true, Successor::Thin), "back to thin plugins");
        assert!(check(&seen, true, Successor::NotThereYet), "the first node");
        assert!(!check(&seen, true, Successor::Daemon), "back to daemons");
        assert!(!check(&seen, true, Successor::Unknown), "no answer");
        let deleted = check(&seen, false, Successor::Nothing);
        assert!(!deleted, "the pod was deleted by force");
        let unseen = check(&[Look::Refused], true, Successor::Nothing);
        assert!(!unseen, "it was never seen");
    }

    #[test]
    fn the_newest_pod_of_another_revision_shows_what_follows() {
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
            (vec![], Successor::NotThereYet),
            (
                vec![pod("ours", "set", 20, "/multus-daemon")],
                Successor::NotThereYet,
            ),
            (
                vec![pod("before", "set", 5, "/thin_entrypoint")],
                Successor::NotThereYet,
            ),
            (
                vec![pod("other", "another", 20, "/thin_entrypoint")],
                Successor::NotThereYet,
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
            assert_eq!(of_newest(&own(), &all), expected);
        }
    }

    #[test]
    fn a_set_goes_when_it_is_deleted_or_runs_no_daemon() {
        let with = |containers: Value| json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": {"containers": containers}}}});
        let daemon = json!({"name": "a", "command": ["/usr/src/multus-cni/bin/multus-daemon"]});
        let other = json!({"name": "b", "command": ["/thin_entrypoint"]});
        for (object, expected) in [
            (json!({"metadata": {}}), false),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                true,
            ),
            (with(json!([daemon])), false),
            (with(json!([other, daemon])), false),
            (with(json!([{"name": "a"}])), false),
            (with(json!([other])), true),
        ] {
            let set = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(goes(&set), expected, "{object}");
        }
    }
}
