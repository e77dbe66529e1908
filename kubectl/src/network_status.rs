//! The network status annotation of a pod, which says what its networks have.

use plan::network_status::ANNOTATION;
use serde::Deserialize;
use serde_json::Value;

/// One entry of the network status annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkStatus {
    pub(crate) name: String,
    pub(crate) interface: String,
    pub(crate) ips: Vec<String>,
    pub(crate) mac: String,
    pub(crate) default: bool,
    pub(crate) gateway: Vec<String>,
}

/// Returns the entries of a pod's network status; `None` without the annotation.
pub(crate) fn of(object: &Value) -> Result<Option<Vec<NetworkStatus>>, String> {
    let annotation = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(ANNOTATION))
        .and_then(Value::as_str);
    annotation
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| format!("the pod's network status cannot be read: {error}"))
}
