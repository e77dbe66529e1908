//! Changes of a running pod's annotation: the order of attaching and detaching, and the networks that a failure leaves.

use cni::exec::ExecError;
use cni::types::CniError;
use plan::Attached;
use serde_json::json;

use super::fixture::{Fixture, pod, request};
use crate::engine::{ContainerRequest, Reconciled};

fn names(attached: &[Attached]) -> Vec<String> {
    let name = |one: &Attached| format!("{} {}", one.name, one.ifname);
    attached.iter().map(name).collect()
}

#[track_caller]
fn check(reconciled: Reconciled, attached: &[&str], detached: &[&str], now: &[&str]) {
    assert!(
        reconciled.failure.is_none() && reconciled.detach_errors.is_empty(),
        "{reconciled:?}"
    );
    assert_eq!(names(&reconciled.attached), attached);
    let removed: Vec<_> = reconciled
        .detached
        .iter()
        .map(|(n, i)| format!("{n} {i}"))
        .collect();
    assert_eq!(removed, detached);
    assert_eq!(names(&reconciled.networks.unwrap()), now);
}

/// Returns a node with a running pod that has these networks, without the calls of its ADD.
fn running(networks: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture.add("c1", networks).unwrap();
    fixture.calls();
    fixture
}

#[test]
fn changed_annotation_attaches_and_detaches_networks() {
    let fixture = running("a");
    let reconciled = fixture.reconcile("c1", "a,b").unwrap();
    fixture.check_calls(&["ADD bridge net2"]);
    check(
        reconciled,
        &["shop/b net2"],
        &[],
        &["cbr0 eth0", "shop/a net1", "shop/b net2"],
    );
    let reconciled = fixture.reconcile("c1", "b").unwrap();
    fixture.check_calls(&["DEL macvlan net1"]);
    check(
        reconciled,
        &[],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/b net2"],
    );
    // The interface of a detached network is free.
    let reconciled = fixture.reconcile("c1", "b,b,a@last").unwrap();
    fixture.check_calls(&["ADD bridge net1", "ADD macvlan last"]);
    let now = ["cbr0 eth0", "shop/b net2", "shop/b net1", "shop/a last"];
    check(reconciled, &["shop/b net1", "shop/a last"], &[], &now);
    check(
        fixture.reconcile("c1", "").unwrap(),
        &[],
        &["shop/b net2", "shop/b net1", "shop/a last"],
        &["cbr0 eth0"],
    );
    fixture.check_calls(&["DEL bridge net2", "DEL bridge net1", "DEL macvlan last"]);
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn unchanged_annotation_changes_nothing() {
    let fixture = running("a,b");
    for networks in [
        "a,b",
        "b, a",
        r#"[{"name":"a"},{"name":"b","namespace":"shop"}]"#,
    ] {
        let reconciled = fixture.reconcile("c1", networks).unwrap();
        assert!(reconciled.networks.is_none(), "{networks}: {reconciled:?}");
    }
    fixture.delete_nads();
    assert!(fixture.reconcile("c1", "a,b").unwrap().networks.is_none());
    // A network can be detached without its definition.
    check(
        fixture.reconcile("c1", "b").unwrap(),
        &[],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/b net2"],
    );
}

#[test]
fn changed_network_is_detached_before_it_is_attached_again() {
    let fixture = running("a");
    let wanted =
        json!([{"name": "a", "mac": "02:00:00:00:00:07", "ips": ["10.0.0.5/24"]}]).to_string();
    let reconciled = fixture.reconcile("c1", &wanted).unwrap();
    let calls = fixture.calls();
    let texts: Vec<_> = calls.iter().map(super::fixture::PluginCall::text).collect();
    assert_eq!(texts, ["DEL macvlan net1", "ADD macvlan net1"]);
    let args = &calls[1].env["CNI_ARGS"];
    assert!(
        args.ends_with(";VENDOR=x=y;MAC=02:00:00:00:00:07;IP=10.0.0.5/24"),
        "{args}"
    );
    assert!(
        args.contains(";K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=c1;"),
        "{args}"
    );
    assert_eq!(calls[1].stdin["runtimeConfig"]["mac"], "02:00:00:00:00:07");
    check(
        reconciled,
        &["shop/a net1"],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/a net1"],
    );
}

#[test]
fn failed_change_keeps_the_pods_networks() {
    let fixture = running("a");
    fixture.fail(&["ADD bridge"]);
    let reconciled = fixture.reconcile("c1", "a@second,a,b").unwrap();
    fixture.check_calls(&[
        "ADD macvlan second",
        "ADD bridge net2",
        "DEL bridge net2",
        "DEL macvlan second",
    ]);
    let error = CniError::from(reconciled.failure.unwrap());
    assert_eq!(error.code, 123);
    assert!(
        error.msg.contains("[shop/cart-0/5b0c:b]") && error.msg.contains("no more addresses"),
        "{error}"
    );
    assert_eq!(
        names(&reconciled.networks.unwrap()),
        ["cbr0 eth0", "shop/a net1"]
    );
    assert!(reconciled.attached.is_empty() && reconciled.detached.is_empty());
    // No network is detached in favour of one that cannot be attached.
    let reconciled = fixture.reconcile("c1", "b").unwrap();
    assert!(reconciled.failure.is_some());
    fixture.check_calls(&["ADD bridge net2", "DEL bridge net2"]);
    fixture.on_call(|_| Ok(()));
    check(
        fixture.reconcile("c1", "b").unwrap(),
        &["shop/b net2"],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/b net2"],
    );
}

#[test]
fn failed_replacement_restores_the_old_network() {
    let fixture = running("a");
    fixture.fail(&["ADD bridge"]);
    let reconciled = fixture.reconcile("c1", "b@net1").unwrap();
    fixture.check_calls(&[
        "DEL macvlan net1",
        "ADD bridge net1",
        "DEL bridge net1",
        "ADD macvlan net1",
    ]);
    assert!(reconciled.failure.is_some());
    assert_eq!(
        names(&reconciled.networks.unwrap()),
        ["cbr0 eth0", "shop/a net1"]
    );
    fixture.on_call(|_| Ok(()));
    assert!(fixture.reconcile("c1", "a").unwrap().attached.is_empty());
}

#[test]
fn network_that_cannot_be_detached_is_retried() {
    let fixture = running("a,b");
    fixture.fail(&["DEL macvlan"]);
    let reconciled = fixture.reconcile("c1", "").unwrap();
    fixture.check_calls(&["DEL macvlan net1", "DEL bridge net2"]);
    assert_eq!(reconciled.detach_errors.len(), 1);
    assert_eq!(
        reconciled.detached,
        [("shop/b".to_owned(), "net2".to_owned())]
    );
    assert_eq!(
        names(&reconciled.networks.unwrap()),
        ["cbr0 eth0", "shop/a net1"]
    );
    fixture.on_call(|_| Ok(()));
    check(
        fixture.reconcile("c1", "").unwrap(),
        &[],
        &["shop/a net1"],
        &["cbr0 eth0"],
    );
}

#[test]
fn half_detached_network_is_attached_again_when_it_is_requested_again() {
    let fixture = Fixture::new();
    let chain = json!({"cniVersion": "1.0.0", "name": "netc", "plugins": [{"type": "slow"}, {"type": "last"}]});
    fixture.nad("c", &chain.to_string());
    fixture.add("c1", "c").unwrap();
    fixture.calls();
    fixture.fail(&["DEL slow"]);
    let reconciled = fixture.reconcile("c1", "").unwrap();
    fixture.check_calls(&["DEL last net1", "DEL slow net1"]);
    assert_eq!(reconciled.detach_errors.len(), 1);
    // It stays so until its first plugin works again.
    let reconciled = fixture.reconcile("c1", "c").unwrap();
    assert!(reconciled.failure.is_some(), "{reconciled:?}");
    fixture.on_call(|_| Ok(()));
    fixture.calls();
    check(
        fixture.reconcile("c1", "c").unwrap(),
        &["shop/c net1"],
        &["shop/c net1"],
        &["cbr0 eth0", "shop/c net1"],
    );
    fixture.check_calls(&[
        "DEL last net1",
        "DEL slow net1",
        "ADD slow net1",
        "ADD last net1",
    ]);
    fixture.reconcile("c1", "c").unwrap();
    fixture.check_calls(&[]);
}

/// Upstream's file does not say which networks the annotation requested.
#[test]
fn network_of_upstreams_state_that_cannot_be_detached_is_retried() {
    let fixture = running("a,b");
    let sidecar = "var/lib/cni/multus/.multus-rs/c1.json";
    std::fs::remove_file(fixture.dir.path().join(sidecar)).unwrap();
    fixture.fail(&["DEL macvlan"]);
    let reconciled = fixture.reconcile("c1", "b").unwrap();
    assert_eq!(reconciled.detach_errors.len(), 1);
    fixture.on_call(|_| Ok(()));
    fixture.calls();
    let now = ["cbr0 eth0", "shop/b net2"];
    let reconciled = fixture.reconcile("c1", "b").unwrap();
    check(reconciled, &[], &["shop/a net1"], &now);
    fixture.check_calls(&["DEL macvlan net1"]);
}

#[test]
fn invalid_change_is_refused_before_any_plugin_runs() {
    let fixture = running("a");
    let before = fixture.files();
    for (networks, part) in [
        (
            "b,absent",
            "cannot find a network-attachment-definition (absent)",
        ),
        ("b@eth0", "interface name eth0 already exists"),
        ("a,b@one,b@one", "interface name one already exists"),
        ("a/b/c", "Invalid network object"),
    ] {
        let error = fixture.reconcile("c1", networks).unwrap_err();
        assert!(error.msg.contains(part), "{networks}: {error}");
    }
    fixture.link("mine");
    let error = fixture.reconcile("c1", "b,b@mine").unwrap_err();
    assert!(
        error.msg.contains("interface name mine already exists"),
        "{error}"
    );
    fixture.uninstall("bridge");
    let error = fixture.reconcile("c1", "b").unwrap_err();
    assert!(error.msg.contains("bridge"), "{error}");
    fixture.check_calls(&[]);
    assert_eq!(fixture.files(), before);
}

#[test]
fn incomplete_container_is_not_changed() {
    let fixture = Fixture::new();
    assert!(
        fixture.reconcile("c1", "a").unwrap().networks.is_none(),
        "unknown"
    );
    // The ADD failed and could not be undone.
    fixture.fail(&["ADD bridge", "DEL macvlan"]);
    fixture.add("c1", "a,b").unwrap_err();
    fixture.on_call(|_| Ok(()));
    fixture.calls();
    assert!(fixture.reconcile("c1", "a").unwrap().networks.is_none());
    fixture.check_calls(&[]);
    // Nothing says how far the plugin came that was killed; the result of the one before it is cached.
    let fixture = Fixture::new();
    fixture.on_run(|call| match call.text().as_str() {
        "ADD portmap eth0" => Err(ExecError::Killed(CniError::new(999, "signal: 9").into())),
        "DEL portmap eth0" => Err(CniError::new(7, "not now").into()),
        _ => Ok(()),
    });
    fixture.add("c1", "").unwrap_err();
    fixture.on_call(|_| Ok(()));
    fixture.calls();
    assert!(fixture.reconcile("c1", "a").unwrap().networks.is_none());
    fixture.check_calls(&[]);
    let fixture = running("a");
    std::fs::remove_file(fixture.dir.path().join("var/run/netns/x")).unwrap();
    assert!(
        fixture.reconcile("c1", "").unwrap().networks.is_none(),
        "its network namespace was deleted"
    );
    fixture.check_calls(&[]);
}

/// cri-dockerd names a namespace by the pod's process.
#[test]
fn namespace_of_another_process_with_the_same_id_is_not_changed() {
    let fixture = Fixture::new();
    let request = ContainerRequest {
        netns: Some(format!("/proc/{}/ns/net", std::process::id())),
        ..request("c1")
    };
    let added = fixture.engine.add(&request, &fixture.netconf(), &pod("a"));
    added.unwrap();
    assert_eq!(fixture.reconcile("c1", "a,b").unwrap().attached.len(), 1);
    fixture.calls();
    let sidecar = fixture
        .dir
        .path()
        .join("var/lib/cni/multus/.multus-rs/c1.json");
    let text = std::fs::read_to_string(&sidecar).unwrap();
    let field = "\"netnsProcess\":";
    for other in [
        text.replace(field, &format!("{field}1")),
        text.replace(field, "\"x\":"),
    ] {
        assert_ne!(text, other);
        std::fs::write(&sidecar, other).unwrap();
        assert!(fixture.reconcile("c1", "a").unwrap().networks.is_none());
        fixture.check_calls(&[]);
    }
    std::fs::write(&sidecar, text).unwrap();
    fixture.reconcile("c1", "a").unwrap();
    fixture.check_calls(&["DEL bridge net2"]);
}

#[test]
fn containers_of_a_pod_are_found() {
    let fixture = running("a");
    let of = |pod| {
        fixture
            .engine
            .containers_of(&fixture.netconf(), &pod)
            .unwrap()
    };
    assert_eq!(of(pod("")), ["c1".parse().unwrap()]);
    let mut namesake = pod("");
    namesake.uid = "other".to_owned();
    assert!(of(namesake.clone()).is_empty());
    namesake.is_static = true;
    assert_eq!(of(namesake).len(), 1);
    fixture.del("c1").unwrap();
    assert!(of(pod("")).is_empty());
}

/// The sidecar is missing, as after upstream's daemon served the node. The networks in upstream's file are taken over, and none is
/// attached twice.
#[test]
fn pod_with_upstreams_state_file_alone_is_reconciled() {
    let mut fixture = Fixture::new();
    fixture.nad_of(
        "kube-system",
        "every",
        r#"{"cniVersion":"1.0.0","name":"every","type":"ptp"}"#,
    );
    fixture.config["defaultNetworks"] = json!(["every"]);
    fixture
        .add(
            "c1",
            r#"[{"name":"a","mac":"02:00:00:00:00:07"},{"name":"b"}]"#,
        )
        .unwrap();
    fixture.calls();
    let sidecar = fixture
        .dir
        .path()
        .join("var/lib/cni/multus/.multus-rs/c1.json");
    std::fs::remove_file(sidecar).unwrap();
    let reconciled = fixture.reconcile("c1", "a,b,b@more").unwrap();
    fixture.check_calls(&["ADD bridge more"]);
    let now = [
        "cbr0 eth0",
        "kube-system/every net1",
        "shop/a net2",
        "shop/b net3",
        "shop/b more",
    ];
    check(reconciled, &["shop/b more"], &[], &now);
    fixture.reconcile("c1", "a").unwrap();
    fixture.check_calls(&["DEL bridge net3", "DEL bridge more"]);
}

/// A webhook adds the reference to the annotation of a virtual machine's pod that runs already.
#[test]
fn claim_that_is_added_to_a_running_pod_re_attaches_nothing() {
    let fixture = running(r#"[{"name": "a", "interface": "vm0"}]"#);
    for networks in [
        r#"[{"name": "a", "interface": "vm0", "ipam-claim-reference": "vm.a"}]"#,
        r#"[{"name": "a", "interface": "vm0", "ipam-claim-reference": "vm.b"}]"#,
        r#"[{"name": "a", "interface": "vm0"}]"#,
    ] {
        let reconciled = fixture.reconcile("c1", networks).unwrap();
        assert!(reconciled.networks.is_none(), "{reconciled:?}");
        fixture.check_calls(&[]);
    }
}

/// As at ADD, the network is attached, and the event names every request that no plugin supports.
#[test]
fn event_mode_reports_unsupported_requests_of_plugged_networks() {
    let fixture = running("a");
    let networks = json!([{"name": "a"}, {"name": "b", "ips": ["10.77.0.1/24"], "bandwidth": {"ingressRate": 1, "ingressBurst": 1}}]);
    let reconciled = fixture.reconcile("c1", &networks.to_string()).unwrap();
    assert!(reconciled.failure.is_none(), "{reconciled:?}");
    let warning = reconciled.attached[0].warning().unwrap();
    assert!(warning.contains("for ips, bandwidth on net2"), "{warning}");
}

/// As at ADD with `error`, the network is refused, if possible before any plugin runs.
#[test]
fn error_mode_refuses_unsupported_requests_of_plugged_networks() {
    let mut fixture = running("a");
    fixture.config["unservedRequests"] = json!("error");
    let networks =
        json!([{"name": "a"}, {"name": "b", "bandwidth": {"ingressRate": 1, "ingressBurst": 1}}])
            .to_string();
    let error = fixture.reconcile("c1", &networks).unwrap_err();
    assert!(error.msg.contains("bandwidth"), "{error}");
    fixture.check_calls(&[]);
    let networks = json!([{"name": "a"}, {"name": "b", "ips": ["10.77.0.1/24"]}]).to_string();
    let failure = fixture.reconcile("c1", &networks).unwrap().failure.unwrap();
    assert!(failure.to_string().contains("ips"), "{failure}");
    fixture.check_calls(&["ADD bridge net2", "DEL bridge net2"]);
    fixture.config["unservedRequests"] = json!("silent");
    assert!(
        fixture
            .reconcile("c1", &networks)
            .unwrap()
            .failure
            .is_none()
    );
}

#[test]
fn plugged_network_may_take_the_default_route() {
    let fixture = running("a");
    let networks = json!([{"name": "a"}, {"name": "b", "default-route": ["10.0.0.1"]}]).to_string();
    let reconciled = fixture.reconcile("c1", &networks).unwrap();
    assert!(reconciled.failure.is_none(), "{reconciled:?}");
    let set: Vec<_> = fixture
        .set_routes()
        .into_iter()
        .flat_map(|(_, routes)| routes)
        .map(|route| route.ifname)
        .collect();
    assert_eq!(set, ["net2"]);
    let now = reconciled.networks.unwrap();
    assert_eq!(
        now[2].result.routes[0].gw, "10.0.0.1",
        "the status has the route"
    );
    let networks = json!([{"name": "a", "default-route": ["10.0.0.2"]}, {"name": "b", "default-route": ["10.0.0.1"]}]);
    let error = fixture.reconcile("c1", &networks.to_string()).unwrap_err();
    assert!(error.msg.contains("ECMP"), "{error}");
}

/// Networks of the original proposal's annotation count as requested.
#[test]
fn networks_of_the_legacy_annotation_stay() {
    let mut fixture = Fixture::new();
    fixture.config["legacyNetworksAnnotation"] = json!(true);
    let mut legacy = pod("");
    legacy.annotations.insert(
        plan::LEGACY_ANNOTATION.to_owned(),
        r#"[{"name":"a"},{"name":"b"}]"#.to_owned(),
    );
    let netconf = fixture.netconf();
    fixture
        .engine
        .add(&super::fixture::request("c1"), &netconf, &legacy)
        .unwrap();
    fixture.calls();
    let path = || vec!["/opt/cni/bin".into()];
    let reconciled = fixture
        .engine
        .reconcile(&"c1".parse().unwrap(), &netconf, &legacy, path)
        .unwrap();
    assert!(reconciled.networks.is_none(), "{reconciled:?}");
    fixture.check_calls(&[]);
}
