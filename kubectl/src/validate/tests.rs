//! Objects as users write them, and the diagnostics about them.

use serde_json::json;

use super::*;
use crate::object::{Object, read};

fn objects(all: &[Value]) -> Vec<Object> {
    all.iter()
        .flat_map(|one| read(one, "shop").unwrap())
        .collect()
}

fn options(options: Value) -> Netconf {
    let Value::Object(map) = options else {
        panic!("{options}")
    };
    netconf(map).unwrap()
}

fn texts(all: &[Value], netconf: &Netconf, is_complete: bool) -> Vec<String> {
    let objects = objects(all);
    let mut known = KnownDefinitions {
        is_complete,
        ..KnownDefinitions::default()
    };
    for object in &objects {
        if let Object::Definition(definition) = object {
            known.add(&definition.nad);
        }
    }
    let diagnostics = objects.iter().flat_map(|object| match object {
        Object::Definition(one) => definition(one, netconf),
        Object::Pod(one) => pod(one, netconf, &known),
    });
    diagnostics
        .map(|diagnostic| format!("{}: {diagnostic}", diagnostic.severity()))
        .collect()
}

/// Each expectation has parts that the text of one diagnostic contains: `error: … one part … another part`.
#[track_caller]
fn check_with(all: &[Value], netconf: &Netconf, is_complete: bool, expected: &[&str]) {
    let texts = texts(all, netconf, is_complete);
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, parts) in texts.iter().zip(expected) {
        for part in parts.split(" … ") {
            assert!(text.contains(part), "no {part:?} in {text:?}");
        }
    }
}

#[track_caller]
fn check(all: &[Value], expected: &[&str]) {
    check_with(all, &options(json!({})), false, expected);
}

fn nad(name: &str, config: &str) -> Value {
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name}, "spec": {"config": config}})
}

fn good(name: &str) -> Value {
    nad(
        name,
        r#"{"cniVersion":"1.0.0","type":"bridge","capabilities":{"ips":true},"ipam":{"type":"host-local","subnet":"10.40.0.0/24"}}"#,
    )
}

fn pod_of(networks: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": "cart", "annotations": {NETWORKS_ANNOTATION: networks}},
        "spec": {"containers": [{"name": "c"}]}})
}

#[test]
fn valid_objects_and_other_kinds_have_no_diagnostics() {
    check(&[], &[]);
    check(&[good("storage"), pod_of("storage")], &[]);
    check(&[good("storage"), pod_of("shop/storage@ext0,storage")], &[]);
    check(
        &[
            json!({"kind": "Service", "metadata": {"name": "x"}}),
            json!("text"),
            json!(null),
        ],
        &[],
    );
    check(
        &[json!({"kind": "Pod", "metadata": {"name": "plain"}, "spec": {"hostNetwork": true}})],
        &[],
    );
}

#[test]
fn master_with_the_name_of_a_tunnel_is_a_warning() {
    let on = |kind: &str, master: &str| {
        let config = json!({"cniVersion": "1.0.0", "type": kind, "master": master, "ipam": {"type": "dhcp"}});
        nad("a", &config.to_string())
    };
    for (kind, master) in [
        ("macvlan", "tailscale0"),
        ("ipvlan", "wg1"),
        ("vlan", "tun12"),
    ] {
        check(
            &[on(kind, master)],
            &[&format!(
                "warning: … {kind} … {master} … name another master"
            )],
        );
    }
    for (kind, master) in [
        ("macvlan", "eth0"),
        ("macvlan", "tunnel0"),
        ("macvlan", "wg"),
        ("bridge", "wg0"),
    ] {
        check(&[on(kind, master)], &[]);
    }
}

#[test]
fn invalid_definitions_are_errors() {
    check(&[nad("a", "{")], &["error: … shop/a … not a JSON object"]);
    check(
        &[nad("a", r#"{"cniVersion":"1.0.0"}"#)],
        &["error: … shop/a"],
    );
    check(
        &[nad("a", r#"{"cniVersion":"1.0.0","plugins":[]}"#)],
        &["error: … shop/a"],
    );
    check(
        &[nad("a", r#"{"cniVersion":"1.0.0","type":"multus"}"#)],
        &["error: … own delegate"],
    );
    check(
        &[nad("a", r#"{"cniVersion":"7.0.0","type":"bridge"}"#)],
        &["error: … 7.0.0 … 1.1.0"],
    );
    check(
        &[nad("a", r#"{"cniVersion":"x","type":"bridge"}"#)],
        &["error: … cniVersion"],
    );
    check(&[nad("a", " ")], &["note: … \"a\" … /etc/cni/multus/net.d"]);
    let mut object = good("a");
    object["spec"]["config"] = json!({"type": "bridge"});
    check(&[object], &["error: … must be text"]);
    let mut object = good("a");
    object["apiVersion"] = json!("k8s.cni.cncf.io/v1beta1");
    check(&[object], &["error: … v1beta1"]);
    let mut object = good("a");
    object["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/resourcename": "x/y"});
    check(
        &[object],
        &["error: … resourcename … did you mean k8s.v1.cni.cncf.io/resourceName"],
    );
    check(&[good("a.b")], &["warning: … short form … a.b"]);
}

#[test]
fn annotations_are_parsed_as_by_the_daemon() {
    for (text, parts) in [
        ("a/b/c", "error: … shop/cart … Invalid network object"),
        ("Storage", "error: … \"Storage\" … lower case"),
        ("storage@averyveryverylongname", "error: … interface name"),
        ("[{\"name\":\"storage\"", "error: … not valid JSON"),
        ("{\"name\":\"storage\"}", "error: … put [ ] around it"),
        (
            "[{\"name\":\"storage\",\"mac\":\"x\"}]",
            "error: … hardware address",
        ),
    ] {
        check(&[good("storage"), pod_of(text)], &[parts]);
    }
    let mut pod = pod_of("storage");
    pod["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/network": "storage"});
    check(
        std::slice::from_ref(&pod),
        &["error: … did you mean k8s.v1.cni.cncf.io/networks?"],
    );
    pod["metadata"]["annotations"] =
        json!({"k8s.cni.cncf.io/networks": "storage", "k8s.v1.cni.cncf.io/network-status": "[]"});
    check(
        std::slice::from_ref(&pod),
        &["error: … ignores annotation k8s.cni.cncf.io/networks"],
    );
    pod["metadata"]["annotations"] = json!({LEGACY_ANNOTATION: "storage"});
    check(
        std::slice::from_ref(&pod),
        &["warning: … legacyNetworksAnnotation"],
    );
    let own = options(json!({"legacyNetworksAnnotation": true}));
    check_with(&[good("storage"), pod], &own, true, &[]);
}

#[test]
fn every_network_of_a_pod_is_validated() {
    check(
        &[pod_of("one,two")],
        &["warning: … shop/one", "warning: … shop/two"],
    );
    let defaults = options(json!({}));
    check_with(
        &[pod_of("one,two")],
        &defaults,
        true,
        &["error: … (one) … create it", "error: … (two)"],
    );
    let isolated = options(json!({"namespaceIsolation": true}));
    check_with(
        &[pod_of("other/one")],
        &isolated,
        false,
        &["error: … namespace isolation"],
    );
    check_with(
        &[pod_of("default/one")],
        &isolated,
        false,
        &["warning: … default/one"],
    );
}

#[test]
fn unserved_requests_are_warnings_or_errors_as_the_daemons_options_say() {
    let all = [
        good("storage"),
        pod_of(r#"[{"name":"storage","portMappings":[{"hostPort":1,"containerPort":2}]}]"#),
    ];
    let parts = "shop/storage … portMappings … add the capability";
    check(&all, &[&format!("warning: … starts without it … {parts}")]);
    check_with(
        &all,
        &options(json!({"unservedRequests": "error"})),
        false,
        &[&format!("error: … {parts}")],
    );
    check_with(
        &all,
        &options(json!({"unservedRequests": "silent"})),
        true,
        &[],
    );
    let allowed = options(json!({"allowedPlugins": ["macvlan"]}));
    check_with(
        &[good("storage")],
        &allowed,
        true,
        &["error: … bridge … allowedPlugins"],
    );
}

#[test]
fn conflicting_networks_of_one_pod_are_errors() {
    check(
        &[good("storage"), pod_of("storage@ext0,storage@ext0")],
        &["error: … ext0 … shop/storage"],
    );
    check(
        &[good("storage"), pod_of("storage@eth0")],
        &["error: … eth0"],
    );
    check(
        &[good("storage"), pod_of("storage@net2,storage")],
        &["error: … net2"],
    );
    check(
        &[
            good("storage"),
            pod_of(
                r#"[{"name":"storage","default-route":["10.0.0.1"]},{"name":"storage","default-route":["10.0.0.2"]}]"#,
            ),
        ],
        &["error: … default-route"],
    );
}

#[test]
fn a_default_network_is_validated_too() {
    let mut pod = pod_of("");
    pod["metadata"]["annotations"] = json!({DEFAULT_NETWORK_ANNOTATION: "other"});
    check(
        std::slice::from_ref(&pod),
        &["warning: … kube-system/other"],
    );
    pod["metadata"]["annotations"] = json!({DEFAULT_NETWORK_ANNOTATION: "a,b"});
    check(&[pod], &["error: … more than one default network"]);
}

#[test]
fn networks_with_a_resource_need_enough_devices() {
    let mut network = good("fast");
    network["metadata"]["annotations"] = json!({RESOURCE_ANNOTATION: "x/fast"});
    let mut pod = pod_of("fast,fast");
    check(
        &[network.clone(), pod.clone()],
        &["error: … x/fast … the pod has 0"],
    );
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1", "x/fast": "1"}});
    check(
        &[network.clone(), pod.clone()],
        &["error: … x/fast … the pod has 1"],
    );
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"x/fast": 2}});
    check(&[network.clone(), pod.clone()], &[]);
    pod["spec"]["containers"][0]["resources"] = json!({});
    pod["spec"]["resourceClaims"] = json!([{"name": "c"}]);
    check(&[network, pod], &[]);
}

#[test]
fn pod_templates_of_all_kinds_are_validated() {
    let template = json!({"metadata": {"annotations": {NETWORKS_ANNOTATION: "Storage"}}, "spec": {"containers": []}});
    for object in [
        json!({"kind": "Deployment", "metadata": {"name": "cart"}, "spec": {"template": template}}),
        json!({"kind": "CronJob", "metadata": {"name": "cart"}, "spec": {"jobTemplate": {"spec": {"template": template}}}}),
        json!({"kind": "List", "items": [{"kind": "PodTemplate", "metadata": {"name": "cart"}, "template": template}]}),
    ] {
        check(&[object], &["error: … shop/cart … lower case"]);
    }
    let misplaced = json!({"kind": "Deployment", "metadata": {"name": "cart", "annotations": {NETWORKS_ANNOTATION: "storage"}},
        "spec": {"template": {"metadata": {}, "spec": {"containers": []}}}});
    check(
        &[misplaced],
        &["error: … on the Deployment itself … pod template"],
    );
}

#[test]
fn annotations_in_other_places_are_errors() {
    let of = |key: &str| json!({"kind": "Pod", "metadata": {"name": "cart"}, key: {}});
    let mut labelled = of("spec");
    labelled["metadata"]["labels"] = json!({NETWORKS_ANNOTATION: "storage"});
    let mut below_spec = of("spec");
    below_spec["spec"]["annotations"] = json!({NETWORKS_ANNOTATION: "storage"});
    for (object, place) in [
        (labelled, "in metadata.labels,"),
        (below_spec, "in spec.annotations,"),
    ] {
        let text = format!("error: … {place} … move it to metadata.annotations of the pod");
        check(&[object], &[&text]);
    }
}

#[test]
fn annotations_that_are_not_text_are_errors() {
    let mut pod = pod_of("");
    pod["metadata"]["annotations"] =
        json!({NETWORKS_ANNOTATION: [{"name": "storage"}], "own": 7, "none": null});
    check(
        &[pod],
        &[
            "error: annotation k8s.v1.cni.cncf.io/networks must be text: put the JSON in single quotes, or write \"networks: |\" and indent it",
            "error: annotation own must be text",
        ],
    );
}

#[test]
fn objects_without_a_name_are_errors() {
    let mut network = good("a");
    network["metadata"] = json!({});
    let mut pod = pod_of("");
    pod["metadata"] = json!({});
    let missing = "error: metadata.name is missing";
    check(&[network, pod.clone()], &[missing, missing]);
    pod["metadata"] = json!({"generateName": "cart-"});
    check(&[pod], &[]);
}

#[test]
fn networks_of_virtual_machines_are_validated() {
    let networks = |name: &str| json!([{"name": "default", "pod": {}}, {"name": "second", "multus": {"networkName": name}}]);
    let machine = |name: &str| {
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm", "namespace": "other"},
            "spec": {"template": {"spec": {"domain": {}, "networks": networks(name)}}}})
    };
    let instance = |name: &str| {
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm"},
            "spec": {"networks": networks(name)}})
    };
    let storage = good("storage");
    check(
        &[
            storage.clone(),
            machine("shop/storage"),
            instance("storage"),
        ],
        &[],
    );
    check(
        &[storage.clone(), machine("storage"), instance("storag")],
        &[
            "warning: … other/storage … did you mean \"shop/storage\"?",
            "warning: … shop/storag  … did you mean \"storage\"?",
        ],
    );
}

#[test]
fn networks_of_a_host_network_pod_are_an_error() {
    let mut pod = pod_of("storage");
    pod["spec"]["hostNetwork"] = json!(true);
    let expected = format!("error: … hostNetwork … {NETWORKS_ANNOTATION}");
    check(&[pod], &[&expected]);
}

#[test]
fn options_are_parsed_as_by_the_daemon() {
    let wrong = json!({"namespaceIsolation": 7});
    let error = netconf(wrong.as_object().unwrap().clone()).unwrap_err();
    assert!(error.to_string().contains("true or false"), "{error}");
    let misspelled = json!({"namespaceIsolaton": true});
    assert!(netconf(misspelled.as_object().unwrap().clone()).is_ok());
}

#[test]
fn misspelled_plugin_types_get_a_suggestion() {
    check(
        &[nad("a", r#"{"cniVersion":"1.0.0","type":"brigde"}"#)],
        &["warning: … \"brigde\" … did you mean \"bridge\"?"],
    );
    check(
        &[nad(
            "a",
            r#"{"cniVersion":"1.0.0","plugins":[{"type":"macvlan","ipam":{"type":"host-locl","subnet":"10.1.2.0/24"}}]}"#,
        )],
        &["warning: … did you mean \"host-local\"?"],
    );
    check(
        &[nad("a", r#"{"cniVersion":"1.0.0","type":"our-plugin"}"#)],
        &["note: plugin \"our-plugin\" does not come with Multus"],
    );
}

#[test]
fn misspelled_keys_of_plugins_get_a_suggestion() {
    for (config, text) in [
        (
            r#"{"type":"macvlan","mastr":"eth0"}"#,
            "macvlan ignores key \"mastr\"; did you mean \"master\"?",
        ),
        (
            r#"{"plugins":[{"type":"vlan","master":"eth0","vlan":5}]}"#,
            "vlan ignores key \"vlan\"; did you mean \"vlanId\"?",
        ),
        (
            r#"{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.2.0/24","rangStart":"10.1.2.9"}}"#,
            "host-local ignores key \"rangStart\"; did you mean \"rangeStart\"?",
        ),
    ] {
        let config = config.replacen('{', r#"{"cniVersion":"1.0.0","#, 1);
        check(&[nad("a", &config)], &[&format!("warning: … {text}")]);
    }
    let others = r#"{"cniVersion":"1.0.0","type":"own","mastr":"eth0","ipam":{"type":"other","rangStart":"x"}}"#;
    check(&[nad("a", others)], &["note: ", "note: "]);
}

#[test]
fn host_device_needs_a_device() {
    let mut network = nad("a", r#"{"cniVersion":"1.0.0","type":"host-device"}"#);
    check(
        std::slice::from_ref(&network),
        &["error: host-device has no device … resource"],
    );
    network["metadata"]["annotations"] = json!({RESOURCE_ANNOTATION: "x/fast"});
    check(&[network], &[]);
}

#[test]
fn faulty_requests_of_a_network_are_reported() {
    let network = nad(
        "a",
        r#"{"cniVersion":"1.0.0","type":"ipvlan","ipam":{"type":"static"}}"#,
    );
    let requests = r#"[{"name":"a","ips":["192.168.1.50"],"mac":"02:00:00:00:00:01"}]"#;
    check(
        &[network.clone(), pod_of(requests)],
        &[
            "warning: network shop/a: ipvlan does not take the hardware address",
            "error: network shop/a: static needs 192.168.1.50  … write 192.168.1.50/24",
        ],
    );
    // The plan is made nevertheless.
    let requests =
        r#"[{"name":"a","ips":["192.168.1.50/24"],"mac":"02:00:00:00:00:01","interface":"eth0"}]"#;
    check(
        &[network, pod_of(requests)],
        &["warning: ", "error: … eth0 … already used"],
    );
}

#[test]
fn slips_in_names_of_networks_are_reported() {
    for (text, parts) in [
        (
            "storage@",
            "warning: \"storage@\" has nothing before '/' or after '@'",
        ),
        ("/storage", "warning: \"/storage\" has nothing"),
        ("storage@lo", "error: interface lo of network storage "),
        (
            r#"[{"name":"voip/lan"}]"#,
            "error: … put the namespace in \"namespace\", or write voip/lan in the short form",
        ),
    ] {
        check(&[good("storage"), pod_of(text)], &[parts]);
    }
}

#[test]
fn configurations_that_their_plugin_refuses_are_reported() {
    for (config, expected) in [
        (
            r#"{"type":"macvlan","mode":"brigde"}"#,
            "macvlan refuses its configuration: unknown macvlan mode: \"brigde\"",
        ),
        (
            r#"{"type":"vlan","master":"eth1","vlanId":5000}"#,
            "vlan refuses its configuration: invalid VLAN ID 5000",
        ),
        (
            r#"{"type":"bridge","mtu":"1500"}"#,
            "bridge refuses its configuration: failed to load netconf: ",
        ),
        (
            r#"{"type":"tuning","sysctl":{"kernel.msgmax":"1"}}"#,
            "tuning refuses its configuration: invalid net sysctl key",
        ),
    ] {
        let config = config.replacen('{', r#"{"cniVersion":"1.0.0","#, 1);
        check(&[nad("a", &config)], &[&format!("error: … {expected}")]);
    }
}

#[test]
fn invalid_addresses_are_reported() {
    let of = |ipam: &str| {
        let config = format!(r#"{{"cniVersion":"1.0.0","type":"bridge","ipam":{ipam}}}"#);
        nad("a", &config)
    };
    check(
        &[of(r#"{"type":"host-local","subnet":"10.1.2.9/24"}"#)],
        &["error: … host-local refuses its configuration … the network address is 10.1.2.0"],
    );
    check(
        &[of(
            r#"{"type":"host-local","subnet":"10.1.2.0/24","gateway":"10.1.3.1"}"#,
        )],
        &["warning: … outside the network of 10.1.2.0/24"],
    );
    for (ipam, expected) in [
        (
            r#"{"type":"host-local","ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"fd00::/64"}]]}"#,
            "invalid range set 0: mixed address families",
        ),
        (
            r#"{"type":"host-local","ranges":[[]]}"#,
            "invalid range set 0: empty range set",
        ),
        (
            r#"{"type":"host-local","subnet":"10.1.2.0/24","routes":[{"dst":"10.1.0.0/33"}]}"#,
            "invalid CIDR address: 10.1.0.0/33",
        ),
    ] {
        check(&[of(ipam)], &[&format!("error: … {expected}")]);
    }
    let pod = |address: &str| pod_of(&format!(r#"[{{"name":"storage","ips":["{address}"]}}]"#));
    check(&[good("storage"), pod("10.40.0.77/24")], &[]);
    check(
        &[good("storage"), pod("10.41.0.77/24")],
        &["error: … 10.41.0.77/24 … shop/storage … 10.40.0.1 to 10.40.0.254"],
    );
}

#[test]
fn unknown_keys_of_the_annotation_are_warnings() {
    check(
        &[
            good("storage"),
            pod_of(r#"[{"name":"storage","interfaces":"x","Interface":"ext0"}]"#),
        ],
        &["warning: … key \"interfaces\" of entry 1 … did you mean \"interface\"?"],
    );
    check(
        &[
            good("storage"),
            pod_of(r#"[{"name":"storage","owner":"me"}]"#),
        ],
        &["warning: … \"owner\" … is ignored"],
    );
}

#[test]
fn unknown_networks_get_a_suggestion() {
    check(
        &[good("storage"), pod_of("storag")],
        &["warning: … shop/storag … did you mean \"storage\"?"],
    );
    let defaults = options(json!({}));
    check_with(
        &[good("storage"), pod_of("storag")],
        &defaults,
        true,
        &["error: … (storag) … did you mean \"storage\"?"],
    );
    check_with(
        &[good("storage"), pod_of("other/storage")],
        &defaults,
        true,
        &["error: … did you mean \"shop/storage\"?"],
    );
    let of = |namespace: &str| {
        let mut network = good("lan");
        network["metadata"]["namespace"] = json!(namespace);
        network
    };
    let networks = [of("default"), of("voip"), of("work")];
    for (text, meant) in [
        ("voip/lna", "\"lan\"?"),
        ("voip2/lan", "\"voip/lan\"?"),
        ("wokr/lan", "\"work/lan\"?"),
    ] {
        let all = [&networks[..], &[pod_of(text)]].concat();
        check(&all, &[&format!("warning: … did you mean … {meant}")]);
    }
}

#[test]
fn keys_are_read_in_any_case_as_plugins_read_them() {
    let config = r#"{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "IPAM": {"Type": "host-locl"}}"#;
    let objects = objects(&[nad("lan", config)]);
    let Object::Definition(definition) = &objects[0] else {
        panic!("{objects:?}")
    };
    let netconf = options(json!({}));
    assert_eq!(ipam_types(&definition.nad, &netconf), ["host-locl"]);
    let all = super::definition(definition, &netconf);
    let text = format!(
        "{:?}",
        all.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    assert!(text.contains("host-local"), "{text}");
}

#[test]
fn selectors_of_nodes_are_read_and_compared() {
    let definition = |name: &str, selector: &str| {
        let mut nad = nad(name, r#"{"cniVersion": "1.0.0", "type": "macvlan"}"#);
        nad["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/nodeSelector": selector});
        nad
    };
    let pod = |networks: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart", "annotations":
            {"k8s.v1.cni.cncf.io/networks": networks}}, "spec": {}})
    };
    let all = [
        definition("lan", "disk=ssd"),
        definition("same", " disk = ssd"),
        definition("wan", "disk=hdd"),
        definition("odd", "disk"),
        pod("lan,same,odd"),
        pod("same,wan"),
    ];
    check(
        &all,
        &[
            "warning: … nodeSelector is \"disk\"",
            "warning: network shop/same is for nodes with disk=ssd, and shop/wan for those with disk=hdd",
        ],
    );
}
