//! The annotations of a pod, as people write them.

use anyhow::ensure;
use serde_json::json;

use super::{Case, plain};
use crate::rules::bench::{Bench, DEFAULT_NETWORK, NETWORKS, Pod, PodForm};

pub(super) const CASES: &[Case] = &[
    plain("annotation-short-form", &["mux-9.1-short"], short),
    plain(
        "annotation-json-form",
        &["mux-9.1-json", "mux-9.1-dotted"],
        long,
    ),
    plain(
        "annotation-that-asks-for-nothing",
        &["mux-9.1-nothing"],
        nothing,
    ),
    plain("annotation-separators", &["mux-9.1-separators"], separators),
    plain(
        "annotation-bad-names",
        &["mux-9.1-names", "mux-9.1-empty-item"],
        names,
    ),
    plain(
        "annotation-bad-interfaces",
        &["mux-9.1-interface"],
        interfaces,
    ),
    plain(
        "annotation-bad-json",
        &["mux-9.1-no-list", "mux-9.1-values"],
        values,
    ),
    plain("annotation-null-entry", &["mux-9.1-null"], null),
    plain("annotation-short-guid", &["mux-9.1-guid"], guid),
    plain("annotation-bandwidth", &["mux-9.1-bandwidth"], bandwidth),
    plain("annotation-limits", &["mux-9.1-limits"], limits),
    plain("annotation-protocol", &["mux-9.1-protocol"], protocol),
    plain("annotation-unknown-keys", &["mux-9.1-others"], others),
    plain(
        "annotation-interface-request",
        &["mux-9.1-old-name"],
        old_name,
    ),
    plain("annotation-claim", &["mux-9.1-claim"], claim),
    plain(
        "annotation-claim-and-addresses",
        &["mux-9.1-claim-and-ips"],
        claim_and_ips,
    ),
    plain("annotation-same-network-twice", &["mux-9.1-twice"], twice),
    plain(
        "default-network-namespaces",
        &["mux-9.2-namespace", "mux-9.2-master"],
        namespaces,
    ),
    plain(
        "default-network-interface",
        &["mux-9.2-interface"],
        interface,
    ),
    plain("default-network-of-many", &["mux-9.2-one"], many),
    plain("default-network-empty", &["mux-9.2-empty"], empty),
    plain(
        "default-network-empty-list",
        &["mux-9.2-empty-list"],
        empty_list,
    ),
    plain("default-network-isolated", &["mux-9.2-isolation"], isolated),
];

/// Every annotation fails its pod, which is told these words, before any plugin runs.
fn all_refused(bench: &Bench, name: &str, cases: &[(&str, &str)]) -> anyhow::Result<()> {
    for (number, (networks, word)) in cases.iter().enumerate() {
        let pod = bench.pod(&format!("{name}-{number}"), networks)?;
        bench.verb("ADD", &pod)?.tells(&[word])?;
        bench.called(&pod, &[])?;
    }
    Ok(())
}

fn interfaces_of(bench: &Bench, pod: &Pod) -> anyhow::Result<Vec<String>> {
    let calls = bench.calls(pod)?.into_iter();
    Ok(calls
        .map(|call| format!("{} {}", call.network(), call.variable("CNI_IFNAME")))
        .collect())
}

fn short(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("short", " a , other/far@Ext_0.1,  default / b @ ext1 ")?;
    bench.add(&pod)?;
    let found = interfaces_of(bench, &pod)?;
    let expected = ["primary eth0", "a net1", "far Ext_0.1", "b ext1"];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

fn long(bench: &Bench) -> anyhow::Result<()> {
    let networks = r#"[{"name": "a"}, {"name": "far", "namespace": "other", "interface": "Ext_0.1"}, {"name": "with.dots", "namespace": ""}]"#;
    let pod = bench.pod("long", networks)?;
    bench.add(&pod)?;
    let found = interfaces_of(bench, &pod)?;
    let expected = ["primary eth0", "a net1", "far Ext_0.1", "dotted net3"];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

fn nothing(bench: &Bench) -> anyhow::Result<()> {
    for (name, networks) in [("nothing-0", ""), ("nothing-1", "[]")] {
        let form = PodForm {
            annotations: vec![(NETWORKS, networks.to_owned())],
            ..PodForm::default()
        };
        let pod = bench.pod_of(name, &form)?;
        bench.add(&pod)?;
        bench.called(&pod, &["ADD primary"])?;
    }
    Ok(())
}

fn separators(bench: &Bench) -> anyhow::Result<()> {
    all_refused(
        bench,
        "separated",
        &[
            ("a/b/c", "Invalid network object (failed at '/')"),
            ("a@b@c", "Invalid network object (failed at '@')"),
        ],
    )
}

fn names(bench: &Bench) -> anyhow::Result<()> {
    all_refused(
        bench,
        "misnamed",
        &[
            ("Upper", "Upper"),
            ("under_score", "under_score"),
            ("with.dots", "with.dots"),
            ("-dash", "-dash"),
            ("Far/a", "Far"),
            ("a,,b", ""),
            ("a,", ""),
        ],
    )
}

fn interfaces(bench: &Bench) -> anyhow::Result<()> {
    let words = "Failed to parse interface name";
    all_refused(
        bench,
        "misfaced",
        &[("a@sixteen-letters-", words), ("a@two words", words)],
    )?;
    // In the JSON form the kernel's rules count, whoever applies them.
    let pod = bench.pod(
        "misfaced-json",
        r#"[{"name": "a", "interface": "sixteen-letters-"}]"#,
    )?;
    bench.verb("ADD", &pod)?.tells(&["default/misfaced-json"])
}

fn values(bench: &Bench) -> anyhow::Result<()> {
    all_refused(
        bench,
        "misvalued",
        &[
            (r#"{"name": "a"}"#, ""),
            (r#"[{"name": "a"}"#, ""),
            (r#"[{"name": "a", "ips": ["10.0.0.256"]}]"#, "10.0.0.256"),
            (r#"[{"name": "a", "ips": ["10.0.0.1/33"]}]"#, "10.0.0.1/33"),
            (r#"[{"name": "a", "mac": "02:00"}]"#, "02:00"),
            (r#"[{"name": "a", "infiniband-guid": "xx"}]"#, "xx"),
            (
                r#"[{"name": "a", "default-route": ["nowhere"]}]"#,
                "nowhere",
            ),
        ],
    )
}

fn null(bench: &Bench) -> anyhow::Result<()> {
    all_refused(
        bench,
        "null",
        &[(r#"[{"name": "a"}, null]"#, "default/null-0")],
    )
}

fn guid(bench: &Bench) -> anyhow::Result<()> {
    let networks = r#"[{"name": "a", "infiniband-guid": "02:00:00:00:00:01"}]"#;
    all_refused(bench, "guid", &[(networks, "02:00:00:00:00:01")])
}

fn bandwidth(bench: &Bench) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "capable", "bandwidth": {"ingressRate": 1000, "ingressBurst": 2000}}]"#;
    let pod = bench.pod("limited", networks)?;
    bench.add(&pod)?;
    let given = &bench.call(&pod, "ADD", "capable")?.stdin["runtimeConfig"]["bandwidth"];
    let expected =
        json!({"ingressRate": 1000, "ingressBurst": 2000, "egressRate": 0, "egressBurst": 0});
    ensure!(*given == expected, "{given}");
    Ok(())
}

fn limits(bench: &Bench) -> anyhow::Result<()> {
    let bandwidth = |limits: &str| format!(r#"[{{"name": "capable", "bandwidth": {limits}}}]"#);
    let ports = |ports: &str| format!(r#"[{{"name": "capable", "portMappings": [{ports}]}}]"#);
    let refused = [
        (bandwidth("{}"), "rate"),
        (bandwidth(r#"{"ingressRate": 1000}"#), "ingressBurst"),
        (bandwidth(r#"{"egressBurst": 1000}"#), "egressRate"),
        (
            bandwidth(r#"{"ingressRate": 1000, "ingressBurst": 0}"#),
            "ingressBurst",
        ),
        (ports(r#"{"hostPort": 80}"#), "containerPort"),
        (
            ports(r#"{"hostPort": 70000, "containerPort": 80}"#),
            "70000",
        ),
        (
            ports(r#"{"hostPort": 80, "containerPort": 80, "protocol": "icmp"}"#),
            "icmp",
        ),
        (r#"[{"name": "a", "ips": []}]"#.to_owned(), "ips"),
        (
            r#"[{"name": "a", "mac": "02:00:00:00:00:00:00:07"}]"#.to_owned(),
            "6 bytes",
        ),
    ];
    let refused: Vec<_> = refused
        .iter()
        .map(|(text, word)| (&**text, *word))
        .collect();
    all_refused(bench, "limits", &refused)
}

fn protocol(bench: &Bench) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "capable", "portMappings": [{"hostPort": 8080, "containerPort": 80}]}]"#;
    let pod = bench.pod("protocol", networks)?;
    bench.add(&pod)?;
    let given = &bench.call(&pod, "ADD", "capable")?.stdin["runtimeConfig"]["portMappings"];
    ensure!(given[0]["protocol"] == "tcp", "{given}");
    Ok(())
}

fn others(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod(
        "unknown-keys",
        r#"[{"name": "a", "nobodys": {"deep": [1]}}]"#,
    )?;
    bench.add(&pod)?;
    let call = bench.call(&pod, "ADD", "a")?;
    ensure!(
        !call.stdin.to_string().contains("nobodys"),
        "{}",
        call.stdin
    );
    Ok(())
}

fn old_name(bench: &Bench) -> anyhow::Result<()> {
    let networks = r#"[{"name": "a", "interfaceRequest": "old0"}, {"name": "b", "interface": "new0", "interfaceRequest": "old1"}]"#;
    let pod = bench.pod("old-name", networks)?;
    bench.add(&pod)?;
    let found = interfaces_of(bench, &pod)?;
    ensure!(found == ["primary eth0", "a old0", "b new0"], "{found:?}");
    Ok(())
}

fn claim(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod(
        "claim",
        r#"[{"name": "a", "ipam-claim-reference": "vm.a"}]"#,
    )?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary", "ADD a"])
}

fn claim_and_ips(bench: &Bench) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "capable", "ips": ["10.66.0.7/24"], "ipam-claim-reference": "vm.a"}]"#;
    all_refused(bench, "claimed", &[(networks, "ipam-claim-reference")])
}

fn twice(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("same", "a,a@again,default/a")?;
    bench.add(&pod)?;
    let found = interfaces_of(bench, &pod)?;
    ensure!(
        found == ["primary eth0", "a net1", "a again", "a net3"],
        "{found:?}"
    );
    bench.del(&pod)?;
    let order = bench.order(&pod)?;
    ensure!(
        order[4..] == ["DEL a", "DEL a", "DEL a", "DEL primary"],
        "{order:?}"
    );
    Ok(())
}

fn with_default(bench: &Bench, name: &str, network: &str) -> anyhow::Result<Pod> {
    let form = PodForm {
        annotations: vec![
            (DEFAULT_NETWORK, network.to_owned()),
            (NETWORKS, "a".to_owned()),
        ],
        ..PodForm::default()
    };
    bench.pod_of(name, &form)
}

fn namespaces(bench: &Bench) -> anyhow::Result<()> {
    for (name, network, called) in [
        ("default-of-multus", "central", "central"),
        ("default-of-another", "other/far", "far"),
        (
            "default-json",
            r#"[{"name": "far", "namespace": "other"}]"#,
            "far",
        ),
    ] {
        let pod = with_default(bench, name, network)?;
        bench.add(&pod)?;
        let found = interfaces_of(bench, &pod)?;
        ensure!(
            found == [format!("{called} eth0"), "a net1".to_owned()],
            "{found:?}"
        );
        ensure!(bench.status(&pod)?[0]["default"] == true, "{name}");
    }
    Ok(())
}

fn interface(bench: &Bench) -> anyhow::Result<()> {
    let pod = with_default(bench, "default-named", "central@main0")?;
    bench.add(&pod)?;
    let found = interfaces_of(bench, &pod)?;
    ensure!(found == ["central main0", "a net1"], "{found:?}");
    bench.del(&pod)?;
    let found = interfaces_of(bench, &pod)?;
    ensure!(found[2..] == ["a net1", "central main0"], "{found:?}");
    Ok(())
}

fn refused_default(bench: &Bench, name: &str, network: &str, word: &str) -> anyhow::Result<()> {
    let pod = with_default(bench, name, network)?;
    bench.verb("ADD", &pod)?.tells(&[word])?;
    bench.called(&pod, &[])
}

fn many(bench: &Bench) -> anyhow::Result<()> {
    let words = "more than one default network is specified";
    refused_default(bench, "default-many", "central,also-central", words)
}

fn empty(bench: &Bench) -> anyhow::Result<()> {
    refused_default(bench, "default-empty", "", "default/default-empty")
}

fn empty_list(bench: &Bench) -> anyhow::Result<()> {
    refused_default(
        bench,
        "default-none",
        "[]",
        "no default network is specified",
    )
}

fn isolated(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({"namespaceIsolation": true});
    let pod = with_default(bench, "default-isolated", "other/far")?;
    bench
        .verb_with("ADD", &pod, &keys)?
        .tells(&["annotation violates permission"])?;
    bench.called(&pod, &[])?;
    let pod = with_default(bench, "default-central", "central")?;
    bench.add_with(&pod, &keys)?;
    bench.called(&pod, &["ADD central", "ADD a"])
}
