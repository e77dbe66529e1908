//! The DRA driver (v1): claims need nothing on the node. What it has is in a slice that the test publishes.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use prost::Message as _;
use serde_json::{Value, json};

use crate::grpc::{self, Answer};

/// The argument that makes this program the driver.
pub(crate) const NAME: &str = "dra-driver";
/// Its name in the cluster.
pub(crate) const DRIVER: &str = "dra.e2e.example";
/// What definitions call its devices.
pub(crate) const RESOURCE: &str = "e2e.example/claimed-nic";
/// Devices, and what plugins call them.
pub(crate) const DEVICES: [(&str, &str); 2] =
    [("nic-one", "0000:5e:00.1"), ("nic-two", "0000:5e:00.2")];
const REGISTRATION: &str = "/var/lib/kubelet/plugins_registry/dra.e2e.example-reg.sock";
const SOCKET: &str = "/var/lib/kubelet/plugins/dra.e2e.example/dra.sock";

/// Serves the kubelet, which finds its registration by itself.
pub(crate) fn run() -> anyhow::Result<()> {
    super::threads()?.block_on(async {
        let served = tokio::spawn(grpc::serve(Path::new(SOCKET), Arc::new(answer)));
        tokio::select! {
            ended = grpc::serve(Path::new(REGISTRATION), Arc::new(register)) => ended,
            ended = served => ended?,
        }
    })
}

/// The class that claims name, and the node's devices.
pub(crate) fn objects(node: &str) -> [Value; 2] {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "nic"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]},
    });
    let devices = DEVICES.map(|(name, id)| {
        json!({"name": name, "attributes": {
            "k8s.cni.cncf.io/deviceID": {"string": id}, "k8s.cni.cncf.io/resourceName": {"string": RESOURCE},
        }})
    });
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-nics")},
        "spec": {"driver": DRIVER, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
    });
    [class, slice]
}

fn register(path: &str, _: &[u8]) -> Answer {
    let info = PluginInfo {
        kind: "DRAPlugin".to_owned(),
        name: DRIVER.to_owned(),
        endpoint: SOCKET.to_owned(),
        supported_versions: vec!["v1.DRAPlugin".to_owned()],
    };
    match path {
        "/pluginregistration.Registration/GetInfo" => Answer::One(info.encode_to_vec()),
        "/pluginregistration.Registration/NotifyRegistrationStatus" => Answer::One(Vec::new()),
        _ => Answer::Unknown,
    }
}

fn answer(path: &str, message: &[u8]) -> Answer {
    let known = [
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
    ];
    match Claims::decode(message) {
        Ok(request) if known.contains(&path) => {
            let done = request
                .claims
                .into_iter()
                .map(|claim| (claim.uid, Outcome::default()));
            Answer::One(
                Done {
                    claims: done.collect(),
                }
                .encode_to_vec(),
            )
        }
        _ => Answer::Unknown,
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct PluginInfo {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    endpoint: String,
    #[prost(string, repeated, tag = "4")]
    supported_versions: Vec<String>,
}

/// Both requests are alike, and both answers: no error, and nothing for the runtime.
#[derive(Clone, PartialEq, prost::Message)]
struct Claims {
    #[prost(message, repeated, tag = "1")]
    claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Claim {
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Done {
    #[prost(btree_map = "string, message", tag = "1")]
    claims: BTreeMap<String, Outcome>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Outcome {
    #[prost(string, tag = "2")]
    error: String,
}
