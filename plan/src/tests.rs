//! Plans for the pods of a small cluster.

mod default_network;
mod default_route;
mod fixture;
mod limits;
mod original;
mod properties;
mod values;

use serde_json::json;

use super::*;
use fixture::{DEFAULT_NETWORK, Fixture, config, pod, with_default};

#[test]
fn without_an_annotation_the_plan_is_the_default_network_byte_for_byte() {
    Fixture::new().check(&pod(""), "cbr0=eth0");
    Fixture::new().check(&pod("[]"), "cbr0=eth0");
    let plan = Fixture::new().plan(None).unwrap();
    assert_eq!(plan[0].config.bytes(), DEFAULT_NETWORK.as_bytes());
}

#[test]
fn requested_interface_names_use_up_a_number() {
    let fixture = Fixture::new().bridge("shop", "a").bridge("shop", "b");
    fixture.check(&pod("a,b"), "cbr0=eth0 shop/a=net1 shop/b=net2");
    fixture.check(&pod("a,a"), "cbr0=eth0 shop/a=net1 shop/a=net2");
    fixture.check(&pod("a@ext0,b"), "cbr0=eth0 shop/a=ext0 shop/b=net2");
    fixture.check(
        &pod(r#"[{"name":"a","interface":"ext0"},{"name":"b"}]"#),
        "cbr0=eth0 shop/a=ext0 shop/b=net2",
    );
}

#[test]
fn a_definition_changes_nothing_but_a_missing_name() {
    let text = r#"{"cniVersion":"0.3.1","name":"own","type":"macvlan","x":[1.0,1e3]}"#;
    let fixture = Fixture::new().nad("shop", "a", text).bridge("shop", "b");
    let plan = fixture.plan(Some(&pod("a,b"))).unwrap();
    assert_eq!(plan[1].config.bytes(), text.as_bytes());
    assert_eq!(
        config(&plan[2]),
        json!({"cniVersion":"1.0.0","type":"bridge","name":"b"})
    );
}

#[test]
fn a_list_without_version_gets_multus_version_but_a_single_configuration_does_not() {
    let fixture = Fixture::new()
        .nad("shop", "list", r#"{"plugins":[{"type":"bridge"}]}"#)
        .nad("shop", "single", r#"{"type":"bridge"}"#);
    let plan = fixture.plan(Some(&pod("list,single"))).unwrap();
    assert_eq!(config(&plan[1])["cniVersion"], "1.0.0");
    assert_eq!(config(&plan[2]).get("cniVersion"), None);
}

#[test]
fn cni_args_reach_every_plugin() {
    let fixture = Fixture::new()
        .nad(
            "shop",
            "one",
            r#"{"type":"bridge","args":{"cni":{"a":1,"tier":"tin"}}}"#,
        )
        .nad(
            "shop",
            "list",
            r#"{"plugins":[{"type":"x"},{"type":"y","args":null}]}"#,
        )
        .nad("shop", "odd", r#"{"type":"x","args":[]}"#);
    let ask = |name: &str| {
        pod(&format!(
            r#"[{{"name":"{name}","cni-args":{{"tier":"gold"}}}}]"#
        ))
    };
    let one = fixture.plan(Some(&ask("one"))).unwrap();
    assert_eq!(config(&one[1])["args"]["cni"], json!({"a":1,"tier":"gold"}));
    let list = fixture.plan(Some(&ask("list"))).unwrap();
    for plugin in config(&list[1])["plugins"].as_array().unwrap() {
        assert_eq!(plugin["args"]["cni"], json!({"tier":"gold"}));
    }
    fixture.check_error(&ask("odd"), &["shop/odd", "must be objects"]);
}

#[test]
fn claims_reach_the_plugins_of_their_network() {
    let fixture = Fixture::new().bridge("shop", "a");
    let networks = r#"[{"name":"a","ipam-claim-reference":"vm.a","cni-args":{"tier":"gold"}},{"name":"a"},
        {"name":"a","ipam-claim-reference":"vm.b"}]"#;
    let plan = fixture.plan(Some(&pod(networks))).unwrap();
    let args = |at: usize| config(&plan[at])["args"]["cni"].clone();
    assert_eq!(
        args(1),
        json!({"tier": "gold", "ipam-claim-reference": "vm.a"})
    );
    assert_eq!(args(2), json!(null));
    assert_eq!(args(3), json!({"ipam-claim-reference": "vm.b"}));
}

#[test]
fn isolation_restricts_pods_to_their_own_and_global_namespaces() {
    let fixture = Fixture::new()
        .bridge("infra", "a")
        .bridge("default", "a")
        .bridge("shop", "a")
        .with("namespaceIsolation", json!(true));
    fixture.check(&pod("a,default/a"), "cbr0=eth0 shop/a=net1 default/a=net2");
    fixture.check_error(
        &pod("infra/a"),
        &[
            "namespace isolation enabled, annotation violates permission, pod is in namespace shop but refers to target namespace infra",
            "define a in shop, or let the admin add infra to globalNamespaces",
        ],
    );
    fixture.check_error(
        &with_default(pod(""), "infra/a"),
        &["namespace isolation enabled"],
    );
    let own = fixture.bridge("kube-system", "other");
    // A namespace that the pod writes is isolated; the cluster's owner chose the namespace of a bare name.
    own.check(&with_default(pod(""), "other"), "kube-system/other=eth0");
    own.check_error(&pod("kube-system/other"), &["namespace isolation enabled"]);
    let moved = own.with("multusNamespace", json!("infra"));
    moved.check(&with_default(pod(""), "a"), "infra/a=eth0");
    moved.check_error(
        &with_default(pod(""), "kube-system/other"),
        &["pod is in namespace shop"],
    );
    let open = moved.with("globalNamespaces", json!("infra"));
    open.check(&pod("infra/a"), "cbr0=eth0 infra/a=net1");
    open.check_error(&pod("default/a"), &["namespace isolation enabled"]);
}

#[test]
fn a_pod_may_select_another_default_network() {
    let fixture = Fixture::new()
        .bridge("kube-system", "other")
        .bridge("infra", "other")
        .bridge("shop", "a");
    fixture.check(
        &with_default(pod("a"), "other"),
        "kube-system/other=eth0 shop/a=net1",
    );
    fixture.check(&with_default(pod(""), "infra/other@up0"), "infra/other=up0");
    for (text, fragment) in [
        ("other,other", "more than one default network is specified"),
        ("[]", "no default network is specified"),
        ("", "no default network is specified"),
        (
            "missing",
            "cannot find a network-attachment-definition (missing) in namespace (kube-system)",
        ),
    ] {
        fixture.check_error(&with_default(pod(""), text), &[fragment]);
    }
}

#[test]
fn default_networks_precede_the_pods_own_and_exclude_system_namespaces() {
    let fixture = Fixture::new()
        .bridge("kube-system", "mgmt")
        .bridge("shop", "a")
        .file(
            "/etc/cni/multus/net.d/20-disk.conf",
            r#"{"name":"disk","type":"bridge"}"#,
        )
        .with("defaultNetworks", json!(["mgmt", "disk"]));
    fixture.check(
        &pod("a"),
        "cbr0=eth0 kube-system/mgmt=net1 disk=net2 shop/a=net3",
    );
    let mut system = pod("");
    system.namespace = "kube-system".to_owned();
    fixture.check(&system, "cbr0=eth0");
    let missing = fixture.with("defaultNetworks", json!(["none"]));
    missing.check_error(
        &pod(""),
        &[
            "failed to get default network none",
            "getNetDelegate: cannot find network: none",
        ],
    );
}

#[test]
fn an_empty_definition_is_read_from_disk() {
    let fixture = Fixture::new().nad("shop", "a", "").file(
        "/etc/cni/multus/net.d/1.json",
        r#"{"name":"a","type":"bridge"}"#,
    );
    fixture.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let fixture = fixture.file("/etc/cni/multus/net.d/0.d.conf/x", "a directory is none");
    fixture.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let before = fixture.file("/etc/cni/multus/net.d/0.conf", "{");
    before.check_error(&pod("a"), &["/etc/cni/multus/net.d/0.conf"]);
    let none = Fixture::new().nad("shop", "a", " ");
    none.check_error(
        &pod("a"),
        &["shop/a", "spec.config is empty", "/etc/cni/multus/net.d"],
    );
}

#[test]
fn unusable_definitions_are_refused() {
    for (config, fragment) in [
        (r#"{"plugins":[]}"#, "shop/a"),
        (r#"{"plugins":[null]}"#, "shop/a"),
        (r#"{"plugins":[{"ipam":{}}]}"#, "shop/a"),
        (r#"{"plugins":{}}"#, "shop/a"),
        ("{}", "shop/a"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("x", "not a JSON object"),
    ] {
        Fixture::new()
            .nad("shop", "a", config)
            .check_error(&pod("a"), &["network-attachment-definition", fragment]);
    }
}

#[test]
fn inline_delegates_are_the_default_network_and_additional_ones() {
    let mut fixture = Fixture::new().bridge("shop", "a").with(
        "delegates",
        json!([{"name":"one","type":"x"},{"name":"two","plugins":[{"type":"y"}]}]),
    );
    fixture.check(&pod(""), "cbr0=eth0");
    fixture.netconf["clusterNetwork"] = json!("");
    fixture.check(&pod("a"), "one=eth0 two=net1 shop/a=net2");
    fixture.netconf["delegates"] = json!([{"name":"one"}]);
    fixture.check_error(&pod(""), &["delegates[0]"]);
}

#[test]
fn a_directory_with_the_lists_name_adds_plugins() {
    let dir = "/etc/cni/net.d/cbr0";
    let fixture = Fixture::new()
        .file(&format!("{dir}/20-b.conf"), r#"{"type":"b"}"#)
        .file(&format!("{dir}/10-a.conf"), r#"{"type":"a"}"#)
        .file(&format!("{dir}/30-c.txt"), "no plugin");
    let kinds = |fixture: &Fixture| -> Vec<String> {
        let plan = fixture.plan(None).unwrap();
        plan[0]
            .config
            .plugins
            .iter()
            .map(|p| p.kind.clone())
            .collect()
    };
    assert_eq!(kinds(&fixture), ["flannel", "a", "b"]);
    let mut fixture = fixture.file(&format!("{dir}/40-d.conf/x"), "a directory");
    assert_eq!(kinds(&fixture), ["flannel", "a", "b"]);
    for yes in ["true", r#""true""#] {
        let alone =
            DEFAULT_NETWORK.replacen('{', &format!(r#"{{"loadOnlyInlinedPlugins":{yes},"#), 1);
        fixture = fixture.file("/etc/cni/net.d/10-flannel.conflist", &alone);
        assert_eq!(kinds(&fixture), ["flannel"]);
    }
    Fixture::new()
        .file(&format!("{dir}/1.conf"), "{}")
        .check_error(&pod(""), &["/etc/cni/net.d/cbr0/1.conf: has no \"type\""]);
}

#[test]
fn the_auxiliary_chain_runs_last_and_only_with_plugins() {
    let fixture = Fixture::new()
        .bridge("shop", "a")
        .with("auxiliaryCNIChainName", json!("vendor"));
    fixture.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let fixture = fixture.file("/etc/cni/net.d/vendor/1.conf", r#"{"type":"tune"}"#);
    fixture.check(&pod("a"), "cbr0=eth0 shop/a=net1 vendor=net2");
    let plan = fixture.plan(None).unwrap();
    assert_eq!(
        config(&plan[1]),
        json!({"cniVersion":"1.0.0","name":"vendor","plugins":[{"type":"passthru"},{"type":"tune"}]})
    );
    let mut fixture = fixture;
    for (own, expected) in [("", "0.3.1"), ("0.2.0", "0.3.1"), ("0.3.0", "0.3.0")] {
        fixture = fixture.with("cniVersion", json!(own));
        assert_eq!(
            config(&fixture.plan(None).unwrap()[1])["cniVersion"],
            expected
        );
    }
    fixture
        .bridge("kube-system", "main")
        .with("clusterNetwork", json!("main"))
        .check_error(
            &pod(""),
            &["auxiliaryCNIChainName \"vendor\" needs a clusterNetwork that is a path"],
        );
}

#[test]
fn annotation_errors_name_pod_and_annotation() {
    Fixture::new().check_error(
        &pod("a/b/c"),
        &["pod shop/cart-0", NETWORKS_ANNOTATION, "failed at '/'"],
    );
    Fixture::new().check_error(
        &pod("nope"),
        &["cannot find a network-attachment-definition (nope) in namespace (shop)"],
    );
    let error = Fixture::new().plan(Some(&pod("nope"))).unwrap_err();
    assert_eq!(error.event(), Some("NoNetworkFound"));
}

#[test]
fn errors_tell_whether_their_text_names_the_pod() {
    let only_macvlan = || Fixture::new().with("allowedPlugins", json!(["macvlan"]));
    for (fixture, networks, expected) in [
        (Fixture::new(), "a/b/c", true),
        (only_macvlan(), "", true),
        (Fixture::new(), "nope", false),
    ] {
        let error = fixture.plan(Some(&pod(networks))).unwrap_err();
        assert_eq!(error.names_pod(), expected, "{error}");
        assert_eq!(
            error.to_string().contains("shop/cart-0"),
            expected,
            "{error}"
        );
    }
    let error = pod("").check_uid(Some("other")).unwrap_err();
    assert!(error.names_pod() && error.to_string().contains("shop/cart-0"));
}

/// Any user who may create definitions writes them, so no content may make the plan panic.
#[test]
fn no_definition_makes_the_plan_panic() {
    let seed =
        r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"x","args":{"cni":{}}},null]}"#;
    let ask = pod(r#"[{"name":"a","cni-args":{"k":1}}]"#);
    for end in 0..=seed.len() {
        for insert in ["", "{", "}", "[", "]", "null", "\"", ",", ":", "1", "é"] {
            let config = format!("{}{insert}{}", &seed[..end], &seed[end..]);
            let _ = Fixture::new().nad("shop", "a", &config).plan(Some(&ask));
            let cut = format!("{}{insert}", &seed[..end]);
            let _ = Fixture::new().nad("shop", "a", &cut).plan(Some(&ask));
        }
    }
}

#[test]
fn only_allowed_plugins_are_planned() {
    let fixture = Fixture::new().bridge("shop", "a").nad(
        "shop",
        "b",
        r#"{"type":"macvlan","ipam":{"type":"dhcp"}}"#,
    );
    let allow = |fixture: Fixture, names: &[&str]| fixture.with("allowedPlugins", json!(names));
    let fixture = allow(fixture, &[]);
    fixture.check(&pod("a,b"), "cbr0=eth0 shop/a=net1 shop/b=net2");
    let fixture = allow(fixture, &["flannel", "bridge", "macvlan"]);
    fixture.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let parts = [
        "pod shop/cart-0",
        "network shop/b",
        "plugin dhcp",
        "allowedPlugins",
    ];
    fixture.check_error(&pod("a,b"), &parts);
    let fixture = allow(fixture, &["bridge"]);
    fixture.check_error(&pod("a"), &["network cbr0", "plugin flannel"]);
    let error = fixture.plan(None).unwrap_err();
    assert_eq!(cni::CniError::from(error).code, 7);
}
