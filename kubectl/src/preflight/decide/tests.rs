//! Clusters of every kind, and the findings of preflight about them.

use serde_json::json;

use super::*;

/// A cluster of these objects; definitions that are not among them do not exist.
fn snapshot(objects: &[Value]) -> ClusterSnapshot {
    let mut snapshot = ClusterSnapshot::default();
    for object in objects {
        snapshot.add(object, "shop").unwrap();
    }
    snapshot.known.is_complete = true;
    snapshot.has_crd = Some(true);
    snapshot.drop_used_templates();
    snapshot
}

fn explicit(values: &Value) -> ExplicitValues {
    ExplicitValues {
        files: vec!["values.yaml".to_owned()],
        values: values.as_object().unwrap().clone(),
    }
}

/// What Helm makes of the chart's defaults and these keys of the daemon.
fn accepted(values: &Value) -> Rendering {
    let values = Values::new(values.as_object().unwrap());
    Rendering::Accepted(values.known_daemon_config())
}

fn decided(objects: &[Value], values: &Value) -> Outcome {
    let explicit = explicit(values);
    decide(&mut snapshot(objects), Some(&explicit), accepted(values))
}

/// Each expectation is a verdict, the first name that it is about, and parts of its text: `FAILS shop/cart: one part … another part`.
#[track_caller]
fn check_with(values: &Value, objects: &[Value], expected: &[&str]) {
    let outcome = decided(objects, values);
    let expected: Vec<_> = expected
        .iter()
        .map(|one| {
            let (verdict, rest) = one.split_once(' ').unwrap();
            let (name, parts) = rest.split_once(": ").unwrap();
            let verdict = match verdict {
                "FAILS" => FAILS,
                "CHANGES" => CHANGES,
                "NOTE" => NOTE,
                other => panic!("{other} is no verdict"),
            };
            (verdict, name, parts)
        })
        .collect();
    let findings: Vec<_> = outcome
        .findings
        .iter()
        .filter(|one| one.verdict > Verdict::Note || expected.iter().any(|e| e.0 == Verdict::Note))
        .collect();
    assert_eq!(findings.len(), expected.len(), "{findings:#?}");
    for (finding, (verdict, name, parts)) in findings.iter().zip(&expected) {
        assert_eq!(
            (finding.verdict, finding.names[0].as_str()),
            (*verdict, *name)
        );
        for part in parts.split(" … ") {
            assert!(finding.text.contains(part), "no {part:?} in {finding:?}");
        }
    }
    let worst = expected.iter().map(|one| one.0).max();
    let worst = worst.filter(|verdict| *verdict > Verdict::Note);
    assert_eq!(outcome.verdict, worst);
}

#[track_caller]
fn check(objects: &[Value], expected: &[&str]) {
    check_with(&json!({}), objects, expected);
}

fn nad(name: &str, config: &Value) -> Value {
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "shop"}, "spec": {"config": config.to_string()}})
}

fn storage() -> Value {
    nad(
        "storage",
        &json!({"cniVersion": "1.0.0", "type": "bridge", "ipam": {"type": "host-local", "subnet": "10.40.0.0/24"}}),
    )
}

fn pod(networks: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "cart", "namespace": "shop", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}, "status": {"phase": "Running"}})
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
        "spec": {}, "status": {"nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "5.14.0",
            "containerRuntimeVersion": "containerd://2.0.4", "kubeletVersion": "v1.32.3+rke2r1"}}})
}

/// Upstream's `DaemonSet` of the published chart.
fn published(command: &str, args: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "rke2-multus", "namespace": "kube-system", "labels": {"app": "rke2-multus", "tier": "node"},
            "annotations": {"meta.helm.sh/release-name": "rke2-multus", "meta.helm.sh/release-namespace": "kube-system"}},
        "spec": {"template": {"metadata": {}, "spec": {"hostNetwork": true,
            "containers": [{"name": "kube-rke2-multus", "image": "rancher/hardened-multus-cni:v4.3.0", "command": [command], "args": args}],
            "volumes": [{"name": "c", "configMap": {"name": "rke2-multus-v4.3.017-config"}}]}}}})
}

fn thick() -> Value {
    published("/usr/src/multus-cni/bin/multus-daemon", &json!([]))
}

fn thin() -> Value {
    published("/thin_entrypoint", &json!(["--multus-conf-file=auto"]))
}

/// Upstream's `DaemonSet` as its own manifests have it.
fn plain(command: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "kube-multus-ds", "namespace": "kube-system", "labels": {"app": "multus", "tier": "node", "name": "multus"}},
        "spec": {"template": {"spec": {
            "containers": [{"name": "kube-multus", "image": "ghcr.io/k8snetworkplumbingwg/multus-cni:snapshot-thick", "command": [command]}],
            "volumes": [{"name": "c", "configMap": {"name": "multus-daemon-config"}}]}}}})
}

const FAILS: Verdict = Verdict::Fails;
const CHANGES: Verdict = Verdict::Changes;
const NOTE: Verdict = Verdict::Note;

#[test]
fn a_valid_cluster_has_no_findings() {
    for installed in [thin(), thick()] {
        let objects = [node(), installed, storage(), pod("storage")];
        check(&objects, &[]);
        let outcome = decided(&objects, &json!({}));
        assert_eq!(outcome.chart, "rke2-multus");
        assert_eq!(outcome.steps.len(), 2, "{:?}", outcome.steps);
        let crd = concat!("rke2-multus-crd-", env!("CARGO_PKG_VERSION"), ".tgz");
        assert!(outcome.steps[0].ends_with(&format!("kube-system rke2-multus-crd {crd}")));
        assert!(outcome.steps[1].contains("--take-ownership --reset-values"));
        let main = concat!("rke2-multus-", env!("CARGO_PKG_VERSION"), ".tgz");
        let end = format!("kube-system rke2-multus {main} --values values.yaml");
        assert!(outcome.steps[1].ends_with(&end));
    }
    check(&[], &[]);
}

#[test]
fn pods_that_would_fail_are_reported_with_the_daemons_error() {
    for (networks, parts) in [
        ("nowhere", "(nowhere) in namespace (shop) … create it"),
        ("storag", "(storag) … did you mean \"storage\"?"),
        ("a/b/c", "Invalid network object"),
        ("[{\"name\":\"storage\"", "not valid JSON"),
        ("storage@ext0,storage@ext0", "interface ext0"),
        (
            "[{\"name\":\"storage\",\"ips\":[\"10.41.0.7/24\"]}]",
            "10.41.0.7 … 10.40.0.1 to 10.40.0.254",
        ),
    ] {
        let objects = [node(), thick(), storage(), pod(networks)];
        check(&objects, &[&format!("FAILS shop/cart: {parts}")]);
    }
}

#[test]
fn options_of_the_values_decide() {
    let objects = [
        node(),
        thick(),
        storage(),
        pod(r#"[{"name":"storage","portMappings":[{"hostPort":80,"containerPort":80}]}]"#),
    ];
    let with = |action: &str| json!({"config": {"daemon_conf": {"unservedRequests": action}}});
    check_with(
        &with("error"),
        &objects,
        &["FAILS shop/cart: portMappings … add the capability"],
    );
    check_with(
        &with("event"),
        &objects,
        &["CHANGES shop/cart: portMappings … starts without it … in an event"],
    );
    check_with(&with("silent"), &objects, &[]);
    // Without the option the daemon's default applies.
    let default = validate::netconf(Map::new()).unwrap().unsupported_requests;
    let expected = match default {
        plan::netconf::UnsupportedRequests::Error => FAILS,
        plan::netconf::UnsupportedRequests::Event => CHANGES,
        plan::netconf::UnsupportedRequests::Silent => NOTE,
    };
    assert_eq!(decided(&objects, &json!({})).verdict, Some(expected));

    let isolated = json!({"config": {"daemon_conf": {"namespaceIsolation": true}}});
    check_with(
        &isolated,
        &[node(), thick(), pod("other/storage")],
        &["FAILS shop/cart: namespace isolation … globalNamespaces"],
    );
    let allowed = json!({"config": {"daemon_conf": {"allowedPlugins": ["macvlan"]}}});
    check_with(
        &allowed,
        &[node(), thick(), storage(), pod("storage")],
        &["FAILS shop/cart: bridge … allowedPlugins"],
    );
}

#[test]
fn refused_values_are_reported() {
    let values = json!({"config": {"daemon_conf": {"defaultNetworks": [1]}}, "imagee": {}});
    let refused = |text: &str| Rendering::Refused(text.to_owned());
    let chart_error = "thickPlugin.enabled is false, but thin mode does not exist";
    let two_values = "daemonSecurity.environment and extraEnv set A: remove it";
    let wrong_key = json!({"config": {"daemon_conf": {"defaultNetworks": [1]}}});
    let hint = "the chart does not have this value: did you mean image?";
    for (values, rendering, path, text) in [
        (&values, refused("chart cannot be rendered"), "imagee", hint),
        (
            &json!({}),
            refused(chart_error),
            "thickPlugin.enabled",
            "it is false, but thin mode does not exist",
        ),
        (
            &json!({}),
            refused(two_values),
            "daemonSecurity.environment",
            two_values,
        ),
        (
            &wrong_key,
            accepted(&wrong_key),
            "config",
            "\"defaultNetworks\" must be a list of strings",
        ),
    ] {
        let outcome = decide(&mut snapshot(&[]), Some(&explicit(values)), rendering);
        let [finding] = &outcome.findings[..] else {
            panic!("{:?}", outcome.findings);
        };
        assert_eq!(
            (finding.verdict, &finding.names[..]),
            (FAILS, &[path.to_owned()][..])
        );
        assert!(finding.text.contains(text), "{finding:?}");
        assert!(
            outcome.steps[0].contains("correct the values"),
            "{:?}",
            outcome.steps
        );
    }
}

#[test]
fn without_helm_only_values_that_only_templates_check_are_a_gap() {
    let unknown = || Rendering::Unknown("cannot run helm".to_owned());
    let values = explicit(&json!({"config": {"daemon_conf": {"logLevel": "debug"}}}));
    let mut snapshot = snapshot(&[]);
    let outcome = decide(&mut snapshot, Some(&values), unknown());
    assert_eq!((outcome.verdict, outcome.daemon_config), (None, None));
    let [gap] = &snapshot.unread[..] else {
        panic!("{:?}", snapshot.unread);
    };
    assert!(gap.contains("schema: cannot run helm; with helm"), "{gap}");
    snapshot.unread.clear();
    decide(&mut snapshot, None, unknown());
    assert_eq!(snapshot.unread, [""; 0]);
}

#[test]
fn without_explicit_values_those_of_the_release_are_used() {
    let mut snapshot = snapshot(&[node(), thick(), storage(), pod("storage")]);
    let release = ("kube-system".to_owned(), "rke2-multus".to_owned());
    let values = json!({"thickPlugin": {"enabled": false}, "rke2-whereabouts": {"enabled": true}});
    let values = values.as_object().unwrap().clone();
    snapshot.release_values.insert(release, values);
    let refused = Rendering::Refused("thickPlugin.enabled is false".to_owned());
    let outcome = decide(&mut snapshot, None, refused);
    assert_eq!(outcome.verdict, Some(FAILS));
    let named: Vec<_> = outcome
        .findings
        .iter()
        .map(|one| one.names[0].as_str())
        .collect();
    assert_eq!(
        named[..2],
        ["thickPlugin.enabled", "rke2-whereabouts.enabled"]
    );
    assert_eq!(outcome.values, "those of release kube-system/rke2-multus");
    let get = "helm get values --namespace kube-system rke2-multus --output yaml > values.yaml";
    assert!(
        outcome.steps.contains(&get.to_owned()),
        "{:?}",
        outcome.steps
    );
    let explicit = ExplicitValues::default();
    assert_eq!(
        decide(&mut snapshot, Some(&explicit), accepted(&json!({}))).verdict,
        None
    );
}

#[test]
fn installations_of_upstream_that_no_upgrade_replaces_are_removed() {
    for command in ["/thin_entrypoint", "/usr/src/multus-cni/bin/multus-daemon"] {
        let objects = [node(), plain(command), storage(), pod("storage")];
        check(
            &objects,
            &[
                "CHANGES kube-system/kube-multus-ds: no Helm release owns … once the new daemons, which run next to it, are ready",
            ],
        );
        // Upstream's daemon takes its configuration along, so it goes when ours serves.
        let steps = decided(&objects, &json!({})).steps;
        let [crd, main, ready, delete] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert!(crd.starts_with("helm upgrade") && main.starts_with("helm upgrade"));
        assert_eq!(
            ready,
            "kubectl rollout status --namespace kube-system daemonset/rke2-multus"
        );
        assert_eq!(
            delete,
            "kubectl delete daemonset --namespace kube-system kube-multus-ds"
        );
    }
    let mut other = thick();
    other["metadata"]["labels"] = json!({"app": "multus-cni"});
    let objects = [node(), other];
    check(
        &objects,
        &["CHANGES kube-system/rke2-multus: of another chart … do not uninstall"],
    );
    let steps = decided(&objects, &json!({})).steps;
    let [backup, set, record, crd, _] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert!(backup.contains("--all-namespaces") && crd.starts_with("helm upgrade"));
    assert_eq!(
        [set, record],
        [
            "kubectl delete daemonset --namespace kube-system rke2-multus",
            "kubectl delete secret --namespace kube-system --selector owner=helm,name=rke2-multus"
        ]
    );
    let mut snapshot = snapshot(&objects);
    let release = ("kube-system".to_owned(), "rke2-multus".to_owned());
    snapshot.uninstallable.insert(release);
    assert_eq!(
        decide(&mut snapshot, None, accepted(&json!({}))).steps[0],
        "helm uninstall --namespace kube-system rke2-multus"
    );
}

#[test]
fn a_crd_that_helm_would_delete_is_annotated_first() {
    let crd = |annotations: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io", "annotations": annotations}})
    };
    let helm = |policy: &str| {
        json!({"meta.helm.sh/release-name": "rke2-multus", "meta.helm.sh/release-namespace": "kube-system",
            "helm.sh/resource-policy": policy})
    };
    for safe in [json!({}), helm("keep")] {
        check(&[node(), thick(), crd(safe)], &[]);
    }
    let objects = [node(), thick(), crd(helm("kept"))];
    let expected = "CHANGES CRD: made the CRD of NetworkAttachmentDefinitions without … annotate";
    check(&objects, &[expected]);
    let steps = decided(&objects, &json!({})).steps;
    assert_eq!(
        steps[0],
        "kubectl annotate crd network-attachment-definitions.k8s.cni.cncf.io helm.sh/resource-policy=keep"
    );
}

#[test]
fn a_chart_that_the_distro_installs_is_replaced_through_the_distro() {
    let own = json!({"apiVersion": "helm.cattle.io/v1", "kind": "HelmChart", "metadata": {"name": "rke2-multus", "namespace": "kube-system"}});
    let objects = [node(), thin(), own.clone()];
    check(
        &objects,
        &["CHANGES kube-system/rke2-multus: HelmChart rke2-multus … multus-distro"],
    );
    let steps = decided(&objects, &json!({})).steps.join("\n");
    assert!(
        steps.contains("multus-distro run --multus -- rke2 server"),
        "{steps}"
    );
    assert!(!steps.contains("helm upgrade"), "{steps}");
    let mut ours = thick();
    ours["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "MULTUS_DAEMONSET", "value": "m"}]);
    check(&[node(), ours, own], &[]);
}

#[test]
fn a_helm_chart_of_the_user_installs_ours_in_place() {
    // As K3s' documentation has it: the release is called multus, the chart rke2-multus.
    let mut k3s = node();
    k3s["status"]["nodeInfo"]["kubeletVersion"] = "v1.34.1+k3s1".into();
    let mut documented = thin();
    documented["metadata"]["name"] = "multus".into();
    documented["metadata"]["annotations"]["meta.helm.sh/release-name"] = "multus".into();
    let chart = |annotations: &Value| {
        json!({"apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
            "metadata": {"name": "multus", "namespace": "kube-system", "annotations": annotations}})
    };
    let file_annotations = json!({"objectset.rio.cattle.io/owner-gvk": "k3s.cattle.io/v1, Kind=Addon",
        "objectset.rio.cattle.io/owner-name": "multus-config"});
    for (annotations, place) in [
        (json!({}), "in HelmChart kube-system/multus: replace"),
        (
            file_annotations,
            "the file multus-config.yaml (or .yml, .json)",
        ),
    ] {
        let objects = [k3s.clone(), documented.clone(), chart(&annotations)];
        let expected = "CHANGES kube-system/multus: HelmChart multus … no second Multus";
        check(&objects, &[expected]);
        let steps = decided(&objects, &json!({})).steps;
        let [crd, main] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert!(
            crd.contains(" rke2-multus-crd ") && main.contains(place),
            "{steps:?}"
        );
        assert!(main.contains("base64 --wrap=0 rke2-multus-"), "{main}");
    }
    // Another chart's goes by its HelmChart: Helm alone would be undone by the next job.
    documented["metadata"]["labels"] = json!({"app": "multus-cni"});
    let objects = [k3s, documented, chart(&json!({}))];
    let steps = decided(&objects, &json!({})).steps;
    assert_eq!(steps[3], "delete HelmChart kube-system/multus", "{steps:?}");
    let mut snapshot = snapshot(&objects);
    let release = ("kube-system".to_owned(), "multus".to_owned());
    snapshot.uninstallable.insert(release);
    let steps = decide(&mut snapshot, None, accepted(&json!({}))).steps;
    assert_eq!(steps[0], "delete HelmChart kube-system/multus", "{steps:?}");
}

#[test]
fn settings_of_upstream_that_would_be_lost_are_reported() {
    let thin = published(
        "/thin_entrypoint",
        &json!([
            "--namespace-isolation",
            "--global-namespaces=default,net",
            "--readiness-indicator-file="
        ]),
    );
    check(
        &[node(), thin.clone()],
        &[
            "CHANGES kube-system/rke2-multus: globalNamespaces \"default,net\" … do not set it",
            "CHANGES kube-system/rke2-multus: namespaceIsolation true … config.daemon_conf.namespaceIsolation",
        ],
    );
    let same = json!({"config": {"daemon_conf": {"namespaceIsolation": true, "globalNamespaces": "default,net"}}});
    check_with(&same, &[node(), thin], &[]);

    let file = json!({"chrootDir": "/hostroot", "clusterNetwork": "/host/etc/cni/net.d/10-a.conf", "systemNamespaces": ["kube-system"]});
    let config_map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"},
            "data": {"daemon-config.json": file.to_string()}})
    };
    let daemon = "/usr/src/multus-cni/bin/multus-daemon";
    for (set, name, verdicts) in [
        (thick(), "rke2-multus-v4.3.017-config", 1),
        (plain(daemon), "multus-daemon-config", 2),
    ] {
        let outcome = decided(&[node(), set, config_map(name)], &json!({}));
        let changes: Vec<_> = outcome
            .findings
            .iter()
            .filter(|one| one.verdict == CHANGES)
            .collect();
        assert_eq!(changes.len(), verdicts, "{changes:?}");
        assert!(
            changes
                .iter()
                .any(|one| one.text.contains("clusterNetwork"))
        );
    }
}

#[test]
fn companions_of_the_release_need_values_or_another_chart() {
    let mut dhcp = published("/opt/cni/bin/dhcp", &json!(["daemon"]));
    dhcp["metadata"]["name"] = json!("rke2-multus-dhcp");
    dhcp["spec"]["template"]["spec"]["containers"][0]["image"] = json!("busybox");
    let lease = nad(
        "lan",
        &json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "dhcp"}}),
    );
    check(&[node(), thick(), dhcp.clone(), storage()], &[]);
    let objects = [node(), thick(), dhcp, lease];
    check(
        &objects,
        &["FAILS kube-system/rke2-multus-dhcp: shop/lan … manifests.dhcpDaemonSet"],
    );
    check_with(
        &json!({"manifests": {"dhcpDaemonSet": true}}),
        &objects,
        &[],
    );
    let mut whereabouts = published("/bin/sh", &json!([]));
    whereabouts["metadata"]["name"] = json!("rke2-multus-rke2-whereabouts");
    whereabouts["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!("rancher/hardened-whereabouts:v0.9");
    let pool = nad(
        "pool",
        &json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.1.0.0/16"}}),
    );
    let objects = [node(), thick(), whereabouts, pool];
    check(
        &objects,
        &[
            "FAILS kube-system/rke2-multus-rke2-whereabouts: shop/pool … set ipam.whereabouts to true … own chart first",
        ],
    );
    check_with(&json!({"ipam": {"whereabouts": true}}), &objects, &[]);
    let mut controller = published("/dynamic-networks-controller", &json!([]));
    controller["metadata"]["name"] = json!("rke2-multus-dnc");
    controller["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!("rancher/hardened-multus-dynamic-networks-controller:v0.3.8");
    let objects = [node(), thick(), controller];
    check(
        &objects,
        &["CHANGES kube-system/rke2-multus-dnc: dynamicNetworksController.enabled"],
    );
    check_with(
        &json!({"dynamicNetworksController": {"enabled": true}}),
        &objects,
        &[],
    );
}

#[test]
fn pods_on_nodes_without_a_daemon_fail() {
    let mut other = node();
    other["status"]["nodeInfo"]["architecture"] = json!("s390x");
    check(
        &[other.clone(), thick(), storage(), pod("storage")],
        &[
            "FAILS shop/cart: node n1 gets no daemon … without shop/storage",
            "CHANGES n1: architecture s390x",
        ],
    );
    let mut plain = pod("storage");
    plain["metadata"]["annotations"] = json!({});
    check(
        &[other, thick(), storage(), plain],
        &["CHANGES n1: architecture s390x"],
    );
    let mut old = node();
    old["status"]["nodeInfo"]["kernelVersion"] = json!("3.10.0-1160.el7");
    check(&[old, thick(), storage()], &["FAILS n1: older than 4.18"]);
}

#[test]
fn the_chart_is_chosen_by_the_distro_of_the_nodes() {
    for (version, chart) in [
        ("v1.32.3+k3s1", "k3s-multus"),
        ("v1.32.3+rke2r1", "rke2-multus"),
        ("v1.32.3", "multus"),
    ] {
        let mut node = node();
        node["status"]["nodeInfo"]["kubeletVersion"] = json!(version);
        assert_eq!(decided(&[node.clone()], &json!({})).chart, chart);
        // A release keeps its chart, since the selector of its DaemonSet cannot change.
        assert_eq!(decided(&[node, thin()], &json!({})).chart, "rke2-multus");
    }
    // Upstream's manifests and the chart multus have objects of the same names.
    let mut other = node();
    other["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.32.3");
    let upstream = plain("/usr/src/multus-cni/bin/multus-daemon");
    assert_eq!(decided(&[other, upstream], &json!({})).chart, "rke2-multus");
    let mut k3s = node();
    k3s["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.32.3+k3s1");
    let directories = json!({"config": {"daemon_conf": {"cniConfigDir": "/etc/cni/net.d"}}});
    check_with(
        &directories,
        &[k3s],
        &["CHANGES cniConfigDir: /etc/cni/net.d … K3s has its own … remove it"],
    );
    check_with(
        &directories,
        &[node()],
        &["NOTE cniConfigDir: /etc/cni/net.d … is not Ready"],
    );
}

/// Whoever may create a `DaemonSet` in a namespace can make one that looks like Multus.
#[test]
fn a_daemon_set_of_a_tenant_is_not_what_gets_upgraded() {
    let mut tenant = thick();
    let metadata =
        json!({"name": "evil", "namespace": "a-tenant", "labels": {"app": "rke2-multus"}});
    tenant["metadata"] = metadata;
    for objects in [[node(), tenant.clone(), thick()], [node(), thick(), tenant]] {
        check(
            &objects,
            &["FAILS a-tenant/evil: second Multus … kube-system/rke2-multus"],
        );
        let steps = decided(&objects, &json!({})).steps.join("\n");
        assert!(steps.contains("--namespace kube-system"), "{steps}");
        assert!(!steps.contains("a-tenant"), "{steps}");
    }
}

#[test]
fn a_missing_crd_is_reported() {
    let mut snapshot = snapshot(&[node(), pod("storage")]);
    snapshot.has_crd = Some(false);
    let outcome = decide(&mut snapshot, None, accepted(&json!({})));
    let texts: Vec<_> = outcome
        .findings
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    assert!(
        texts[0].contains("the CRD is not installed: install rke2-multus-crd"),
        "{texts:?}"
    );
    assert!(
        texts[1].contains("fails: install rke2-multus-crd first"),
        "{texts:?}"
    );
}

#[test]
fn differences_from_upstream_are_changes() {
    let route = pod(r#"[{"name":"storage","default-route":["10.40.0.1"]}]"#);
    check(
        &[node(), thick(), storage(), route.clone()],
        &["CHANGES shop/cart: default-route … upstream keeps"],
    );
    let mut ours = thick();
    ours["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "MULTUS_DAEMONSET", "value": "m"}]);
    check(&[node(), ours, storage(), route], &[]);

    let mapped = nad(
        "mapped",
        &json!({"cniVersion": "1.0.0", "plugins": [{"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}}]}),
    );
    let mut ports = pod("mapped");
    ports["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    let objects = [node(), thin(), mapped, ports];
    check(
        &objects,
        &["CHANGES shop/cart: host ports … runtimeConfigForAll"],
    );
    let for_all = json!({"config": {"daemon_conf": {"runtimeConfigForAll": true}}});
    check_with(&for_all, &objects, &[]);

    let lan = nad(
        "lan",
        &json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "whereabouts"}}),
    );
    let fixed = pod(r#"[{"name":"lan","ips":["10.1.0.7/16"]}]"#);
    check_with(
        &json!({"config": {"daemon_conf": {"unservedRequests": "event"}}}),
        &[node(), thick(), lan, fixed],
        &["CHANGES shop/cart: capability ips … in an event"],
    );
}

#[test]
fn without_multus_pods_get_their_networks_at_the_next_start() {
    check(
        &[node(), storage(), pod("storage")],
        &["CHANGES shop/cart: not installed yet … shop/storage"],
    );
}

#[test]
fn plugins_without_a_multiplexer_leave_pods_of_the_replaced_one_without_networks() {
    let values = json!({"cniplugins": {"standalone": true}});
    let replaced: &[&str] = &[
        "CHANGES cniplugins.standalone: kube-system/rke2-multus, with only the plugins",
        "CHANGES shop/cart: without shop/storage … delete it before",
    ];
    check_with(
        &values,
        &[node(), thick(), storage(), pod("storage")],
        replaced,
    );
    // Another multiplexer stays, and the pods with it; nothing needs a definition to be valid.
    let others = [node(), plain("/multus-daemon"), pod("nowhere")];
    let note = "NOTE cniplugins.standalone: attaches no networks";
    check_with(&values, &others, &[note]);
    // A cluster with only plugins has no multiplexer yet.
    let mut plugins = published("/usr/src/multus-cni/bin/multus-daemon", &json!(["plugins"]));
    plugins["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "MULTUS_DAEMONSET", "value": "rke2-multus"}]);
    let expected: &[&str] = &["CHANGES shop/cart: not installed yet"];
    check(&[node(), plugins, storage(), pod("storage")], expected);
}

#[test]
fn findings_without_effect_are_notes() {
    let mut host = pod("storage");
    host["spec"]["hostNetwork"] = json!(true);
    let mut legacy = pod("");
    legacy["metadata"]["annotations"] = json!({"alpha.network.k8s.io/networks": "storage"});
    let mut misspelled = pod("");
    misspelled["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/network": "storage"});
    let mut windows = node();
    windows["metadata"]["name"] = json!("w1");
    windows["status"]["nodeInfo"]["operatingSystem"] = json!("windows");
    for (object, name, parts) in [
        (host, "shop/cart", "hostNetwork"),
        (legacy.clone(), "shop/cart", "legacyNetworksAnnotation"),
        (
            misspelled,
            "shop/cart",
            "did you mean k8s.v1.cni.cncf.io/networks?",
        ),
        (windows, "w1", "daemons run on Linux"),
        (
            nad("broken", &json!([])),
            "shop/broken",
            "no pod selects it at present",
        ),
    ] {
        check(&[storage(), object], &[&format!("NOTE {name}: {parts}")]);
    }
    // With the option, the annotation of the original proposal is read.
    check_with(
        &json!({"config": {"daemon_conf": {"legacyNetworksAnnotation": true}}}),
        &[node(), thick(), legacy],
        &["FAILS shop/cart: (storage)"],
    );
}

#[test]
fn invalid_definitions_fail_the_pods_that_select_them() {
    let broken = nad(
        "storage",
        &json!({"cniVersion": "1.0.0", "type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.2.9/24"}}),
    );
    check(
        &[node(), thick(), broken, pod("storage")],
        &["FAILS shop/storage: the network address is 10.1.2.0"],
    );
    check(
        &[node(), thick(), nad("storage", &json!([])), pod("storage")],
        &["FAILS shop/cart: shop/storage … not a JSON object"],
    );
}

#[test]
fn default_networks_without_a_definition_are_reported() {
    let of = |first: &str, further: &str| json!({"config": {"daemon_conf": {"clusterNetwork": first, "defaultNetworks": [further], "multusNamespace": "shop"}}});
    check_with(
        &of("nowhere", "absent"),
        &[storage()],
        &[
            "CHANGES config.daemon_conf.clusterNetwork: no definition shop/nowhere",
            "CHANGES config.daemon_conf.defaultNetworks: no definition shop/absent … /etc/cni/multus/net.d",
        ],
    );
    check_with(
        &of("storage", "/etc/cni/net.d/10-a.conf"),
        &[storage()],
        &[],
    );
}

#[test]
fn equal_findings_of_several_pods_are_joined() {
    let replica = |name: &str| {
        let mut pod = pod("a/b/c");
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": "cart-5d9"}]);
        pod
    };
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cart", "namespace": "shop"},
        "spec": {"template": {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "a/b/c"}}, "spec": {"containers": []}}}});
    let mut idle = deployment.clone();
    idle["metadata"]["name"] = json!("idle");
    let mut ended = replica("cart-3");
    ended["status"]["phase"] = json!("Succeeded");
    let mut leaving = replica("cart-4");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let objects = [
        node(),
        thick(),
        replica("cart-1"),
        replica("cart-2"),
        ended,
        leaving,
        deployment,
        idle,
    ];
    let outcome = decided(&objects, &json!({}));
    let names: Vec<_> = outcome
        .findings
        .iter()
        .filter(|one| one.verdict == FAILS)
        .map(|one| one.names.clone())
        .collect();
    assert_eq!(
        names.concat(),
        ["Deployment shop/idle", "shop/cart-1", "shop/cart-2"]
    );
}

#[test]
fn items_of_nested_lists_are_read() {
    let mut snapshot = ClusterSnapshot::default();
    let mut bare = pod("storage");
    bare.as_object_mut().unwrap().remove("kind");
    let list = json!({"kind": "List", "items": [{"kind": "PodList", "items": [bare]}, node(), storage(), {"kind": "Secret"}]});
    snapshot.add(&list, "shop").unwrap();
    let found = (
        snapshot.pods.len(),
        snapshot.nodes.len(),
        snapshot.definitions.len(),
    );
    assert_eq!(found, (1, 1, 1));
}

#[test]
fn running_pods_that_hot_plug_would_change_are_named() {
    let status = |networks: &[&str]| {
        let entries = networks.iter().map(|name| json!({"name": name}));
        let default = json!({"name": "cbr0", "default": true});
        let all: Value = [default].into_iter().chain(entries).collect();
        all.to_string()
    };
    let with = |annotation: &str, attached: &[&str]| {
        let mut pod = pod(annotation);
        pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] =
            json!(status(attached));
        let mut ours = thick();
        ours["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "MULTUS_DAEMONSET", "value": "rke2-multus"}]);
        [node(), ours, storage(), pod]
    };
    let hot_plug = json!({"dynamicNetworksController": {"enabled": true}});
    check_with(&hot_plug, &with("storage", &["shop/storage"]), &[]);
    check(&with("storage", &[]), &[]);
    for (annotation, attached, change) in [
        (
            "storage",
            &[][..],
            "attaches shop/storage to the running pod, unless its plugin reported no interface",
        ),
        (
            "storage",
            &["shop/storage", "shop/storage"],
            "detaches shop/storage from the running pod: correct",
        ),
        (
            "storage",
            &["shop/other"],
            "attaches shop/storage to, and detaches shop/other from, the running pod",
        ),
    ] {
        let expected = format!("CHANGES shop/cart: {change}");
        check_with(&hot_plug, &with(annotation, attached), &[&expected]);
    }
}

#[test]
fn a_range_that_several_nodes_give_is_a_note() {
    let lan = nad(
        "lan",
        &json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.40.0.0/24"}}),
    );
    let (mut cart, mut desk) = (pod("lan"), pod("lan"));
    desk["metadata"]["name"] = json!("desk");
    let cluster = |pods: &[Value]| [&[lan.clone(), node()], pods].concat();
    let elsewhere = {
        let mut node = node();
        node["metadata"]["name"] = json!("n2");
        node
    };
    let notes = |objects: &[Value], values: &Value| {
        let outcome = decided(objects, values);
        let findings = outcome.findings.into_iter();
        let of_lan = findings.filter(|one| one.names == ["shop/lan"]);
        of_lan.map(|one| one.text).collect::<Vec<_>>()
    };
    desk["spec"]["nodeName"] = json!("n2");
    cart["spec"]["nodeName"] = json!("n1");
    assert_eq!(
        notes(&cluster(&[cart.clone(), desk.clone()]), &json!({})),
        [""; 0]
    );
    let objects = cluster(&[cart, desk, elsewhere]);
    let text = "each node gives 10.40.0.1-10.40.0.254 by itself, and Pod shop/cart and Pod shop/desk are on different nodes, so two pods can get one address: change \"host-local\" to \"multus-ipam\"";
    let both = format!("{text}, and set ipam.enabled=true in the chart's values");
    assert_eq!(notes(&objects, &json!({})), [both]);
    assert_eq!(notes(&objects, &json!({"ipam": {"enabled": true}})), [text]);
}

#[test]
fn pods_get_no_address_from_daemons_that_give_none() {
    let lan = nad(
        "lan",
        &json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "multus-ipam", "subnet": "10.40.0.0/24"}}),
    );
    check(
        &[lan.clone(), node(), pod("lan")],
        &[
            "FAILS shop/lan: multus-ipam gives no address here: set ipam.enabled=true",
            "CHANGES shop/cart: Multus is not installed yet",
        ],
    );
    let on = json!({"ipam": {"enabled": true}});
    check_with(
        &on,
        &[lan.clone(), node(), pod("lan")],
        &["CHANGES shop/cart: Multus is not installed yet"],
    );
    check(&[lan, node()], &[]);
}
