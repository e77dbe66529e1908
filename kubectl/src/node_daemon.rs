//! Finds the daemons' pods and queries them by exec, as `kubectl exec` does: `multus-daemon pod` and `multus-daemon networks` print the
//! answers there.
//!
//! The command is never run in another implementation's pod: a program that does not know it might start to serve.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{
    network_report::{self, NetworksReport},
    pod_report::{PodReport, SCHEMA},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{AttachParams, AttachedProcess},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::cluster::{Cluster, refusal};

/// The namespace where the distros install their charts.
const DISTRO_NAMESPACE: &str = "kube-system";
/// The program's name, in our images and in upstream's.
const PROGRAM: &str = "multus-daemon";
/// The environment variable that our charts set and upstream's do not.
const OUR_VARIABLE: &str = "MULTUS_DAEMONSET";
/// The labels of our daemons' pods.
const OUR_LABELS: &str = "app.kubernetes.io/part-of=multus,app.kubernetes.io/component=daemon";
/// The most daemons that are queried at the same time.
const AT_ONCE: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most time for all daemons together.
const ALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The version of the answers to `multus-daemon status --json`.
const STATUS_SCHEMA: u32 = 1;
/// The most bytes that are read of an answer, which is more than any answer has.
const MAX_ANSWER: u64 = 8 << 20;

/// The result of querying a node's daemon.
#[derive(Debug, Clone)]
pub(crate) enum DaemonReply {
    /// The pod has no node.
    NoNode,
    /// None of the pods that may be listed is a daemon on the node.
    NoDaemon,
    /// The daemon's container does not run.
    NotRunning { daemon: String, reason: String },
    /// The daemon could not be queried, for this reason.
    Unavailable(String),
    /// The daemon has answered.
    Answered {
        daemon: String,
        answer: Box<PodReport>,
    },
}

impl DaemonReply {
    /// Returns the daemon's answer, if it gave one.
    pub(crate) fn answer(&self) -> Option<&PodReport> {
        match self {
            Self::Answered { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Returns a sentence that says why there is no answer.
    pub(crate) fn without_answer(&self) -> Option<String> {
        Some(match self {
            Self::NoNode => "not queried: the pod is not scheduled".to_owned(),
            Self::NoDaemon => "there is no daemon on the node".to_owned(),
            Self::NotRunning { daemon, reason } => format!("{daemon} does not run: {reason}"),
            Self::Unavailable(reason) => format!("not queried: {reason}"),
            Self::Answered { .. } => return None,
        })
    }

    /// Returns a sentence that says why the daemon could not be queried.
    pub(crate) fn gap(&self) -> Option<String> {
        match self {
            Self::Unavailable(reason) => {
                Some(format!("the node's daemon was not queried: {reason}"))
            }
            _ => None,
        }
    }
}

/// The replies of the cluster's daemons about the networks that their nodes can serve.
#[derive(Debug, Default)]
pub(crate) struct AllReplies {
    /// The answers by node.
    pub(crate) answers: BTreeMap<String, NetworksReport>,
    /// Why other nodes did not answer: sentences with their names.
    pub(crate) gaps: Vec<String>,
}

/// The state of a daemon, as far as it is reported: `multus-daemon status --json` has more.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonStatus {
    pub(crate) version: String,
    /// Why pods are not served; absent when they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// What was run since the daemon's start, by plugin.
    pub(crate) delegates: Vec<Durations>,
}

/// The number and durations of the runs of one plugin with the same outcome.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Durations {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plugin: Option<String>,
    /// The verb.
    pub(crate) command: String,
    /// `done` or `failed`.
    pub(crate) outcome: String,
    pub(crate) count: u64,
    /// The median in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_seconds: Option<f64>,
}

/// A pod that runs a Multus daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DaemonPod {
    namespace: String,
    name: String,
    container: String,
    program: String,
    is_ours: bool,
    /// The reason why its container does not run.
    problem: Option<String>,
}

impl DaemonPod {
    fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Queries the daemon of a node about a pod, which is named `namespace/name`.
pub(crate) async fn query(
    cluster: &Cluster,
    node: &str,
    pod: &str,
    namespace: Option<&str>,
) -> DaemonReply {
    if node.is_empty() {
        return DaemonReply::NoNode;
    }
    let pods = match cluster.pods_of_node(node, namespace).await {
        Ok(pods) => pods,
        Err(reason) if namespace.is_some() => return DaemonReply::Unavailable(reason),
        // A user without the right to list all pods may have it for this namespace.
        Err(reason) => match cluster.pods_of_node(node, Some(DISTRO_NAMESPACE)).await {
            Ok(pods) => pods,
            Err(_) => return DaemonReply::Unavailable(not_listed(&reason)),
        },
    };
    let found = match usable(pods.iter().filter_map(daemon_pod).collect()) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let text = ask(cluster, &found, &["pod", pod]).await;
    match text.and_then(|text| parse(&text, SCHEMA)) {
        Ok(answer) => DaemonReply::Answered {
            daemon: found.title(),
            answer,
        },
        Err(reason) => DaemonReply::Unavailable(reason),
    }
}

/// Queries the daemons of all nodes, or of one, about the networks that they can serve. Fails when the daemons' pods cannot be listed.
pub(crate) async fn query_all(
    cluster: &Cluster,
    node: Option<&str>,
    namespace: Option<&str>,
) -> Result<AllReplies, String> {
    let mut daemons = Daemons::of(&daemon_pods(cluster, namespace).await?);
    daemons
        .0
        .retain(|name, _| node.is_none_or(|node| node == name));
    Ok(daemons.networks(cluster).await)
}

/// Lists the pods of our daemons, of one namespace or of all; without the right to list all, those of the distros.
pub(crate) async fn daemon_pods(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<Vec<Value>, String> {
    match cluster.labelled_pods(OUR_LABELS, namespace).await {
        Err(reason) if namespace.is_none() => {
            let system = cluster.labelled_pods(OUR_LABELS, Some(DISTRO_NAMESPACE));
            system.await.map_err(|_| reason)
        }
        other => other,
    }
}

/// The daemon of each node, or the reply of a node without one that can be queried.
#[derive(Debug, Default)]
pub(crate) struct Daemons(BTreeMap<String, Result<DaemonPod, DaemonReply>>);

impl Daemons {
    /// Finds the daemons among these pods; other pods are ignored.
    pub(crate) fn of(pods: &[Value]) -> Self {
        let mut by_node = BTreeMap::<&str, Vec<DaemonPod>>::new();
        for pod in pods {
            let node = pod.pointer("/spec/nodeName").and_then(Value::as_str);
            if let (Some(node), Some(daemon)) = (node, daemon_pod(pod)) {
                by_node.entry(node).or_default().push(daemon);
            }
        }
        let nodes = by_node.into_iter();
        Self(
            nodes
                .map(|(node, daemons)| (node.to_owned(), usable(daemons)))
                .collect(),
        )
    }

    /// Queries all of them about the networks that their nodes can serve.
    pub(crate) async fn networks(&self, cluster: &Cluster) -> AllReplies {
        let command = (&["networks", "--json"][..], network_report::SCHEMA);
        let (answers, gaps) = self.each(cluster, command).await;
        AllReplies { answers, gaps }
    }

    /// Queries all of them about their state and durations.
    pub(crate) async fn statuses(&self, cluster: &Cluster) -> BTreeMap<String, DaemonStatus> {
        let command = (&["status", "--json"][..], STATUS_SCHEMA);
        // The same daemons are queried about networks, and what keeps them from an answer is reported there.
        self.each(cluster, command).await.0
    }

    /// Queries each daemon by a command; returns the answers by node, and sentences about the nodes without one.
    async fn each<T: DeserializeOwned>(
        &self,
        cluster: &Cluster,
        (command, schema): (&[&str], u32),
    ) -> (BTreeMap<String, T>, Vec<String>) {
        let (mut queries, mut gaps) = (Vec::new(), Vec::new());
        for (node, daemon) in &self.0 {
            match daemon {
                Ok(daemon) => {
                    let command = command.iter().map(|&word| word.to_owned());
                    queries.push((node.clone(), daemon.clone(), command.collect()));
                }
                Err(reply) => {
                    let reason = reply.without_answer().unwrap_or_default();
                    gaps.push(format!("node {node}: {reason}"));
                }
            }
        }
        let mut answers = BTreeMap::new();
        for (node, reply) in ask_all(cluster, queries).await {
            match reply.and_then(|text| parse(&text, schema)) {
                Ok(answer) => drop(answers.insert(node, answer)),
                Err(reason) => gaps.push(format!("node {node}: {reason}")),
            }
        }
        gaps.sort();
        (answers, gaps)
    }

    /// Queries the daemons about pods, each named `namespace/name` and with its node.
    pub(crate) async fn pods(
        &self,
        cluster: &Cluster,
        pods: impl IntoIterator<Item = (String, String)>,
    ) -> BTreeMap<String, DaemonReply> {
        let (mut replies, mut queries) = (BTreeMap::new(), Vec::new());
        let mut titles = BTreeMap::new();
        for (pod, node) in pods {
            match self.0.get(&node) {
                Some(Ok(daemon)) => {
                    titles.insert(pod.clone(), daemon.title());
                    let command = vec!["pod".to_owned(), pod.clone()];
                    queries.push((pod, daemon.clone(), command));
                }
                Some(Err(reply)) => drop(replies.insert(pod, reply.clone())),
                None => drop(replies.insert(pod, DaemonReply::NoDaemon)),
            }
        }
        for (pod, reply) in ask_all(cluster, queries).await {
            let daemon = titles.remove(&pod).unwrap_or_default();
            let reply = match reply.and_then(|text| parse(&text, SCHEMA)) {
                Ok(answer) => DaemonReply::Answered { daemon, answer },
                Err(reason) => DaemonReply::Unavailable(reason),
            };
            replies.insert(pod, reply);
        }
        replies
    }
}

/// Runs commands in daemons' pods, some at a time, and returns what they print. All of them together take at most [`ALL_TIMEOUT`].
async fn ask_all(
    cluster: &Cluster,
    queries: Vec<(String, DaemonPod, Vec<String>)>,
) -> Vec<(String, Result<String, String>)> {
    let (turns, mut tasks) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    let end = Instant::now() + ALL_TIMEOUT;
    for (key, daemon, command) in queries {
        let (turns, cluster) = (Arc::clone(&turns), cluster.clone());
        tasks.spawn(async move {
            let answer = async {
                // Nothing closes the semaphore.
                let _turn = turns.acquire_owned().await;
                let command: Vec<_> = command.iter().map(String::as_str).collect();
                ask(&cluster, &daemon, &command).await
            };
            let answer = timeout_at(end, answer).await;
            let late = || format!("no answer within {} s", ALL_TIMEOUT.as_secs());
            (key, answer.unwrap_or_else(|_| Err(late())))
        });
    }
    tasks.join_all().await
}

/// Returns a sentence about daemons' pods that could not be listed, for commands with the option.
pub(crate) fn not_listed(reason: &str) -> String {
    format!(
        "{reason}; name the namespace of the daemons' pods with --daemon-namespace, or request the right to list pods"
    )
}

/// Returns the daemon among those of one node, or the reply of a node without one that can be queried.
fn usable(daemons: Vec<DaemonPod>) -> Result<DaemonPod, DaemonReply> {
    let found = choose(daemons)
        .map_err(DaemonReply::Unavailable)?
        .ok_or(DaemonReply::NoDaemon)?;
    let daemon = found.title();
    match &found.problem {
        Some(reason) => Err(DaemonReply::NotRunning {
            daemon,
            reason: reason.clone(),
        }),
        None if !found.is_ours => Err(DaemonReply::Unavailable(format!(
            "pod {daemon} runs another Multus, which cannot be queried"
        ))),
        None => Ok(found),
    }
}

/// Chooses the pod to query. Whoever may create a pod can make one that looks like a daemon, so those of the distros' namespace come first,
/// and of several other namespaces the user names one.
fn choose(mut daemons: Vec<DaemonPod>) -> Result<Option<DaemonPod>, String> {
    let is_other = |daemon: &DaemonPod| daemon.namespace != DISTRO_NAMESPACE;
    // A rolling update has two of them on a node; one that runs comes first.
    daemons.sort_by_key(|daemon| (is_other(daemon), daemon.problem.is_some(), !daemon.is_ours));
    let mut daemons = daemons.into_iter();
    let found = daemons.next();
    if let Some(found) = &found
        && is_other(found)
        && let Some(other) = daemons.find(|other| other.namespace != found.namespace)
    {
        return Err(format!(
            "pods {}/{} and {}/{} both look like its daemon: name the namespace of the daemons' pods with --daemon-namespace",
            found.namespace, found.name, other.namespace, other.name
        ));
    }
    Ok(found)
}

/// Runs a command of the program in the daemon's pod and returns what it prints.
async fn ask(cluster: &Cluster, daemon: &DaemonPod, arguments: &[&str]) -> Result<String, String> {
    let answer = tokio::time::timeout(TIMEOUT, exec(cluster, daemon, arguments)).await;
    let text = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
    text.map_err(|reason| format!("pod {}: {reason}", daemon.title()))
}

async fn exec(cluster: &Cluster, daemon: &DaemonPod, arguments: &[&str]) -> Result<String, String> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &daemon.namespace);
    let argv = [&[daemon.program.as_str()], arguments].concat();
    let params = AttachParams::default()
        .container(&daemon.container)
        .stdout(true)
        .stderr(true);
    let started = api.exec(&daemon.name, argv, &params).await;
    let mut process = started.map_err(|error| {
        format!(
            "{}; querying it takes the right to create and get pods/exec in namespace {}",
            refusal(&error),
            daemon.namespace
        )
    })?;
    let (stdout, stderr) = tokio::join!(text(process.stdout()), text(process.stderr()));
    let failure = failure(process).await;
    if let Some(failure) = failure {
        let stderr = stderr.trim();
        if stderr.contains("unrecognized subcommand") {
            return Err("its version cannot be queried yet: upgrade it".to_owned());
        }
        return Err(format!("{failure}: {stderr}"));
    }
    Ok(stdout)
}

/// Reads an answer, which must have this schema.
fn parse<T: DeserializeOwned>(text: &str, schema: u32) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
        version: String,
    }
    let unreadable = |error| format!("the daemon's answer cannot be read: {error}");
    let head: Head = serde_json::from_str(text).map_err(unreadable)?;
    if head.schema != schema {
        return Err(format!(
            "the daemon's answer has schema {}, but this program reads {schema}: use kubectl-multus of version {}",
            head.schema, head.version
        ));
    }
    serde_json::from_str(text).map_err(unreadable)
}

async fn text(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // After an error the bytes before it are used.
        let _ = stream.take(MAX_ANSWER).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end of the process and returns its error, if it failed.
async fn failure(mut process: AttachedProcess) -> Option<String> {
    let status = process.take_status()?.await?;
    (status.status.as_deref() != Some("Success"))
        .then(|| status.message.unwrap_or_else(|| "it failed".to_owned()))
}

/// Returns the daemon that a pod runs, or `None` for any other pod.
fn daemon_pod(pod: &Value) -> Option<DaemonPod> {
    let text = |pointer: &str| {
        let value = pod.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let (container, program) = containers.iter().find_map(|container| {
        let program = container["command"].as_array()?.first()?.as_str()?;
        let is_daemon = program.rsplit('/').next() == Some(PROGRAM);
        // The approver is the same program with another command and serves no node.
        let is_other = container["args"][0]
            .as_str()
            .is_some_and(|command| command != "run");
        (is_daemon && !is_other).then(|| (container, program.to_owned()))
    })?;
    let env = container["env"].as_array();
    let name = container["name"].as_str()?.to_owned();
    Some(DaemonPod {
        namespace: text("/metadata/namespace"),
        problem: problem(pod, &name, &text("/status/phase")),
        name: text("/metadata/name"),
        is_ours: env.is_some_and(|env| env.iter().any(|one| one["name"] == OUR_VARIABLE)),
        container: name,
        program,
    })
}

fn problem(pod: &Value, container: &str, phase: &str) -> Option<String> {
    let statuses = pod
        .pointer("/status/containerStatuses")
        .and_then(Value::as_array);
    let status = statuses.and_then(|all| all.iter().find(|one| one["name"] == container));
    let state = status.map(|status| &status["state"]);
    if state.is_some_and(|state| state.get("running").is_some()) {
        return None;
    }
    let text_at = |pointer: &str| {
        let text = state?.pointer(pointer)?.as_str()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let reason = text_at("/waiting/reason").or_else(|| text_at("/terminated/reason"));
    let message = text_at("/waiting/message").or_else(|| text_at("/terminated/message"));
    let known: Vec<_> = [reason, message].into_iter().flatten().collect();
    Some(if known.is_empty() {
        format!("its pod is {phase}")
    } else {
        known.join(": ")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(args: &Value, env: &Value, state: &Value) -> Value {
        json!({
            "metadata": {"namespace": "kube-system", "name": "m-1"},
            "spec": {"containers": [
                {"name": "sidecar", "image": "x"},
                {"name": "kube-m", "command": ["/usr/bin/multus-daemon"], "args": args, "env": env},
            ]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "kube-m", "state": state}]},
        })
    }

    #[test]
    fn only_pods_that_run_a_daemon_are_daemons() {
        let running = json!({"running": {}});
        let ours = json!([{"name": OUR_VARIABLE, "value": "m"}]);
        let found = daemon_pod(&pod(&json!(["run"]), &ours, &running)).unwrap();
        assert!(found.is_ours && found.problem.is_none());
        assert_eq!(
            (found.container.as_str(), found.program.as_str()),
            ("kube-m", "/usr/bin/multus-daemon")
        );
        let upstream = daemon_pod(&pod(&json!(null), &json!([]), &running)).unwrap();
        assert!(!upstream.is_ours);
        assert_eq!(daemon_pod(&pod(&json!(["approve"]), &ours, &running)), None);
        assert_eq!(
            daemon_pod(&json!({"spec": {"containers": [{"name": "c"}]}})),
            None
        );
        let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back off"}});
        let waiting = daemon_pod(&pod(&json!(["run"]), &ours, &state)).unwrap();
        assert_eq!(waiting.problem.unwrap(), "CrashLoopBackOff: back off");
        let no_state = daemon_pod(&pod(&json!(["run"]), &ours, &json!({}))).unwrap();
        assert_eq!(no_state.problem.unwrap(), "its pod is Running");
    }

    #[test]
    fn a_pod_that_looks_like_a_daemon_is_not_taken_for_the_distros() {
        let ours = json!([{"name": OUR_VARIABLE, "value": "m"}]);
        let daemon = |namespace: &str, state: &Value| {
            let mut pod = pod(&json!(["run"]), &ours, state);
            pod["metadata"]["namespace"] = json!(namespace);
            daemon_pod(&pod).unwrap()
        };
        let (running, waiting) = (json!({"running": {}}), json!({"waiting": {"reason": "x"}}));
        let chosen = |pods: &[(&str, &Value)]| {
            let pods = pods
                .iter()
                .map(|(namespace, state)| daemon(namespace, state));
            choose(pods.collect()).map(|found| found.map(|found| found.namespace))
        };
        let system = Ok(Some("kube-system".to_owned()));
        assert_eq!(
            chosen(&[("a", &running), ("kube-system", &waiting)]),
            system
        );
        assert_eq!(chosen(&[("net", &running)]), Ok(Some("net".to_owned())));
        let error = chosen(&[("a", &running), ("net", &running)]).unwrap_err();
        assert!(error.contains("--daemon-namespace"), "{error}");
        assert_eq!(chosen(&[]), Ok(None));
    }

    #[test]
    fn answers_of_another_schema_are_refused() {
        let answer = json!({"schema": SCHEMA, "version": "5", "node": "n", "options": {}, "containers": [], "failures": []});
        let parse = |text: &str| parse::<PodReport>(text, SCHEMA);
        assert_eq!(parse(&answer.to_string()).unwrap().node, "n");
        let mut newer = answer;
        newer["schema"] = json!(SCHEMA + 1);
        newer["version"] = json!("9.0.0");
        assert!(parse(&newer.to_string()).unwrap_err().contains("9.0.0"));
        assert!(parse("x").unwrap_err().contains("cannot be read"));
    }
}
