//! Scenes out of objects, as the API server and daemons send them.

use plan::NETWORKS_ANNOTATION;
use serde_json::{Value, json};

use super::*;
use crate::object::{Object, read};

/// The time of these tests, in seconds since 1970.
pub(crate) const NOW: u64 = 1_767_232_800;

/// What a scene is made of.
pub(crate) struct Given {
    pub(crate) pod: Value,
    pub(crate) nads: Vec<Value>,
    pub(crate) events: Vec<Event>,
    /// The answer of the node's daemon.
    pub(crate) asked: Option<Value>,
    /// Other pods of the node.
    pub(crate) neighbours: Vec<Value>,
    /// `DaemonSets` and nodes of the cluster, where somebody looks.
    pub(crate) daemon_sets: Option<Vec<Value>>,
    pub(crate) nodes: Vec<Value>,
    instead: Instead,
}

/// What is there in place of an answer.
enum Instead {
    Refusal,
    NoDaemon,
    Stopped(String),
}

impl Given {
    /// A pod in namespace `shop` that was just taken by its node; the daemon there is not to be asked.
    pub(crate) fn pod(networks: &str) -> Self {
        Self {
            pod: json!({
                "metadata": {"namespace": "shop", "name": "cart", "uid": "u-1", "annotations": {NETWORKS_ANNOTATION: networks}},
                "spec": {"nodeName": "node-a", "containers": [{"name": "c"}]},
                "status": {"phase": "Pending"},
            }),
            nads: Vec::new(),
            events: Vec::new(),
            asked: None,
            neighbours: Vec::new(),
            daemon_sets: None,
            nodes: Vec::new(),
            instead: Instead::Refusal,
        }
    }

    /// A network of the pod's namespace, in place of one of that name.
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
            count: 1,
            at,
        });
    }

    pub(crate) fn refused(&mut self) {
        (self.asked, self.instead) = (None, Instead::Refusal);
    }

    pub(crate) fn no_daemon(&mut self) {
        (self.asked, self.instead) = (None, Instead::NoDaemon);
    }

    pub(crate) fn stopped_daemon(&mut self, reason: &str) {
        (self.asked, self.instead) = (None, Instead::Stopped(reason.to_owned()));
    }

    pub(crate) fn scene(&self) -> Scene {
        let facts = Facts::read(&self.pod).unwrap();
        let asked = match (&self.asked, &self.instead) {
            _ if facts.node.is_empty() => Asked::NoNode,
            (Some(answer), _) => Asked::Answered {
                daemon: "kube-system/multus-1".to_owned(),
                answer: Box::new(serde_json::from_value(answer.clone()).unwrap()),
            },
            (None, Instead::Refusal) => Asked::Refused("forbidden".to_owned()),
            (None, Instead::NoDaemon) => Asked::NoDaemon,
            (None, Instead::Stopped(reason)) => Asked::NotRunning {
                daemon: "kube-system/multus-1".to_owned(),
                reason: reason.clone(),
            },
        };
        let mut known = Known {
            is_whole: true,
            ..Known::default()
        };
        for nad in &self.nads {
            for object in read(nad, "shop").unwrap() {
                if let Object::Definition(definition) = object {
                    known.add(&definition.nad);
                }
            }
        }
        let options = asked.answer().map(|answer| answer.options.clone());
        Scene {
            netconf: judge::netconf(options.unwrap_or_else(lenient)).unwrap(),
            facts,
            events: self.events.clone(),
            known,
            asked,
            neighbours: self
                .neighbours
                .iter()
                .map(|pod| Facts::read(pod).unwrap())
                .collect(),
            outage: Outage::of(self.daemon_sets.as_deref(), &self.nodes),
            unread: Vec::new(),
        }
    }
}

/// The answer of a daemon that serves pods and knows nothing of this one.
pub(crate) fn answer() -> Value {
    json!({"schema": 1, "version": "5.0.0", "node": "node-a", "options": {}, "containers": [], "failures": []})
}

/// One network of a container.
pub(crate) fn attachment(network: &str, interface: &str, progress: &str) -> Value {
    json!({"network": network, "interface": interface, "plugins": ["macvlan"], "progress": progress, "addresses": []})
}
