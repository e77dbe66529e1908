//! A fixture that makes snapshots from objects as the API server and daemons send them.

use plan::NETWORKS_ANNOTATION;
use serde_json::{Value, json};

use super::*;
use crate::object::{Object, read};

/// The time of these tests, in seconds since 1970.
pub(crate) const NOW: u64 = 1_767_232_800;

/// The parts of a pod's snapshot.
pub(crate) struct PodFixture {
    pub(crate) pod: Value,
    pub(crate) nads: Vec<Value>,
    pub(crate) events: Vec<Event>,
    /// The answer of the node's daemon.
    pub(crate) answer: Option<Value>,
    /// Other pods of the node.
    pub(crate) neighbours: Vec<Value>,
    /// `DaemonSets` and nodes of the cluster; `None` when they were not read.
    pub(crate) daemon_sets: Option<Vec<Value>>,
    pub(crate) nodes: Vec<Value>,
    without_answer: WithoutAnswer,
}

/// The reason why there is no answer.
enum WithoutAnswer {
    Refused,
    NoDaemon,
    Stopped(String),
}

impl PodFixture {
    /// A pod in namespace `shop` that its node has just accepted; the daemon there cannot be queried.
    pub(crate) fn pod(networks: &str) -> Self {
        Self {
            pod: json!({
                "metadata": {"namespace": "shop", "name": "cart", "uid": "u-1", "annotations": {NETWORKS_ANNOTATION: networks}},
                "spec": {"nodeName": "node-a", "containers": [{"name": "c"}]},
                "status": {"phase": "Pending"},
            }),
            nads: Vec::new(),
            events: Vec::new(),
            answer: None,
            neighbours: Vec::new(),
            daemon_sets: None,
            nodes: Vec::new(),
            without_answer: WithoutAnswer::Refused,
        }
    }

    /// Adds or replaces a network of the pod's namespace.
    pub(crate) fn define(&mut self, name: &str, config: &str) {
        self.nads.retain(|one| one["metadata"]["name"] != name);
        self.nads.push(json!({"kind": "NetworkAttachmentDefinition",
            "metadata": {"namespace": "shop", "name": name}, "spec": {"config": config}}));
    }

    pub(crate) fn event(&mut self, reason: &str, message: &str, is_warning: bool, at: u64) {
        self.events.push(Event {
            reason: reason.to_owned(),
            message: message.to_owned(),
            is_warning,
            cause: None,
            count: 1,
            at,
        });
    }

    /// Gives the newest event the cause that the daemon writes into its annotation.
    pub(crate) fn caused_by(&mut self, cause: api::cause::Cause) {
        self.events.last_mut().unwrap().cause = Some(cause);
    }

    pub(crate) fn refused(&mut self) {
        (self.answer, self.without_answer) = (None, WithoutAnswer::Refused);
    }

    pub(crate) fn no_daemon(&mut self) {
        (self.answer, self.without_answer) = (None, WithoutAnswer::NoDaemon);
    }

    pub(crate) fn stopped_daemon(&mut self, reason: &str) {
        (self.answer, self.without_answer) = (None, WithoutAnswer::Stopped(reason.to_owned()));
    }

    pub(crate) fn snapshot(&self) -> PodSnapshot {
        let pod_state = PodState::read(&self.pod).unwrap();
        let reply = match (&self.answer, &self.without_answer) {
            _ if pod_state.node.is_empty() => DaemonReply::NoNode,
            (Some(answer), _) => DaemonReply::Answered {
                daemon: "kube-system/multus-1".to_owned(),
                answer: Box::new(serde_json::from_value(answer.clone()).unwrap()),
            },
            (None, WithoutAnswer::Refused) => DaemonReply::Unavailable("forbidden".to_owned()),
            (None, WithoutAnswer::NoDaemon) => DaemonReply::NoDaemon,
            (None, WithoutAnswer::Stopped(reason)) => DaemonReply::NotRunning {
                daemon: "kube-system/multus-1".to_owned(),
                reason: reason.clone(),
            },
        };
        let mut known = KnownDefinitions {
            is_complete: true,
            ..KnownDefinitions::default()
        };
        for nad in &self.nads {
            for object in read(nad, "shop").unwrap() {
                if let Object::Definition(definition) = object {
                    known.add(&definition.nad);
                }
            }
        }
        let options = reply.answer().map(|answer| answer.options.clone());
        PodSnapshot {
            netconf: validate::netconf(options.unwrap_or_else(lenient_options)).unwrap(),
            pod_state,
            events: self.events.clone(),
            known,
            reply,
            neighbours: self
                .neighbours
                .iter()
                .map(|pod| PodState::read(pod).unwrap())
                .collect(),
            health: ClusterHealth::of(self.daemon_sets.as_deref(), &self.nodes),
            unread: Vec::new(),
        }
    }
}

/// The answer of a daemon that serves pods and has no state of this one.
pub(crate) fn answer() -> Value {
    json!({"schema": 1, "version": "5.0.0", "node": "node-a", "options": {}, "containers": [], "failures": []})
}

/// One attachment of a container in a daemon's answer.
pub(crate) fn attachment(network: &str, interface: &str, progress: &str) -> Value {
    json!({"network": network, "interface": interface, "plugins": ["macvlan"], "progress": progress, "addresses": []})
}
