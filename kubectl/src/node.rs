//! The daemon of a pod's node: which pod it is, and its answer, which `multus-daemon pod` gives there.
//!
//! That is exec, as kubectl does it. No other Multus is ever started so: a program that does not know the command might begin to serve.

use std::time::Duration;

use api::pod_report::{PodReport, SCHEMA};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{AttachParams, AttachedProcess},
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::cluster::{Cluster, refusal};

/// Where charts of a distro are installed.
const USUAL_NAMESPACE: &str = "kube-system";
/// The program's name, in images of ours and of upstream's.
const PROGRAM: &str = "multus-daemon";
/// What the charts give to daemons of ours alone.
const OURS: &str = "MULTUS_DAEMONSET";
const PATIENCE: Duration = Duration::from_secs(20);
/// More than any answer.
const MOST: u64 = 8 << 20;

/// What became of the question.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The pod has no node.
    NoNode,
    /// No daemon's pod is on the node, as far as one can see.
    NoDaemon,
    /// There is one that does not run.
    NotRunning { daemon: String, reason: String },
    /// It could not be asked.
    Refused(String),
    /// It has answered.
    Answered {
        daemon: String,
        answer: Box<PodReport>,
    },
}

impl Asked {
    /// The answer, if there is one.
    pub(crate) fn answer(&self) -> Option<&PodReport> {
        match self {
            Self::Answered { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// What could not be asked, and why.
    pub(crate) fn gap(&self) -> Option<String> {
        match self {
            Self::Refused(reason) => Some(format!("the node's daemon was not asked: {reason}")),
            _ => None,
        }
    }
}

/// A daemon's pod.
#[derive(Debug, PartialEq, Eq)]
struct Daemon {
    namespace: String,
    name: String,
    container: String,
    program: String,
    is_ours: bool,
    /// Why it does not run.
    problem: Option<String>,
}

/// Asks the daemon of a node about a pod, given as `namespace/name`.
pub(crate) async fn ask(
    cluster: &Cluster,
    node: &str,
    pod: &str,
    namespace: Option<&str>,
) -> Asked {
    if node.is_empty() {
        return Asked::NoNode;
    }
    let pods = match cluster.pods_of_node(node, namespace).await {
        Ok(pods) => pods,
        Err(reason) if namespace.is_some() => return Asked::Refused(reason),
        // Who may not list all pods may know this namespace's.
        Err(reason) => match cluster.pods_of_node(node, Some(USUAL_NAMESPACE)).await {
            Ok(pods) => pods,
            Err(_) => {
                return Asked::Refused(format!(
                    "{reason}; name the namespace of its pods with --daemon-namespace, or ask for the right to list pods"
                ));
            }
        },
    };
    let mut daemons: Vec<_> = pods.iter().filter_map(daemon).collect();
    // Of two, as in a rolling update, one that runs.
    daemons.sort_by_key(|daemon| (daemon.problem.is_some(), !daemon.is_ours));
    let Some(found) = daemons.into_iter().next() else {
        return Asked::NoDaemon;
    };
    let daemon = format!("{}/{}", found.namespace, found.name);
    if let Some(reason) = found.problem {
        return Asked::NotRunning { daemon, reason };
    }
    if !found.is_ours {
        return Asked::Refused(format!(
            "pod {daemon} is another Multus, which has no answers"
        ));
    }
    let asked = tokio::time::timeout(PATIENCE, exec(cluster, &found, pod));
    match asked.await {
        Ok(Ok(answer)) => Asked::Answered {
            daemon,
            answer: Box::new(answer),
        },
        Ok(Err(reason)) => Asked::Refused(format!("pod {daemon}: {reason}")),
        Err(_) => Asked::Refused(format!(
            "pod {daemon}: no answer within {} s",
            PATIENCE.as_secs()
        )),
    }
}

async fn exec(cluster: &Cluster, daemon: &Daemon, pod: &str) -> Result<PodReport, String> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &daemon.namespace);
    let words = [daemon.program.as_str(), "pod", pod];
    let params = AttachParams::default()
        .container(&daemon.container)
        .stdout(true)
        .stderr(true);
    let started = api.exec(&daemon.name, words, &params).await;
    let mut process = started.map_err(|error| {
        format!(
            "{}; it takes the right to create and get pods/exec in namespace {}",
            refusal(&error),
            daemon.namespace
        )
    })?;
    let (stdout, stderr) = tokio::join!(text(process.stdout()), text(process.stderr()));
    let failure = ended(process).await;
    if let Some(failure) = failure {
        let said = stderr.trim();
        if said.contains("unrecognized subcommand") {
            return Err("it is of a version before this question existed: upgrade it".to_owned());
        }
        return Err(format!("{failure}: {said}"));
    }
    read(&stdout)
}

/// Reads an answer.
fn read(text: &str) -> Result<PodReport, String> {
    let answer: PodReport = serde_json::from_str(text)
        .map_err(|error| format!("its answer cannot be read: {error}"))?;
    if answer.schema != SCHEMA {
        return Err(format!(
            "its answer has schema {}, this program reads {SCHEMA}: take one of version {}",
            answer.schema, answer.version
        ));
    }
    Ok(answer)
}

async fn text(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is what there is.
        let _ = stream.take(MOST).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Why it failed, if it did.
async fn ended(mut process: AttachedProcess) -> Option<String> {
    let status = process.take_status()?.await?;
    (status.status.as_deref() != Some("Success"))
        .then(|| status.message.unwrap_or_else(|| "it failed".to_owned()))
}

/// The daemon in a pod, if one is.
fn daemon(pod: &Value) -> Option<Daemon> {
    let text = |pointer: &str| {
        let value = pod.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let (container, program) = containers.iter().find_map(|container| {
        let words = container["command"].as_array()?.first()?.as_str()?;
        let is_daemon = words.rsplit('/').next() == Some(PROGRAM);
        // An approver has the same program and serves no node.
        let is_other = container["args"][0]
            .as_str()
            .is_some_and(|word| word != "run");
        (is_daemon && !is_other).then(|| (container, words.to_owned()))
    })?;
    let env = container["env"].as_array();
    let name = container["name"].as_str()?.to_owned();
    Some(Daemon {
        namespace: text("/metadata/namespace"),
        problem: problem(pod, &name, &text("/status/phase")),
        name: text("/metadata/name"),
        is_ours: env.is_some_and(|env| env.iter().any(|one| one["name"] == OURS)),
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
    let word = |pointer: &str| {
        let text = state?.pointer(pointer)?.as_str()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let reason = word("/waiting/reason").or_else(|| word("/terminated/reason"));
    let message = word("/waiting/message").or_else(|| word("/terminated/message"));
    let known: Vec<_> = [reason, message].into_iter().flatten().collect();
    Some(if known.is_empty() {
        format!("it is {phase}")
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
    fn daemons_are_told_from_everything_else() {
        let running = json!({"running": {}});
        let ours = json!([{"name": OURS, "value": "m"}]);
        let found = daemon(&pod(&json!(["run"]), &ours, &running)).unwrap();
        assert!(found.is_ours && found.problem.is_none());
        assert_eq!(
            (found.container.as_str(), found.program.as_str()),
            ("kube-m", "/usr/bin/multus-daemon")
        );
        let upstream = daemon(&pod(&json!(null), &json!([]), &running)).unwrap();
        assert!(!upstream.is_ours);
        assert_eq!(daemon(&pod(&json!(["approve"]), &ours, &running)), None);
        assert_eq!(
            daemon(&json!({"spec": {"containers": [{"name": "c"}]}})),
            None
        );
        let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back off"}});
        let waiting = daemon(&pod(&json!(["run"]), &ours, &state)).unwrap();
        assert_eq!(waiting.problem.unwrap(), "CrashLoopBackOff: back off");
        let nothing = daemon(&pod(&json!(["run"]), &ours, &json!({}))).unwrap();
        assert_eq!(nothing.problem.unwrap(), "it is Running");
    }

    #[test]
    fn answers_of_another_schema_are_not_guessed_at() {
        let answer = json!({"schema": SCHEMA, "version": "5", "node": "n", "options": {}, "containers": [], "failures": []});
        assert_eq!(read(&answer.to_string()).unwrap().node, "n");
        let mut newer = answer;
        newer["schema"] = json!(SCHEMA + 1);
        newer["version"] = json!("9.0.0");
        assert!(read(&newer.to_string()).unwrap_err().contains("9.0.0"));
        assert!(read("x").unwrap_err().contains("cannot be read"));
    }
}
