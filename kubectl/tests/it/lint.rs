//! `lint` of files, directories and pipes, with its exit statuses.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::json;

use crate::{
    answer, check,
    cluster::{Cluster, list},
    has, is_refused, run,
};

const VALID: &str = r#"apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: storage
spec:
  config: |
    {
      "cniVersion": "1.0.0", "type": "bridge", "capabilities": {"ips": true}, "ipam": {"type": "host-local", "subnet": "10.40.0.0/24"}
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  template:
    metadata: {annotations: {k8s.v1.cni.cncf.io/networks: storage}}
    spec: {containers: [{name: c}]}
"#;

/// Returns the arguments that check the standard input against a cluster.
fn cluster_args(kubeconfig: &Path) -> [&str; 5] {
    let kubeconfig = kubeconfig.to_str().unwrap();
    ["lint", "--cluster", "-", "--kubeconfig", kubeconfig]
}

#[test]
fn valid_objects_from_stdin_exit_with_0() {
    let output = run(&["lint", "-"], VALID);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "2 objects checked: 0 errors, 0 warnings\n");
}

#[test]
fn objects_of_the_pages_are_valid() {
    let pages = docs::Pages::of_checkout().unwrap();
    let blocks = pages.blocks(|check| {
        let runs = ["netns", "cluster"].contains(&check.word());
        runs || *check == docs::Check::Linted
    });
    let blocks = blocks
        .into_iter()
        .filter(|(_, block)| block.language == "yaml");
    let mut by_page: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (page, block) in blocks {
        by_page.entry(&page.path).or_default().push(&block.text);
    }
    assert!(by_page.contains_key("docs/plugins.md"), "{by_page:?}");
    for (page, texts) in by_page {
        let output = run(&["lint", "--strict", "-"], &texts.join("---\n"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.ends_with(" checked: 0 errors, 0 warnings\n"),
            "{page}: {text}"
        );
        assert_eq!(output.status.code(), Some(0), "{page}: {text}");
    }
}

/// The keys of every configuration, each in a definition of its own.
#[test]
fn examples_of_definitions_are_valid() {
    let pages = docs::Pages::of_checkout().unwrap();
    let page = &pages.get("docs/networks.md").unwrap().text;
    let (_, section) = page.split_once("\n## Of every configuration\n").unwrap();
    let (table, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let example = cells[1].trim_matches('`');
        if example.is_empty() {
            assert!(cells[2].contains("never by you"), "{row}");
            continue;
        }
        for key in cells[0].split('`').skip(1).step_by(2) {
            assert!(example.contains(&format!("\"{key}\":")), "{row}");
        }
        let mut config = serde_json::from_str::<serde_json::Value>(&format!("{{{example}}}"))
            .unwrap_or_else(|error| panic!("{row}: {error}"));
        let is_list = config.get("plugins").is_some();
        let defaults = [("cniVersion", json!("1.0.0")), ("type", json!("bridge"))];
        for (key, value) in defaults {
            if config.get(key).is_none() && (key != "type" || !is_list) {
                config[key] = value;
            }
        }
        let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "shop"}, "spec": {"config": config.to_string()}});
        let (status, report) = answer(&["lint", "--strict", "-"], &object.to_string());
        assert_eq!(status, 0, "{row}: {report}");
    }
}

#[test]
fn errors_name_file_line_and_object() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("sub");
    fs::create_dir(&sub).unwrap();
    fs::write(sub.join("a.yaml"), VALID.replace("{\n", "[\n")).unwrap();
    fs::write(sub.join("b.yaml"), "a: [").unwrap();
    let output = run(&["lint", dir.path().to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |number: usize| text.lines().nth(number).unwrap();
    let name = |file: &str| sub.join(file).display().to_string();
    let begin = format!(
        "{}:1: error: NetworkAttachmentDefinition default/storage: ",
        name("a.yaml")
    );
    assert!(line(0).starts_with(&begin), "{text}");
    let begin = format!("{}:11: error: Deployment default/cart: ", name("a.yaml"));
    assert!(line(1).starts_with(&begin), "{text}");
    let begin = format!("{}:1: error: is not valid YAML", name("b.yaml"));
    assert!(line(2).starts_with(&begin), "{text}");
    assert_eq!(line(3), "2 objects checked: 3 errors, 0 warnings");
}

#[test]
fn pod_of_a_wrong_annotation_is_named_once() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: cart, annotations: {k8s.v1.cni.cncf.io/networks: '[{'}}\nspec: {containers: [{name: c}]}\n";
    let (_, report) = answer(&["lint", "-"], pod);
    let text = &report["findings"][0]["text"];
    has(text, "\"annotation k8s.v1");
    has(text, "not valid JSON");
}

/// Files and directories in which nothing is checked must not look valid.
#[test]
fn sources_without_objects_are_errors() {
    let nothing = "nothing to check: no definition, pod or pod template in it";
    for (input, expected) in [
        ("", nothing),
        ("hello world\n", nothing),
        ("apiVersion: v1\nkind: Service\n", nothing),
        (
            r#"{"cniVersion": "1.0.0", "name": "lan", "type": "bridge"}"#,
            nothing,
        ),
        (
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefintion\n",
            "unknown kind \"NetworkAttachmentDefintion\": did you mean NetworkAttachmentDefinition?",
        ),
        (
            "apiVersion: v1\nkind: net-attach-def\n",
            "did you mean NetworkAttachmentDefinition?",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: pod}]\n",
            "did you mean Pod?",
        ),
    ] {
        let (status, report) = answer(&["lint", "-"], input);
        assert_eq!((status, &report["errors"]), (1, &json!(1)), "{report}");
        let text = report["findings"][0]["text"].as_str().unwrap();
        assert!(text.contains(expected), "{report}");
        assert_eq!(report["findings"][0]["file"], "stdin");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    fs::write(dir.path().join("notes.txt"), "hello").unwrap();
    let output = run(&["lint", path], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with(&format!("{path}: error: {nothing}\n")),
        "{text}"
    );
    fs::write(
        dir.path().join("service.yaml"),
        "apiVersion: v1\nkind: Service\n",
    )
    .unwrap();
    assert_eq!(answer(&["lint", path], "").0, 1);
    fs::write(dir.path().join("valid.yaml"), VALID).unwrap();
    let (status, report) = answer(&["lint", path], "");
    assert_eq!((status, &report["findings"]), (0, &json!([])), "{report}");
}

#[test]
fn files_that_cannot_be_read_exit_with_3() {
    let output = run(&["lint", "/no/such.yaml"], "");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("/no/such.yaml: error: cannot be read: "),
        "{text}"
    );
    // Another error comes first.
    assert_eq!(answer(&["lint", "/no/such.yaml", "-"], "").0, 1);
}

#[test]
fn findings_name_their_object_once() {
    let definition = VALID.split("---").next().unwrap().replace("{\n", "[\n");
    let pod = |networks: &str| {
        format!(
            "---\nkind: Pod\nmetadata: {{name: cart, annotations: {{k8s.v1.cni.cncf.io/networks: '{networks}'}}}}\n"
        )
    };
    for (input, begin) in [
        (definition, "the CNI configuration is not a JSON object"),
        (
            pod(r#"[{"name": "lan", "mac": "x"}]"#),
            "annotation k8s.v1.cni.cncf.io/networks: entry 1 (network lan): mac: \"x\" is not a valid hardware address",
        ),
        (
            pod("lan, lan, lan"),
            "network default/lan is not among these files",
        ),
    ] {
        let (_, report) = answer(&["lint", "-"], &input);
        let findings = report["findings"].as_array().unwrap();
        let [finding] = &findings[..] else {
            panic!("{report}");
        };
        let text = finding["text"].as_str().unwrap();
        assert!(text.starts_with(begin), "{report}");
    }
}

#[test]
fn plugins_that_every_node_needs_are_notes() {
    let definition = VALID.split("---").next().unwrap();
    let definition = definition
        .replace("bridge", "sriov")
        .replace("host-local", "whereabouts")
        .replace("\"subnet\"", "\"log_level\": \"debug\", \"range\"");
    let report = answer(&["lint", "--strict", "-"], &definition);
    for (index, text) in [
        "plugin \"sriov\" does not come with Multus: every node needs it",
        "plugin \"whereabouts\" is served with the value ipam.whereabouts of Multus' chart; without it every node needs its program",
        "whereabouts: only its own program reads log_level",
    ]
    .iter()
    .enumerate()
    {
        check(&report, 0, &format!("/findings/{index}/text"), &json!(text));
        check(&report, 0, &format!("/findings/{index}/severity"), &json!("note"));
    }
}

#[test]
fn strict_fails_on_warnings() {
    let twice = format!("{VALID}---\n{VALID}");
    let (status, report) = answer(&["lint", "-"], &twice);
    assert_eq!((status, &report["warnings"]), (0, &json!(2)), "{report}");
    assert_eq!(report["findings"][0]["line"], 19, "{report}");
    assert_eq!(answer(&["lint", "--strict", "-"], &twice).0, 1);
}

#[test]
fn options_of_the_daemon_are_applied() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("daemon-config.json");
    let args = ["lint", "-", "--daemon-config", file.to_str().unwrap()];
    fs::write(&file, r#"{"allowedPlugins": ["macvlan"]}"#).unwrap();
    let (status, report) = answer(&args, VALID);
    assert_eq!((status, &report["errors"]), (1, &json!(2)), "{report}");
    fs::write(&file, r#"{"allowedPlugin": ["macvlan"]}"#).unwrap();
    let output = run(&args, VALID);
    is_refused(&output, "did you mean \"allowedPlugins\"");
}

#[test]
fn networks_are_read_from_the_cluster() {
    let pod = VALID.split_once("---\n").unwrap().1;
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/storage";
    let nad = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": "shop"}, "spec": {"config": r#"{"cniVersion":"1.0.0","type":"bridge"}"#}});
    let pods = ("/api/v1/pods", 200, list(&json!([])));
    let server = Cluster::start(&[(path, 200, nad), pods]);
    let kubeconfig = server.kubeconfig();
    let args = cluster_args(&kubeconfig);
    assert_eq!(answer(&args, pod).0, 0);
    let args = [&args[..], &["--context", "other"]].concat();
    let (status, report) = answer(&args, pod);
    assert_eq!(status, 1);
    let text = &report["findings"][0]["text"];
    has(text, "(storage) in namespace (empty)");
}

/// A cluster with these answers and one definition, shop/lan, whose range each node gives by itself.
fn lan_cluster(others: &[(&str, u16, serde_json::Value)]) -> Cluster {
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/lan";
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.40.0.0/24"}});
    let nad = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "lan", "namespace": "shop"}, "spec": {"config": config.to_string()}});
    Cluster::start(&[&[(path, 200, nad)], others].concat())
}

#[test]
fn pods_of_the_cluster_count_once() {
    let list = |items: serde_json::Value| json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
    let pod = |name: &str, owner: &str, node: &str, phase: &str| {
        json!({"metadata": {"namespace": "shop", "name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": "lan"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": owner}]},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}})
    };
    let deployment = VALID.split_once("---\n").unwrap().1;
    let deployment = deployment.replace("networks: storage", "networks: lan");
    let findings = |pods: serde_json::Value, others: &[(&str, u16, serde_json::Value)]| {
        let pods = [("/api/v1/pods", 200, list(pods))];
        let server = lan_cluster(&[others, &pods[..]].concat());
        let kubeconfig = server.kubeconfig();
        let args = cluster_args(&kubeconfig);
        let (status, report) = answer(&args, &deployment);
        assert_eq!(status, 0, "{report}");
        report["findings"].clone()
    };
    // They are the Deployment's own, or have ended.
    let own = [
        pod("cart-1", "cart-5d9", "n1", "Running"),
        pod("cart-2", "cart-5d9", "n2", "Running"),
        pod("old", "other-1", "n2", "Succeeded"),
    ];
    assert_eq!(findings(json!(own), &[]), json!([]));
    let other = pod("other", "other-1", "n2", "Running");
    let found = findings(json!([other]), &[]);
    assert_eq!(found[0]["object"], "Deployment shop/cart");
    let text = found[0]["text"].as_str().unwrap();
    let expected = "network-attachment-definition shop/lan: each node gives 10.40.0.1-10.40.0.254 by itself, and Deployment shop/cart and Pod shop/other";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.ends_with(" and set ipam.enabled=true in the chart's values"),
        "{text}"
    );
    let config = json!({"metadata": {"namespace": "kube-system", "name": "c"}, "data": {"daemon-config.json": "{\"ipam\": true}"}});
    let multus = json!({"metadata": {"name": "multus", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [{"command": ["/multus-daemon"], "env": [{"name": "MULTUS_DAEMONSET"}]}],
            "volumes": [{"name": "c", "configMap": {"name": "c"}}]}}}});
    let installed = [
        ("/apis/apps/v1/daemonsets", 200, list(json!([multus]))),
        ("/api/v1/namespaces/kube-system/configmaps/c", 200, config),
    ];
    let found = findings(json!([other]), &installed);
    let text = found[0]["text"].as_str().unwrap();
    assert!(text.ends_with("to \"multus-ipam\""), "{text}");
    let one = [(
        "/api/v1/nodes",
        200,
        list(json!([{"metadata": {"name": "n2"}}])),
    )];
    assert_eq!(findings(json!([other]), &one), json!([]));
}

#[test]
fn definitions_of_the_cluster_are_compared() {
    let nad = |name: &str, subnet: &str| {
        let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "multus-ipam", "subnet": subnet}});
        json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"config": config.to_string()}})
    };
    let others = json!([nad("lan", "10.20.0.0/16"), nad("mine", "10.40.0.0/16")]);
    let list = |items: serde_json::Value| json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
    let nads = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
    let pods = ("/api/v1/pods", 200, list(json!([])));
    let server = Cluster::start(&[(nads, 200, list(others)), pods]);
    let kubeconfig = server.kubeconfig();
    let args = cluster_args(&kubeconfig);
    // The file's own definition counts, not the one that it replaces.
    let (status, report) = answer(&args, &nad("mine", "10.20.3.0/24").to_string());
    assert_eq!((status, &report["warnings"]), (0, &json!(1)), "{report}");
    let text = report["findings"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("10.20.3.0/24 shares addresses with 10.20.0.0/16 of network shop/lan"),
        "{text}"
    );
}

#[test]
fn daemons_that_give_no_addresses_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("daemon-config.json");
    let args = ["lint", "--daemon-config", file.to_str().unwrap(), "-"];
    let lan = VALID.replace("host-local", "multus-ipam");
    for (options, errors) in [("{}", 1), (r#"{"ipam": true}"#, 0)] {
        fs::write(&file, options).unwrap();
        let (_, report) = answer(&args, &lan);
        assert_eq!(report["errors"], json!(errors), "{report}");
    }
}

#[test]
fn pods_that_cannot_be_read_are_a_note() {
    let refusal = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "pods is forbidden"});
    let server = lan_cluster(&[("/api/v1/pods", 403, refusal)]);
    let kubeconfig = server.kubeconfig();
    let pod = VALID.split_once("---\n").unwrap().1;
    let pod = pod.replace("networks: storage", "networks: lan");
    let args = cluster_args(&kubeconfig);
    let output = run(&args, &pod);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "cluster: note: pods of the cluster were not read, so their use of addresses is unknown: pods is forbidden\n";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn wrong_command_lines_exit_with_2() {
    for args in [
        &["lint"][..],
        &["jump"],
        &["why"],
        &["status", "-A", "cart"],
        &[],
    ] {
        let output = run(args, "");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn one_fixed_address_for_two_pods_is_an_error() {
    let address = r#"'[{"name":"storage","ips":["10.40.0.77/24"]}]'"#;
    let pod = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{k8s.v1.cni.cncf.io/networks: {address}}}}}\nspec: {{containers: [{{name: c}}]}}\n"
        )
    };
    let definition = VALID.split("---").next().unwrap();
    let output = run(&["lint", "-"], &format!("{definition}{}", pod("one")));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let both = format!("{definition}{}{}", pod("one"), pod("two"));
    let output = run(&["lint", "-"], &both);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("Pod default/two: address 10.40.0.77 of network default/storage is also requested by Pod default/one"),
        "{text}"
    );
    let replicas = VALID
        .replace("networks: storage", &format!("networks: {address}"))
        .replace("spec:\n  template", "spec:\n  replicas: 3\n  template");
    let output = run(&["lint", "-"], &replicas);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("each of 3 replicas"), "{text}");
}
