//! The default network of the harness, and the definitions that its pods request.

use serde_json::{Value, json};

use crate::control_plane::objects;

/// Resources that definitions name.
pub(super) const NIC: &str = "e2e.example/nic";
pub(super) const SLOW_NIC: &str = "e2e.example/slow-nic";
pub(super) const CLAIMED_NIC: &str = "e2e.example/claimed-nic";

/// Returns the default network, which is called `primary`: a list of one recorder, in the newest CNI version, so that every verb
/// reaches the plugin.
pub(super) fn default_network() -> Value {
    json!({"cniVersion": "1.1.0", "name": "primary", "plugins": [
        {"type": "recorder", "address": "10.65.0.2/24", "capabilities": {"portMappings": true}, "ipam": {"type": "none"}},
    ]})
}

/// Returns all objects. They exist before a daemon starts, so that no case depends on the watch of definitions.
pub(super) fn all() -> Vec<Value> {
    let mut objects: Vec<Value> = ["other", "shared", "quiet"]
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .into();
    for name in ["a", "b", "c"] {
        objects.push(objects::network(name, &recorder(name, &json!({}))));
    }
    objects.extend(special());
    objects.extend(broken());
    objects.extend(elsewhere());
    objects.extend(with_devices());
    objects.extend(bridges());
    objects.push(objects::storage());
    objects
}

/// Returns a configuration of one recorder with further keys.
pub(super) fn recorder(name: &str, keys: &Value) -> Value {
    let mut config = json!({"cniVersion": "1.0.0", "name": name, "type": "recorder"});
    for (key, value) in keys.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

fn special() -> Vec<Value> {
    let capabilities = json!({"ips": true, "mac": true, "bandwidth": true, "portMappings": true, "deviceID": true, "CNIDeviceInfoFile": true});
    let mut bare = recorder("", &json!({"zeta": 1, "alpha": {"deep": [1, 2]}}));
    if let Some(map) = bare.as_object_mut() {
        map.shift_remove("name");
    }
    vec![
        objects::network(
            "capable",
            &recorder("capable", &json!({"capabilities": capabilities})),
        ),
        objects::network("nameless", &bare),
        objects::network(
            "list",
            &json!({"cniVersion": "1.0.0", "name": "list", "plugins": [
                {"type": "recorder", "first": true}, {"type": "recorder-other", "capabilities": {"mac": true}},
            ]}),
        ),
        objects::network("old", &recorder("old", &json!({"cniVersion": "0.3.1"}))),
        objects::network(
            "oldest",
            &recorder("oldest", &json!({"cniVersion": "0.2.0"})),
        ),
        objects::network(
            "newest",
            &recorder("newest", &json!({"cniVersion": "1.1.0"})),
        ),
        // A floating-point number would lose digits of these.
        objects::network(
            "exact",
            &recorder(
                "exact",
                &json!({"big": 9_007_199_254_740_993_u64, "text": "<&>"}),
            ),
        ),
        objects::network("with.dots", &recorder("dotted", &json!({}))),
        objects::network(
            "fabric",
            &recorder("fabric", &json!({"capabilities": {"infinibandGUID": true}})),
        ),
        objects::network(
            "versionless",
            &json!({"name": "versionless", "type": "recorder"}),
        ),
        empty("on-disk"),
        empty("recorder-plain"),
        empty("nowhere-on-disk"),
    ]
}

/// Real networks for one pod at a time, without default routes and with one of IPv4.
fn bridges() -> Vec<Value> {
    let of = |name: &str, net: u8, routes: &Value| {
        let ipam = json!({"type": "static", "routes": routes, "addresses": [
            {"address": format!("10.{net}.0.2/24"), "gateway": format!("10.{net}.0.1")}, {"address": format!("fd{net}::2/64")},
        ]});
        let bridge = format!("e2e-br{net}");
        objects::network(
            name,
            &json!({"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": bridge, "ipam": ipam}),
        )
    };
    let old = |name: &str, version: &str| {
        let ipam = json!({"type": "static", "addresses": [{"address": "10.73.0.2/24"}]});
        objects::network(
            name,
            &json!({"cniVersion": version, "name": name, "type": "bridge", "bridge": "e2e-br73", "ipam": ipam}),
        )
    };
    vec![
        of("lan", 71, &json!([])),
        of("lan-routed", 72, &json!([{"dst": "0.0.0.0/0"}])),
        old("lan-v02", "0.2.0"),
        old("lan-v03", "0.3.1"),
        old("lan-v04", "0.4.0"),
        old("lan-v11", "1.1.0"),
    ]
}

fn broken() -> Vec<Value> {
    let text = |name: &str, config: &str| {
        let mut object = objects::network(name, &Value::Null);
        object["spec"]["config"] = json!(config);
        object
    };
    vec![
        objects::network(
            "absent-plugin",
            &json!({"cniVersion": "1.0.0", "name": "absent-plugin", "type": "e2e-no-such-plugin"}),
        ),
        objects::network(
            "no-plugins",
            &json!({"cniVersion": "1.0.0", "name": "no-plugins", "plugins": []}),
        ),
        objects::network(
            "no-type",
            &json!({"cniVersion": "1.0.0", "name": "no-type"}),
        ),
        text("no-json", "{\"cniVersion\": \"1.0.0\","),
        text("no-object", "[1, 2]"),
    ]
}

fn elsewhere() -> Vec<Value> {
    let of = |namespace: &str, name: &str| {
        let mut object = objects::network(name, &recorder(name, &json!({})));
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let mut broken = of("kube-system", "central-broken");
    broken["spec"]["config"] = json!("{");
    vec![
        of("other", "far"),
        of("shared", "common"),
        of("shared", "everyone"),
        of("kube-system", "central"),
        of("kube-system", "also-central"),
        broken,
    ]
}

/// Networks with a resource.
fn with_devices() -> Vec<Value> {
    let wants = |resource: &str, mut network: Value| {
        network["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/resourceName": resource});
        network
    };
    let capable = json!({"capabilities": {"deviceID": true, "CNIDeviceInfoFile": true}});
    let list = json!({"cniVersion": "1.0.0", "name": "nic-list", "plugins": [{"type": "recorder"}, {"type": "recorder"}]});
    let of = |name: &str, keys: &Value| objects::network(name, &recorder(name, keys));
    let mut central = of("nic-central", &json!({}));
    central["metadata"]["namespace"] = json!("kube-system");
    vec![
        wants(NIC, of("nic", &json!({}))),
        wants(NIC, of("nic-capable", &capable)),
        wants(NIC, objects::network("nic-list", &list)),
        wants(NIC, central),
        wants(SLOW_NIC, of("nic-slow", &json!({}))),
        wants(CLAIMED_NIC, of("nic-claimed", &json!({}))),
        wants("claim-by-name", of("nic-of-claim", &json!({}))),
    ]
}

fn empty(name: &str) -> Value {
    let mut object = objects::network(name, &Value::Null);
    object["spec"] = json!({});
    object
}
