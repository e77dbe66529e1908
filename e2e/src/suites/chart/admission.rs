//! Admission of network definitions: the policy's verdicts, compared with those of the daemon's parser on the same text.

mod texts;

use anyhow::{Context as _, bail, ensure};
use cni::{config::NetworkConfig, version::SUPPORTED};
use serde_json::{Value, json};

use self::texts::{ACCEPTED, BROKEN, REFUSED};
use super::server::Server;
use crate::{
    control_plane::{api_client::ApiClient, objects},
    report::{Checked, Report, say},
    sh,
    test_env::TestEnv,
};

const MAIN: &str = "rke2-multus";
const CRD: &str = "rke2-multus-crd";
const PLACE: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Checked {
    let api = &server.api;
    report.check("without validation any definition is accepted", || {
        server.release("install", CRD, &env.chart(CRD)?, &[])?;
        let old = definition("old", BROKEN);
        sh::until(30, "network definitions can be created", || {
            api.request("POST", PLACE, &old)
        })?;
        let on = "--set=definitionValidation.enabled=true";
        server.release("install", MAIN, &env.chart(MAIN)?, &[on])?;
        sh::until(30, "the policy is in force", || {
            ensure!(
                refusal(api, BROKEN)?.is_some(),
                "a broken definition is accepted"
            );
            Ok(())
        })
    })?;
    report.check("broken definitions are refused with the reason", || {
        for (text, words) in REFUSED {
            let said = refusal(api, text)?.with_context(|| format!("{text} is accepted"))?;
            ensure!(said.contains(words), "{text}: no `{words}` in {said}");
            ensure!(!is_usable(text), "{text}: the daemon can use it");
        }
        Ok(())
    })?;
    report.check(
        "sound definitions are accepted, also deeply nested and large ones",
        || {
            let (deep, large) = (texts::deep(), texts::large());
            for text in ACCEPTED
                .iter()
                .copied()
                .chain([deep.as_str(), large.as_str()])
            {
                let said = refusal(api, text)?;
                ensure!(said.is_none(), "{text}: {said:?}");
            }
            let cut = &large[..large.len() - 1];
            ensure!(
                refusal(api, cut)?.is_some(),
                "a truncated large definition is accepted"
            );
            Ok(())
        },
    )?;
    report.check("no definition is refused that the daemon can use", || {
        compare_with_daemon(api)
    })?;
    report.check(
        "an existing broken definition can be labelled and repaired, but not broken again",
        || updates(api),
    )?;
    report.check(
        "with Warn a broken definition is accepted with a warning",
        || {
            let on = [
                "--set=definitionValidation.enabled=true",
                "--set=definitionValidation.actions={Warn}",
            ];
            server.release("upgrade", MAIN, &env.chart(MAIN)?, &on)?;
            sh::until(30, "the policy warns", || {
                let answer = api.request(
                    "POST",
                    &format!("{PLACE}?dryRun=All"),
                    &definition("x", BROKEN),
                )?;
                ensure!(
                    answer.headers.contains("spec.config is not valid json"),
                    "{}",
                    answer.headers
                );
                Ok(())
            })
        },
    )?;
    report.check(
        "pods take the node selectors of the definitions that they name, and of no other",
        || selectors(env, server),
    )?;
    report.check("without the release no definition is refused", || {
        server.helm(&["uninstall", MAIN])?;
        sh::until(30, "the policy is deleted", || {
            api.request(
                "POST",
                &format!("{PLACE}?dryRun=All"),
                &definition("x", BROKEN),
            )
        })?;
        server.helm(&["uninstall", CRD])?;
        server.kubectl(&["delete", "crd", "--all"]).map(drop)
    })
}

fn definition(name: &str, config: &str) -> Value {
    let mut object = objects::network(name, &Value::Null);
    object["spec"]["config"] = json!(config);
    object
}

/// Returns why the API server refuses a definition with this text, or `None` when it accepts it.
fn refusal(api: &ApiClient, config: &str) -> anyhow::Result<Option<String>> {
    let place = format!("{PLACE}?dryRun=All");
    match api.request("POST", &place, &definition("x", config)) {
        Ok(_) => Ok(None),
        Err(error) => {
            let text = error.to_string();
            let said = text.contains("ValidatingAdmissionPolicy");
            if !said {
                bail!("{config}: not refused by the policy: {text}");
            }
            Ok(Some(text.replace("\\\"", "\"")))
        }
    }
}

/// Returns whether the daemon can use the text: its parser accepts it, and it knows exactly this CNI version.
fn is_usable(text: &str) -> bool {
    if text.trim().is_empty() {
        return true;
    }
    let named = NetworkConfig::parse_named(text.as_bytes(), "x");
    named.is_ok_and(|config| {
        let version = config.cni_version.as_str();
        version.is_empty() || SUPPORTED.iter().any(|known| known.to_string() == version)
    })
}

/// Compares both verdicts on sound texts with one character removed or added.
fn compare_with_daemon(api: &ApiClient) -> anyhow::Result<()> {
    let (mut tried, mut refused, mut missed) = (0, 0, Vec::new());
    for text in texts::TO_BREAK {
        for broken in texts::broken(text) {
            let (said, usable) = (refusal(api, &broken)?, is_usable(&broken));
            tried += 1;
            refused += usize::from(said.is_some());
            ensure!(
                said.is_none() || !usable,
                "{broken}: the daemon can use it: {said:?}"
            );
            if said.is_none() && !usable {
                missed.push(broken);
            }
        }
    }
    say(&format!(
        "        {tried} texts, {refused} refused, {} left to the daemon",
        missed.len()
    ));
    ensure!(refused > tried / 4, "only {refused} of {tried} are refused");
    // The policy checks tokens, so it misses a misspelled key or type, and a version of another type.
    ensure!(
        missed.len() * 50 < tried,
        "{} of {tried} are missed: {missed:?}",
        missed.len()
    );
    Ok(())
}

/// Pods as they are created: namespace, networks, what is merged into the pod, and the node selector that it gets.
fn pods() -> Vec<(&'static str, &'static str, Value, Value)> {
    let none = || json!({});
    let disk = || json!({"disk": "ssd"});
    let both = || json!({"disk": "ssd", "example.com/zone": "b"});
    let nested = r#"[{"name": "lan", "cni-args": {"a": {"b": 1}, "name": "wan"}, "bandwidth": {}}, {"interface": "x", "namespace": "default", "name": "wan"}]"#;
    let daemon = json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]}});
    let selecting = |selector: Value| json!({"spec": {"nodeSelector": selector}});
    vec![
        ("default", "lan", none(), disk()),
        ("default", " lan@net5 , default/wan", none(), both()),
        ("default", nested, none(), both()),
        (
            "default",
            r#"[{"name":"lan","cni-args":{"name":"wan"}}]"#,
            none(),
            disk(),
        ),
        (
            "default",
            r#"[{"name":"lan","namespace":"shop"}]"#,
            none(),
            Value::Null,
        ),
        ("default", "lan-2, shop/lan, broken", none(), Value::Null),
        ("default", r#"[{"name":"lan""#, none(), Value::Null),
        ("shop", "lan", none(), Value::Null),
        ("shop", "default/lan", none(), disk()),
        (
            "shop",
            r#"[{"name":"wan","namespace":"default"},{"name":"own"}]"#,
            none(),
            json!({"example.com/zone": "b", "own": ""}),
        ),
        (
            "default",
            "lan,wan",
            selecting(json!({"disk": "hdd", "arch": "x"})),
            json!({"disk": "hdd", "arch": "x", "example.com/zone": "b"}),
        ),
        (
            "default",
            "lan",
            json!({"spec": {"nodeName": "n1"}}),
            Value::Null,
        ),
        ("default", "lan", daemon, Value::Null),
    ]
}

fn selectors(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let api = &server.api;
    let on = "--set=definitionSelectors.enabled=true";
    server.release("upgrade", MAIN, &env.chart(MAIN)?, &[on])?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.control.apply(&server.node, &[namespace])?;
    let definitions = [
        ("default", "lan", "disk=ssd"),
        ("default", "wan", "example.com/zone=b"),
        ("default", "broken", "disk"),
        ("shop", "own", "own="),
    ];
    for (namespace, name, selector) in definitions {
        let mut object = definition(name, ACCEPTED[0]);
        object["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/nodeSelector": selector});
        object["metadata"]["namespace"] = json!(namespace);
        api.request(
            "POST",
            &PLACE.replace("/default/", &format!("/{namespace}/")),
            &object,
        )?;
    }
    let created = |namespace: &str, networks: &str, more: &Value| -> anyhow::Result<Value> {
        let mut pod = objects::unbound_pod("cart", Some(networks));
        pod["metadata"]["namespace"] = json!(namespace);
        for part in ["metadata", "spec"] {
            for (key, value) in more[part].as_object().into_iter().flatten() {
                pod[part][key] = value.clone();
            }
        }
        let place = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        Ok(api.request("POST", &place, &pod)?.json()?["spec"]["nodeSelector"].clone())
    };
    sh::until(30, "the policy knows both definitions", || {
        let selector = created("shop", "default/wan, default/lan, own", &json!({}))?;
        let names = selector.as_object().map_or(0, serde_json::Map::len);
        ensure!(names == 3, "{selector}");
        Ok(())
    })?;
    for (namespace, networks, more, expected) in pods() {
        let selector = created(namespace, networks, &more)?;
        ensure!(
            selector == expected,
            "{namespace}: {networks} with {more}: {selector}, not {expected}"
        );
    }
    Ok(())
}

fn updates(api: &ApiClient) -> anyhow::Result<()> {
    let place = format!("{PLACE}/old");
    api.request(
        "PATCH",
        &place,
        &json!({"metadata": {"labels": {"a": "b"}}}),
    )?;
    let again = json!({"spec": {"config": "{\"type\":"}});
    ensure!(
        api.request("PATCH", &place, &again).is_err(),
        "a broken definition can be broken again"
    );
    api.request("PATCH", &place, &json!({"spec": {"config": ACCEPTED[0]}}))?;
    api.request("DELETE", &place, &Value::Null).map(drop)
}
