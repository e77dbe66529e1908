//! Plans for the pods of a small cluster.

mod default_network;
mod default_route;
mod original;
mod properties;
mod values;
mod world;

use serde_json::json;

use super::*;
use world::{PRIMARY, World, config, pod, with_default};

#[test]
fn no_annotation_is_the_primary_alone_byte_for_byte() {
    World::new().check(&pod(""), "cbr0=eth0");
    World::new().check(&pod("[]"), "cbr0=eth0");
    let plan = World::new().plan(None).unwrap();
    assert_eq!(plan[0].config.bytes(), PRIMARY.as_bytes());
}

#[test]
fn chosen_interface_names_use_up_a_number() {
    let world = World::new().bridge("shop", "a").bridge("shop", "b");
    world.check(&pod("a,b"), "cbr0=eth0 shop/a=net1 shop/b=net2");
    world.check(&pod("a,a"), "cbr0=eth0 shop/a=net1 shop/a=net2");
    world.check(&pod("a@ext0,b"), "cbr0=eth0 shop/a=ext0 shop/b=net2");
    world.check(
        &pod(r#"[{"name":"a","interface":"ext0"},{"name":"b"}]"#),
        "cbr0=eth0 shop/a=ext0 shop/b=net2",
    );
}

#[test]
fn a_definition_names_a_nameless_configuration_and_nothing_else_changes() {
    let text = r#"{"cniVersion":"0.3.1","name":"own","type":"macvlan","x":[1.0,1e3]}"#;
    let world = World::new().nad("shop", "a", text).bridge("shop", "b");
    let plan = world.plan(Some(&pod("a,b"))).unwrap();
    assert_eq!(plan[1].config.bytes(), text.as_bytes());
    assert_eq!(
        config(&plan[2]),
        json!({"cniVersion":"1.0.0","type":"bridge","name":"b"})
    );
}

#[test]
fn a_list_without_version_gets_that_of_multus_a_single_one_does_not() {
    let world = World::new()
        .nad("shop", "list", r#"{"plugins":[{"type":"bridge"}]}"#)
        .nad("shop", "single", r#"{"type":"bridge"}"#);
    let plan = world.plan(Some(&pod("list,single"))).unwrap();
    assert_eq!(config(&plan[1])["cniVersion"], "1.0.0");
    assert_eq!(config(&plan[2]).get("cniVersion"), None);
}

#[test]
fn cni_args_reach_every_plugin() {
    let world = World::new()
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
    let one = world.plan(Some(&ask("one"))).unwrap();
    assert_eq!(config(&one[1])["args"]["cni"], json!({"a":1,"tier":"gold"}));
    let list = world.plan(Some(&ask("list"))).unwrap();
    for plugin in config(&list[1])["plugins"].as_array().unwrap() {
        assert_eq!(plugin["args"]["cni"], json!({"tier":"gold"}));
    }
    world.check_error(&ask("odd"), &["shop/odd", "must be objects"]);
}

#[test]
fn isolation_keeps_pods_to_their_own_and_global_namespaces() {
    let world = World::new()
        .bridge("infra", "a")
        .bridge("default", "a")
        .bridge("shop", "a")
        .with("namespaceIsolation", json!(true));
    world.check(&pod("a,default/a"), "cbr0=eth0 shop/a=net1 default/a=net2");
    world.check_error(
        &pod("infra/a"),
        &[
            "namespace isolation enabled, annotation violates permission, pod is in namespace shop but refers to target namespace infra",
            "define a in shop, or let the admin add infra to globalNamespaces",
        ],
    );
    world.check_error(
        &with_default(pod(""), "infra/a"),
        &["namespace isolation enabled"],
    );
    let own = world.bridge("kube-system", "other");
    // What a pod names is isolated; where a name alone leads to was chosen by the cluster's owner.
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
fn a_pod_may_choose_another_default_network() {
    let world = World::new()
        .bridge("kube-system", "other")
        .bridge("infra", "other")
        .bridge("shop", "a");
    world.check(
        &with_default(pod("a"), "other"),
        "kube-system/other=eth0 shop/a=net1",
    );
    world.check(&with_default(pod(""), "infra/other@up0"), "infra/other=up0");
    for (text, fragment) in [
        ("other,other", "more than one default network is specified"),
        ("[]", "no default network is specified"),
        ("", "no default network is specified"),
        (
            "missing",
            "cannot find a network-attachment-definition (missing) in namespace (kube-system)",
        ),
    ] {
        world.check_error(&with_default(pod(""), text), &[fragment]);
    }
}

#[test]
fn default_networks_come_before_the_pod_s_own_and_spare_system_namespaces() {
    let world = World::new()
        .bridge("kube-system", "mgmt")
        .bridge("shop", "a")
        .file(
            "/etc/cni/multus/net.d/20-disk.conf",
            r#"{"name":"disk","type":"bridge"}"#,
        )
        .with("defaultNetworks", json!(["mgmt", "disk"]));
    world.check(
        &pod("a"),
        "cbr0=eth0 kube-system/mgmt=net1 disk=net2 shop/a=net3",
    );
    let mut system = pod("");
    system.namespace = "kube-system".to_owned();
    world.check(&system, "cbr0=eth0");
    let missing = world.with("defaultNetworks", json!(["none"]));
    missing.check_error(
        &pod(""),
        &[
            "failed to get default network none",
            "getNetDelegate: cannot find network: none",
        ],
    );
}

#[test]
fn an_empty_definition_is_looked_up_on_disk() {
    let world = World::new().nad("shop", "a", "").file(
        "/etc/cni/multus/net.d/1.json",
        r#"{"name":"a","type":"bridge"}"#,
    );
    world.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let world = world.file("/etc/cni/multus/net.d/0.d.conf/x", "a directory is none");
    world.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let before = world.file("/etc/cni/multus/net.d/0.conf", "{");
    before.check_error(&pod("a"), &["/etc/cni/multus/net.d/0.conf"]);
    let none = World::new().nad("shop", "a", " ");
    none.check_error(
        &pod("a"),
        &["shop/a", "spec.config is empty", "/etc/cni/multus/net.d"],
    );
}

#[test]
fn what_a_definition_may_not_be() {
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
        World::new()
            .nad("shop", "a", config)
            .check_error(&pod("a"), &["network-attachment-definition", fragment]);
    }
}

#[test]
fn inline_delegates_are_the_default_network_and_what_follows() {
    let mut world = World::new().bridge("shop", "a").with(
        "delegates",
        json!([{"name":"one","type":"x"},{"name":"two","plugins":[{"type":"y"}]}]),
    );
    world.check(&pod(""), "cbr0=eth0");
    world.netconf["clusterNetwork"] = json!("");
    world.check(&pod("a"), "one=eth0 two=net1 shop/a=net2");
    world.netconf["delegates"] = json!([{"name":"one"}]);
    world.check_error(&pod(""), &["delegates[0]"]);
}

#[test]
fn a_directory_named_like_the_list_adds_plugins() {
    let dir = "/etc/cni/net.d/cbr0";
    let world = World::new()
        .file(&format!("{dir}/20-b.conf"), r#"{"type":"b"}"#)
        .file(&format!("{dir}/10-a.conf"), r#"{"type":"a"}"#)
        .file(&format!("{dir}/30-c.txt"), "no plugin");
    let kinds = |world: &World| -> Vec<String> {
        let plan = world.plan(None).unwrap();
        plan[0]
            .config
            .plugins
            .iter()
            .map(|p| p.kind.clone())
            .collect()
    };
    assert_eq!(kinds(&world), ["flannel", "a", "b"]);
    let mut world = world.file(&format!("{dir}/40-d.conf/x"), "a directory");
    assert_eq!(kinds(&world), ["flannel", "a", "b"]);
    for yes in ["true", r#""true""#] {
        let alone = PRIMARY.replacen('{', &format!(r#"{{"loadOnlyInlinedPlugins":{yes},"#), 1);
        world = world.file("/etc/cni/net.d/10-flannel.conflist", &alone);
        assert_eq!(kinds(&world), ["flannel"]);
    }
    World::new()
        .file(&format!("{dir}/1.conf"), "{}")
        .check_error(&pod(""), &["/etc/cni/net.d/cbr0/1.conf: has no \"type\""]);
}

#[test]
fn the_auxiliary_chain_comes_last_and_only_with_plugins() {
    let world = World::new()
        .bridge("shop", "a")
        .with("auxiliaryCNIChainName", json!("vendor"));
    world.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let world = world.file("/etc/cni/net.d/vendor/1.conf", r#"{"type":"tune"}"#);
    world.check(&pod("a"), "cbr0=eth0 shop/a=net1 vendor=net2");
    let plan = world.plan(None).unwrap();
    assert_eq!(
        config(&plan[1]),
        json!({"cniVersion":"1.0.0","name":"vendor","plugins":[{"type":"passthru"},{"type":"tune"}]})
    );
    let mut world = world;
    for (own, expected) in [("", "0.3.1"), ("0.2.0", "0.3.1"), ("0.3.0", "0.3.0")] {
        world = world.with("cniVersion", json!(own));
        assert_eq!(
            config(&world.plan(None).unwrap()[1])["cniVersion"],
            expected
        );
    }
    world
        .bridge("kube-system", "main")
        .with("clusterNetwork", json!("main"))
        .check_error(
            &pod(""),
            &["auxiliaryCNIChainName \"vendor\" needs a clusterNetwork that is a path"],
        );
}

#[test]
fn annotation_errors_name_pod_and_annotation() {
    World::new().check_error(
        &pod("a/b/c"),
        &["pod shop/cart-0", NETWORKS_ANNOTATION, "failed at '/'"],
    );
    World::new().check_error(
        &pod("nope"),
        &["cannot find a network-attachment-definition (nope) in namespace (shop)"],
    );
    let error = World::new().plan(Some(&pod("nope"))).unwrap_err();
    assert_eq!(error.event().unwrap().0, "NoNetworkFound");
}

/// Definitions come from anyone who may create them: no content makes the plan panic.
#[test]
fn no_definition_makes_it_panic() {
    let seed =
        r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"x","args":{"cni":{}}},null]}"#;
    let ask = pod(r#"[{"name":"a","cni-args":{"k":1}}]"#);
    for end in 0..=seed.len() {
        for insert in ["", "{", "}", "[", "]", "null", "\"", ",", ":", "1", "é"] {
            let config = format!("{}{insert}{}", &seed[..end], &seed[end..]);
            let _ = World::new().nad("shop", "a", &config).plan(Some(&ask));
            let cut = format!("{}{insert}", &seed[..end]);
            let _ = World::new().nad("shop", "a", &cut).plan(Some(&ask));
        }
    }
}

#[test]
fn only_allowed_plugins_are_planned() {
    let world = World::new().bridge("shop", "a").nad(
        "shop",
        "b",
        r#"{"type":"macvlan","ipam":{"type":"dhcp"}}"#,
    );
    let allow = |world: World, names: &[&str]| world.with("allowedPlugins", json!(names));
    let world = allow(world, &[]);
    world.check(&pod("a,b"), "cbr0=eth0 shop/a=net1 shop/b=net2");
    let world = allow(world, &["flannel", "bridge", "macvlan"]);
    world.check(&pod("a"), "cbr0=eth0 shop/a=net1");
    let parts = [
        "pod shop/cart-0",
        "network shop/b",
        "plugin dhcp",
        "allowedPlugins",
    ];
    world.check_error(&pod("a,b"), &parts);
    let world = allow(world, &["bridge"]);
    world.check_error(&pod("a"), &["network cbr0", "plugin flannel"]);
    let error = world.plan(None).unwrap_err();
    assert_eq!(cni::CniError::from(error).code, 7);
}
