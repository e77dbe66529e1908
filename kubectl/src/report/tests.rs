//! A report of the cluster in `tests/fixtures/report/cluster.json`: its text, JSON and page, and what must not be in them.
//! `UPDATE_EXPECT=1 cargo test -p kubectl report` writes the expected files.

use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};

use super::{gather::Snapshot, html, model, text};
use crate::node_daemon::{AllReplies, DaemonReply};

fn path(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    dir.join("tests/fixtures/report").join(name)
}

fn cluster() -> Value {
    let text = fs::read_to_string(path("cluster.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn objects(value: &Value) -> Vec<Value> {
    value.as_array().unwrap().clone()
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Reads a snapshot from a cluster's objects and the answers of its daemons.
fn snapshot(cluster: &Value) -> Snapshot {
    let replies = cluster["podReplies"].as_object().unwrap().iter();
    let replies = replies.map(|(pod, answer)| {
        let (daemon, answer) = ("kube-system/m".to_owned(), read(answer));
        (pod.clone(), DaemonReply::Answered { daemon, answer })
    });
    let mut snapshot = Snapshot {
        now: cluster["now"].as_u64().unwrap(),
        pods: objects(&cluster["pods"]),
        definitions: Some(objects(&cluster["definitions"])),
        nodes: Some(objects(&cluster["nodes"])),
        daemon_sets: Some(objects(&cluster["daemonSets"])),
        blocks: objects(&cluster["blocks"]),
        claims: Some(objects(&cluster["claims"])),
        has_claims: Some(true),
        is_ipam_on: Some(true),
        events: objects(&cluster["events"]),
        replies: AllReplies {
            answers: read(&cluster["networks"]),
            gaps: read(&cluster["networkGaps"]),
        },
        statuses: read(&cluster["statuses"]),
        pod_replies: replies.collect(),
        vpn: read(&cluster["vpn"]),
        gaps: read(&cluster["gaps"]),
        ..Snapshot::default()
    };
    snapshot.known = model::known(snapshot.definitions.as_deref());
    snapshot.addresses = model::addresses(&snapshot);
    snapshot
}

/// Returns the text, the JSON and the page of a report.
fn outputs(snapshot: &Snapshot, is_full: bool) -> [String; 3] {
    let report = model::report(snapshot, is_full).unwrap();
    let json = serde_json::to_string_pretty(&report).unwrap() + "\n";
    [text(&report), json, html::page(&report)]
}

#[test]
fn report_of_a_cluster_is_as_expected() {
    let outputs = outputs(&snapshot(&cluster()), false);
    for (name, found) in ["report.txt", "report.json", "report.html"]
        .iter()
        .zip(outputs)
    {
        // A version and a style of its own are in no diff of this file.
        let found = found.replace(api::version::VERSION, "@VERSION@");
        let found = found.replace(html::STYLE, "");
        if env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(path(name), &found).unwrap();
        }
        let expected = fs::read_to_string(path(name)).unwrap_or_default();
        assert_eq!(found, expected, "UPDATE_EXPECT=1 cargo test writes {name}");
    }
}

/// Writes the pages of the fixture and of a large cluster into the directory of `REPORT_DIR`, to look at.
#[test]
#[ignore = "writes files for a browser"]
fn pages_to_look_at() {
    let dir = PathBuf::from(env::var_os("REPORT_DIR").unwrap());
    for (name, cluster) in [("small.html", cluster()), ("large.html", large())] {
        let [.., page] = outputs(&snapshot(&cluster), false);
        fs::write(dir.join(name), page).unwrap();
    }
}

#[test]
fn report_of_a_namespace_names_no_other() {
    let mut snapshot = snapshot(&cluster());
    snapshot.namespace = Some("infra".to_owned());
    snapshot.gaps.clear();
    for output in outputs(&snapshot, false) {
        assert!(output.contains("infra/backup"));
        assert!(
            !output.contains("shop/cart") && !output.contains("shop/storage"),
            "{output}"
        );
    }
}

#[test]
fn secret_values_are_only_in_a_full_report() {
    let mut cluster = cluster();
    let entry = r#"[{"name": "storage", "cni-args": {"token": "S3cret-arg", "deep": {"list": ["S3cret-\"q"]}}}]"#;
    let config = r#"{"cniVersion": "1.0.0", "type": "foreign", "password": "S3cret-key", "ipam": {"type": "own", "etcd": {"key": "S3cret-ipam"}}}"#;
    let (networks, other) = (plan::NETWORKS_ANNOTATION, "example.com/token");
    let annotations = [
        (0, networks, entry),
        (0, other, "S3cret-other"),
        (4, networks, r#"[{"cni-args": {"t": "S3cret-cut""#),
    ];
    for (pod, key, text) in annotations {
        cluster["pods"][pod]["metadata"]["annotations"][key] = text.into();
    }
    for (index, text) in [(2, r#"{"key": "S3cret-broken""#), (3, config)] {
        cluster["definitions"][index]["spec"]["config"] = text.into();
    }
    let secrets = "S3cret-arg S3cret-\"q S3cret-key S3cret-ipam S3cret-cut S3cret-broken";
    for (index, secret) in secrets.split(' ').enumerate() {
        let reason = format!("the plugin quotes {secret} and {}", secret.escape_debug());
        let network = &mut cluster["networks"]["node-a"]["networks"][index % 4];
        network["state"] = json!("cannot");
        network["reason"] = reason.as_str().into();
        cluster["events"][2 + index % 2]["message"] = reason.as_str().into();
        let failure = json!({"id": "0", "pod": "shop/till", "verb": "ADD", "code": 7, "msg": reason, "at": 1, "count": 1});
        let failures = &mut cluster["podReplies"]["shop/till"]["failures"];
        failures.as_array_mut().unwrap().push(failure);
    }
    let snapshot = snapshot(&cluster);
    for output in outputs(&snapshot, false) {
        assert!(!output.contains("S3cret"), "{output}");
    }
    let [_, json, page] = outputs(&snapshot, true);
    for secret in ["S3cret-arg", "S3cret-key", "S3cret-ipam"] {
        assert!(json.contains(secret) && page.contains(secret), "{secret}");
    }
}

/// Puts a hostile text into names and sentences of a cluster.
fn replace(value: &mut Value, hostile: &str) {
    match value {
        Value::String(text) if text.contains("node-a") || text.contains("cart") => {
            *text = text.replace("node-a", hostile).replace("cart", hostile);
        }
        Value::String(text) if !text.starts_with(['[', '{']) && text.contains(' ') => {
            text.push_str(hostile);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, hostile)),
        Value::Object(map) => map.values_mut().for_each(|value| replace(value, hostile)),
        _ => {}
    }
}

#[test]
fn hostile_names_are_text() {
    let hostile = "<script>alert('x')</script>\"&\u{202e}\u{0}";
    let mut cluster = cluster();
    replace(&mut cluster, hostile);
    let [.., page] = outputs(&snapshot(&cluster), true);
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)"), "{page}");
    let escaped = page.matches("&lt;script&gt;").count();
    assert!(escaped > 20, "{escaped}");
    assert!(!page.contains("<script") && !page.contains('\u{202e}') && !page.contains('\u{0}'));
    check_well_formed(&page);
}

/// A cluster with 1,000 pods of ten networks on 20 nodes, a fifth of them with a second network.
fn large() -> Value {
    let mut cluster = cluster();
    for key in [
        "pods",
        "definitions",
        "nodes",
        "blocks",
        "events",
        "networkGaps",
    ] {
        cluster[key] = json!([]);
    }
    let mut add = |key: &str, object: Value| cluster[key].as_array_mut().unwrap().push(object);
    for number in 0..10 {
        let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": format!("ens{number}"),
            "ipam": {"type": "whereabouts", "range": format!("10.{}.0.0/16", 100 + number)}});
        let metadata = json!({"namespace": "shop", "name": format!("network-{number}")});
        add(
            "definitions",
            json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": metadata, "spec": {"config": config.to_string()}}),
        );
    }
    for number in 0..1000 {
        let networks = [number, number + 3].map(|number| format!("shop/network-{}", number % 10));
        let networks = &networks[..if number % 5 == 0 { 2 } else { 1 }];
        let (high, low) = (number / 250, number % 250);
        let status = networks.iter().zip(1..).map(|(name, index)| {
            json!({"name": name, "interface": format!("net{index}"), "mac": format!("02:00:0a:64:{high:02x}:{low:02x}"),
                "ips": [format!("10.{}.{high}.{}", 100 + number % 10, low + 2)]})
        });
        let annotations = json!({(plan::NETWORKS_ANNOTATION): networks.join(","),
            "k8s.v1.cni.cncf.io/network-status": status.collect::<Value>().to_string()});
        let metadata = json!({"namespace": "shop", "name": format!("checkout-7d9f8c7b6d-{number:05}"), "annotations": annotations});
        let status = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"});
        add(
            "pods",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status,
            "spec": {"nodeName": format!("worker-{}", number % 20), "containers": []}}),
        );
    }
    let verdicts = (0..10)
        .map(|number| json!({"network": format!("shop/network-{number}"), "state": "serves"}));
    let verdicts: Value = verdicts.collect();
    let answers = (0..20).map(|worker| {
        let pods = (0..1000).filter(|pod| pod % 20 == worker);
        let attached = pods.map(|pod| json!({"pod": format!("shop/checkout-7d9f8c7b6d-{pod:05}"), "interface": "net1", "milliseconds": 30 + pod}));
        let answer = json!({"schema": 1, "version": "1.2.3", "networks": verdicts, "attached": attached.collect::<Value>()});
        (format!("worker-{worker}"), answer)
    });
    cluster["networks"] = answers.collect();
    cluster
}

#[test]
fn page_of_a_thousand_pods_is_small() {
    let mut cluster = large();
    let check_size = |cluster: &Value, shown: usize| {
        let [.., page] = outputs(&snapshot(cluster), false);
        check_well_formed(&page);
        let rows = page.matches("<th>checkout-").count();
        let double_rows = page.matches("<th rowspan=\"2\">checkout-").count();
        assert_eq!(rows + double_rows, shown);
        assert!(page.len() <= 300_000, "{} bytes", page.len());
    };
    check_size(&cluster, 1000);
    for (number, pod) in cluster["pods"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        let absent = format!("absent-{number}");
        pod["metadata"]["annotations"] = json!({(plan::NETWORKS_ANNOTATION): absent});
        pod["status"]["phase"] = "Pending".into();
    }
    check_size(&cluster, 0);
}

#[test]
fn page_needs_nothing_else_and_is_used_by_keys() {
    let [.., page] = outputs(&snapshot(&cluster()), false);
    check_well_formed(&page);
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>";
    assert!(page.contains(policy));
    let absent = "<script src= url( @import http: https: <button onclick <iframe javascript:";
    for absent in absent.split(' ') {
        assert!(!page.contains(absent), "{absent}");
    }
    // What scrolls gets the focus; everything else that reacts is native.
    assert_eq!(
        page.matches("class=\"wide").count(),
        page.matches("tabindex=\"0\"").count()
    );
    for link in page.split("href=\"").skip(1) {
        let target = link.split('"').next().unwrap();
        let id = target.strip_prefix('#').unwrap();
        assert!(page.contains(&format!(" id=\"{id}\"")), "{target}");
    }
}

/// Fails unless a page is well-formed XML: each element is closed in its order, attributes are quoted, and nothing else is markup.
#[track_caller]
fn check_well_formed(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
    let (mut open, mut ids) = (Vec::new(), std::collections::BTreeSet::new());
    while let Some((text, markup)) = rest.split_once('<') {
        check_text(text);
        let (tag, after) = markup.split_once('>').unwrap();
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{tag}>");
            continue;
        }
        let (tag, is_empty) = tag
            .strip_suffix('/')
            .map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(
            name.chars().all(|letter| letter.is_ascii_alphanumeric()),
            "<{tag}>"
        );
        let is_void = ["meta", "br", "rect", "path"].contains(&name);
        assert_eq!(is_empty, is_void, "<{tag}>");
        let mut parts = attributes.split('"');
        while let Some(key) = parts.next().filter(|key| !key.is_empty()) {
            let value = parts.next().unwrap_or_else(|| panic!("<{tag}>"));
            let key = key
                .trim_start()
                .strip_suffix('=')
                .unwrap_or_else(|| panic!("<{tag}>"));
            assert!(
                key.chars()
                    .all(|letter| letter.is_ascii_alphabetic() || letter == '-'),
                "<{tag}>"
            );
            check_text(value);
            assert!(key != "id" || ids.insert(value), "<{tag}>");
        }
        if !is_empty {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?}");
}

#[track_caller]
fn check_text(text: &str) {
    assert!(!text.contains(['<', '\u{0}']), "{text}");
    for entity in text.split('&').skip(1) {
        let name = entity.split(';').next().unwrap();
        assert!(
            ["amp", "lt", "gt", "quot", "#39"].contains(&name),
            "&{entity}"
        );
    }
}

#[test]
fn colours_have_contrast_in_light_and_dark() {
    let (light, dark) = html::STYLE
        .split_once("@media(prefers-color-scheme:dark)")
        .unwrap();
    let dark = dark.split_once("}}").unwrap().0;
    for (scheme, name) in [(light, "light"), (dark, "dark")] {
        let colour = |name: &str| {
            let (_, value) = scheme.split_once(&format!("--{name}:#")).unwrap();
            luminance(value.split([';', '}']).next().unwrap())
        };
        let contrast = |one: &str, other: &str| {
            let (one, other) = (colour(one), colour(other));
            (one.max(other) + 0.05) / (one.min(other) + 0.05)
        };
        for ground in ["bg", "card", "c0", "c1", "c2"] {
            for text in ["fg", "soft"] {
                let found = contrast(text, ground);
                assert!(found >= 4.5, "{name}: {text} on {ground}: {found:.2}");
            }
        }
        for (text, ground) in [
            ("bad", "card"),
            ("warn", "card"),
            ("good", "card"),
            ("link", "bg"),
            ("link", "card"),
        ] {
            let found = contrast(text, ground);
            assert!(found >= 4.5, "{name}: {text} on {ground}: {found:.2}");
        }
        // WCAG 1.4.11: graphics have 3:1.
        let found = contrast("bar", "rail");
        assert!(found >= 3.0, "{name}: bar on rail: {found:.2}");
    }
}

/// Returns the relative luminance of a colour (WCAG 2.2) of three or six hexadecimal digits.
fn luminance(colour: &str) -> f64 {
    let digit = |text: &str| f64::from(u8::from_str_radix(text, 16).unwrap()) / 255.0;
    let width = colour.len() / 3;
    let channels = [0, 1, 2].map(|index| {
        let text = &colour[index * width..(index + 1) * width];
        let value = digit(&text.repeat(2 / width));
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    });
    0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]
}
