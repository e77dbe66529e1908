//! Tests of the effective configuration, key by key.

use super::*;
use serde_json::json;

fn map(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn effective(request: Value, daemon: Value, auto: bool) -> Result<Netconf, NetconfError> {
    Netconf::effective(request.to_string().as_bytes(), &map(daemon), auto)
}

#[test]
fn the_daemons_file_overrides_key_by_key() {
    let netconf = effective(
        json!({"cniVersion":"0.3.1","name":"n","type":"multus-shim","namespaceIsolation":true,"clusterNetwork":"/a","runtimeConfig":{"a":1}}),
        json!({"cniVersion":"0.4.0","namespaceIsolation":false,"chrootDir":"/hostroot"}),
        true,
    )
    .unwrap();
    assert_eq!(netconf.cni_version, "0.4.0");
    assert!(!netconf.namespace_isolation);
    assert_eq!(netconf.cluster_network, "/a");
    assert_eq!(netconf.runtime_config, map(json!({"a":1})));
}

#[test]
fn keys_match_in_any_case_in_both_files() {
    let netconf = effective(
        json!({"ClusterNetwork":"/a","NAMESPACEISOLATION":true,"multusnamespace":"infra"}),
        json!({"clusternetwork":"/b"}),
        true,
    )
    .unwrap();
    assert_eq!(netconf.cluster_network, "/b");
    assert!(netconf.namespace_isolation);
    assert_eq!(netconf.multus_namespace, "infra");
}

#[test]
fn unserved_requests_are_reported_in_an_event_by_default() {
    let read = |daemon| effective(json!({"clusterNetwork":"/a"}), daemon, true).unwrap();
    assert_eq!(
        read(json!({})).unsupported_requests,
        UnsupportedRequests::Event
    );
    let default = api::options::find(UnsupportedRequests::KEY)
        .unwrap()
        .default
        .unwrap();
    let default: Value = serde_json::from_str(default).unwrap();
    assert_eq!(
        read(json!({"unservedRequests": default})).unsupported_requests,
        UnsupportedRequests::Event
    );
    assert_eq!(
        read(json!({"unservedRequests": "Error"})).unsupported_requests,
        UnsupportedRequests::Error
    );
}

#[test]
fn version_auto_leaves_the_requests_version() {
    for version in [json!("auto"), json!("Auto"), json!(""), json!(null)] {
        let netconf = effective(
            json!({"cniVersion":"1.0.0","clusterNetwork":"/a"}),
            json!({"cniVersion":version}),
            true,
        )
        .unwrap();
        assert_eq!(netconf.cni_version, "1.0.0");
    }
}

#[test]
fn auto_drops_the_readiness_indicator_of_request_and_file() {
    let request = json!({"clusterNetwork":"/a","readinessIndicatorFile":"/r"});
    let daemon = json!({"readinessindicatorfile":"/d"});
    let auto = effective(request.clone(), daemon.clone(), true).unwrap();
    assert_eq!(auto.readiness_indicator_file, None);
    let fixed = effective(request, daemon, false).unwrap();
    assert_eq!(fixed.readiness_indicator_file, Some("/d".into()));
}

#[test]
fn null_is_absent_and_defaults_apply() {
    let netconf = effective(
        json!({"clusterNetwork":"/a","confDir":null,"globalNamespaces":null}),
        json!({}),
        true,
    )
    .unwrap();
    assert_eq!(netconf.conf_dir, PathBuf::from("/etc/cni/multus/net.d"));
    assert_eq!(netconf.cni_dir, PathBuf::from("/var/lib/cni/multus"));
    assert_eq!(netconf.bin_dir, None);
    assert_eq!(netconf.global_namespaces, ["default"]);
    assert_eq!(netconf.system_namespaces, ["kube-system"]);
    assert_eq!(netconf.valid_attachments, None);
}

#[test]
fn global_namespaces_replace_the_default_list() {
    let netconf = effective(
        json!({"clusterNetwork":"/a","globalNamespaces":"infra , nets"}),
        json!({}),
        true,
    )
    .unwrap();
    assert_eq!(netconf.global_namespaces, ["infra", "nets"]);
}

#[test]
fn paths_are_those_of_the_node_in_both_files() {
    let netconf = effective(
        json!({
            "clusterNetwork": "/host/etc/cni/net.d/10-calico.conflist", "cniDir": "/host/state",
            "defaultNetworks": ["mgmt", "/host/etc/cni/net.d/20-a.conf"], "readinessindicatorfile": "/host/run/ready",
        }),
        json!({"cniDir": "/hostroot/var/lib/cni/multus", "confDir": "/host/etc/cni/multus/net.d", "binDir": "/host/opt/cni/bin"}),
        false,
    )
    .unwrap();
    assert_eq!(netconf.cluster_network, "/etc/cni/net.d/10-calico.conflist");
    assert_eq!(
        netconf.default_networks,
        ["mgmt", "/etc/cni/net.d/20-a.conf"]
    );
    assert_eq!(netconf.cni_dir, PathBuf::from("/var/lib/cni/multus"));
    assert_eq!(netconf.conf_dir, PathBuf::from("/etc/cni/multus/net.d"));
    assert_eq!(netconf.bin_dir, Some("/opt/cni/bin".into()));
    assert_eq!(netconf.readiness_indicator_file, Some("/run/ready".into()));
}

#[test]
fn switches_of_deleting_and_checking() {
    let read = |request: Value| effective(request, json!({"clusterNetwork": "/a"}), true);
    let netconf = read(json!({})).unwrap();
    assert_eq!(
        (
            netconf.retry_delete_on_error,
            netconf.disable_check,
            netconf.disable_gc
        ),
        (None, false, false)
    );
    let netconf =
        read(json!({"retryDeleteOnError": false, "disableCheck": true, "disableGC": true}));
    let netconf = netconf.unwrap();
    assert_eq!(
        (
            netconf.retry_delete_on_error,
            netconf.disable_check,
            netconf.disable_gc
        ),
        (Some(false), true, true)
    );
}

#[test]
fn unusable_configurations_have_a_reason() {
    let text = |request: Value| effective(request, json!({}), true).unwrap_err().to_string();
    assert!(text(json!({"name":"n"})).contains("at least one delegate/clusterNetwork"));
    assert!(text(json!({"clusterNetwork":3})).contains("\"clusterNetwork\" must be a string"));
    assert!(text(json!({"delegates":[1]})).contains("\"delegates\" must be a list of objects"));
    assert!(text(json!([])).contains("not a JSON object"));
}

#[test]
fn valid_attachments_of_gc_are_read_from_either_key() {
    let entry = json!([{"containerID":"c1","ifname":"eth0"}]);
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        let netconf =
            effective(json!({"clusterNetwork":"/a", key: entry}), json!({}), true).unwrap();
        assert_eq!(
            netconf.valid_attachments,
            Some(vec![ValidAttachment {
                container_id: "c1".into(),
                ifname: "eth0".into()
            }])
        );
    }
    let none = effective(
        json!({"clusterNetwork":"/a","cni.dev/valid-attachments":null}),
        json!({}),
        true,
    );
    assert_eq!(none.unwrap().valid_attachments, Some(vec![]));
}

#[test]
fn an_unreadable_previous_result_is_an_error() {
    let check = |previous: Value| {
        let request = json!({"clusterNetwork": "x", "cniVersion": "1.0.0", "prevResult": previous});
        let netconf = Netconf::effective(request.to_string().as_bytes(), &Map::new(), true);
        netconf.unwrap().check_prev_result()
    };
    check(Value::Null).unwrap();
    check(json!({"ips": [{"address": "10.0.0.2/24"}]})).unwrap();
    check(json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}})).unwrap();
    check(json!({"ips": "none"})).unwrap_err();
    check(json!("none")).unwrap_err();
}
