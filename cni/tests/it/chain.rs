//! Chains with fake plugins: the stdin and environment of each, and the use of its result.

use cni::cache;
use cni::chain::{self, Attachment, ChainError};
use cni::exec::ExecError;
use cni::{CniError, ContainerId, NetworkConfig};
use serde_json::{Map, Value, json};

use crate::recorder::{Recorder, failing, invocation, network, pair};

#[test]
fn add_runs_in_order_and_passes_results_on() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    let result = chain::add(&exec, &network("0.4.0"), &invocation(&dir)).unwrap();
    assert_eq!(
        (result.cni_version.as_str(), result.ips[0].address.as_str()),
        ("1.0.0", "10.0.0.2/8")
    );
    assert_eq!(exec.runs(), ["ADD a", "ADD bb"]);
    assert_eq!(
        exec.stdin(0),
        json!({"type": "a", "capabilities": {"mac": true, "ips": false}, "own": {"key": 1}, "name": "net", "cniVersion": "0.4.0", "runtimeConfig": {"mac": "02::"}})
    );
    assert_eq!(
        exec.stdin(1),
        json!({
            "type": "bb", "name": "net", "cniVersion": "0.4.0", "capabilities": {"bandwidth": true, "portMappings": true},
            "prevResult": {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.1/8"}], "dns": {}},
            "runtimeConfig": {"portMappings": []}
        })
    );
}

#[test]
fn plugin_gets_exactly_the_variables_of_the_specification() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    let mut invocation = invocation(&dir);
    chain::add(&exec, &network("1.1.0"), &invocation).unwrap();
    invocation.netns = None;
    chain::del(&exec, &network("1.1.0"), &invocation).unwrap();
    chain::status(&exec, &network("1.1.0"), &invocation.path).unwrap();
    let runs = exec.runs.lock().unwrap();
    assert_eq!(
        runs[0].env,
        [
            pair("CNI_COMMAND", "ADD"),
            pair("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
            pair("CNI_CONTAINERID", "0f1e"),
            pair("CNI_NETNS", "/run/netns/a"),
            pair("CNI_IFNAME", "net1"),
            pair("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=cart-0"),
        ]
    );
    assert_eq!(runs[2].env("CNI_NETNS"), "");
    assert_eq!(
        runs[4].env,
        [
            pair("CNI_COMMAND", "STATUS"),
            pair("CNI_PATH", "/opt/cni/bin:/usr/lib/cni")
        ]
    );
}

#[test]
fn add_caches_its_result_and_del_uses_and_removes_it() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    let (config, invocation) = (network("0.4.0"), invocation(&dir));
    chain::add(&exec, &config, &invocation).unwrap();
    let entry = cache::load(
        &invocation.cache_dir,
        "net",
        &invocation.container_id,
        &invocation.ifname,
    )
    .unwrap()
    .unwrap();
    assert_eq!(entry.config, config.bytes());
    assert!(!entry.incomplete);
    assert_eq!(
        Value::Object(entry.result),
        json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/8"}], "dns": {}})
    );
    assert_eq!(entry.capability_args, invocation.capability_args);
    chain::check(&exec, &config, &invocation).unwrap();
    chain::del(&exec, &config, &invocation).unwrap();
    assert_eq!(exec.runs()[2..], ["CHECK a", "CHECK bb", "DEL bb", "DEL a"]);
    for index in 2..6 {
        let previous = json!({"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.2/8"}], "dns": {}});
        assert_eq!(exec.stdin(index)["prevResult"], previous, "{index}");
    }
    assert!(cache::list(&invocation.cache_dir).unwrap().is_empty());
    chain::del(&exec, &config, &invocation).unwrap();
    assert_eq!(exec.stdin(6).get("prevResult"), None);
}

#[test]
fn del_after_a_failed_add_gets_the_last_result() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), failing("bb", "ADD"));
    let (config, invocation) = (network("1.0.0"), invocation(&dir));
    chain::add(&exec, &config, &invocation).unwrap_err();
    assert!(cache::list(&invocation.cache_dir).unwrap()[0].incomplete);
    chain::del_partly(&exec, &config, &invocation, 1).unwrap();
    assert_eq!(exec.runs()[2..], ["DEL bb", "DEL a"]);
    let first_result = exec.stdin(1)["prevResult"].clone();
    assert!(first_result.is_object());
    for index in [2, 3] {
        assert_eq!(exec.stdin(index)["prevResult"], first_result, "{index}");
    }
    assert!(cache::list(&invocation.cache_dir).unwrap().is_empty());

    // No plugin has succeeded.
    let exec = failing("a", "ADD");
    chain::add(&exec, &config, &invocation).unwrap_err();
    assert!(cache::list(&invocation.cache_dir).unwrap().is_empty());
}

#[test]
fn failed_add_reports_how_many_plugins_attached() {
    let attached = |answer: fn() -> ExecError| {
        let exec = Recorder::new(move |plugin, _| match plugin {
            "bb" => Err(answer()),
            _ => Ok("{}".to_owned()),
        });
        let dir = tempfile::tempdir().unwrap();
        chain::add(&exec, &network("1.0.0"), &invocation(&dir))
            .unwrap_err()
            .attached()
    };
    assert_eq!(attached(|| CniError::new(11, "no").into()), Some(1));
    let timed_out = || ExecError::TimedOut {
        path: "/bb".into(),
        seconds: 1,
    };
    assert_eq!(
        attached(timed_out),
        None,
        "the plugin was killed while it worked"
    );
    let unavailable = || ExecError::Unavailable {
        path: "/bb".into(),
        reason: "the process that starts plugins has ended".to_owned(),
    };
    let broken = || ExecError::Io {
        path: "/bb".into(),
        source: std::io::ErrorKind::BrokenPipe.into(),
    };
    let killed = || ExecError::Killed(CniError::new(999, "signal: 9 (SIGKILL)").into());
    for unknown in [unavailable, broken, killed] {
        assert_eq!(attached(unknown), None, "nothing says how far it came");
    }
    assert_eq!(
        attached(|| ExecError::Stopped(CniError::new(11, "given up").into())),
        Some(1),
        "it did not run"
    );
    let unusable = Recorder::new(|_, _| Ok("[".to_owned()));
    let dir = tempfile::tempdir().unwrap();
    let error = chain::add(&unusable, &network("1.0.0"), &invocation(&dir)).unwrap_err();
    assert_eq!(
        error.attached(),
        None,
        "the plugin attached, but its result is unusable"
    );
}

#[test]
fn del_partly_fails_only_for_plugins_that_attached() {
    let dir = tempfile::tempdir().unwrap();
    let (config, invocation) = (network("1.0.0"), invocation(&dir));
    chain::add(&Recorder::succeeding(), &config, &invocation).unwrap();
    let exec = failing("bb", "DEL");
    let failed = chain::del_partly(&exec, &config, &invocation, 1).unwrap();
    assert_eq!(failed.failed.len(), 1);
    assert_eq!(exec.runs(), ["DEL bb", "DEL a"]);
    assert!(cache::list(&invocation.cache_dir).unwrap().is_empty());
    let exec = failing("a", "DEL");
    chain::del_partly(&exec, &config, &invocation, 1).unwrap_err();
}

#[test]
fn del_before_0_4_0_gets_no_prev_result() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    chain::add(&exec, &network("0.3.1"), &invocation(&dir)).unwrap();
    chain::del(&exec, &network("0.3.1"), &invocation(&dir)).unwrap();
    assert_eq!(exec.stdin(2).get("prevResult"), None);
}

#[test]
fn del_ignores_a_damaged_cache_entry_and_removes_it() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    let (config, invocation) = (network("1.0.0"), invocation(&dir));
    chain::add(&exec, &config, &invocation).unwrap();
    let file = invocation.cache_dir.join("net-0f1e-net1");
    std::fs::write(&file, "{\"kind\":\"cni").unwrap();
    assert!(matches!(
        chain::check(&exec, &config, &invocation),
        Err(ChainError::Cache { .. })
    ));
    chain::del(&exec, &config, &invocation).unwrap();
    assert_eq!(exec.runs()[2..], ["DEL bb", "DEL a"]);
    assert!(!file.exists());
}

#[test]
fn first_failure_ends_the_verb_and_keeps_its_code() {
    let dir = tempfile::tempdir().unwrap();
    let exec = failing("bb", "ADD");
    let error = chain::add(&exec, &network("1.0.0"), &invocation(&dir))
        .unwrap_err()
        .to_cni();
    assert_eq!(
        error,
        CniError::new(
            11,
            "plugin type=\"bb\" of network \"net\" failed (ADD): not now"
        )
        .with_details("tomorrow")
    );

    let exec = failing("bb", "DEL");
    chain::add(&exec, &network("1.0.0"), &invocation(&dir)).unwrap();
    assert_eq!(
        chain::del(&exec, &network("1.0.0"), &invocation(&dir))
            .unwrap_err()
            .to_cni()
            .code,
        11
    );
    assert_eq!(exec.runs()[2..], ["DEL bb"]);
    // The entry stays for the next DEL.
    assert_eq!(cache::list(&invocation(&dir).cache_dir).unwrap().len(), 1);
}

#[test]
fn add_without_a_usable_result_fails() {
    let dir = tempfile::tempdir().unwrap();
    for answer in ["", "ok", "[]", r#"{"cniVersion":"7.0.0"}"#] {
        let exec = Recorder::new(move |_, _| Ok(answer.to_owned()));
        let error = chain::add(&exec, &network("1.0.0"), &invocation(&dir)).unwrap_err();
        assert!(
            matches!(error, ChainError::Result { .. }),
            "{answer:?}: {error}"
        );
        assert_eq!(error.to_cni().code, 6);
    }
}

#[test]
fn check_needs_a_version_and_a_cached_result() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    let error = chain::check(&exec, &network("0.3.1"), &invocation(&dir)).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.to_cni().code),
        (
            "network \"net\" has cniVersion 0.3.1, which does not know CHECK",
            1
        )
    );
    assert!(matches!(
        chain::check(&exec, &network("1.0.0"), &invocation(&dir)),
        Err(ChainError::NoCachedResult { .. })
    ));
    let off = NetworkConfig::parse(
        br#"{"name":"net","cniVersion":"1.0.0","disableCheck":true,"plugins":[{"type":"a"}]}"#,
    )
    .unwrap();
    chain::check(&exec, &off, &invocation(&dir)).unwrap();
    assert!(exec.runs().is_empty());
}

#[test]
fn status_runs_from_1_1_0_on() {
    let dirs = ["/opt/cni/bin".into()];
    let exec = failing("a", "STATUS");
    chain::status(&exec, &network("1.0.0"), &dirs).unwrap();
    assert!(exec.runs().is_empty());
    assert_eq!(
        chain::status(&exec, &network("1.1.0"), &dirs)
            .unwrap_err()
            .to_cni()
            .code,
        11
    );
    assert_eq!(exec.runs(), ["STATUS a"]);
    assert_eq!(exec.stdin(0)["cniVersion"], "1.1.0");
}

#[test]
fn gc_deletes_stale_attachments_and_passes_valid_ones_to_plugins() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    let config = network("1.1.0");
    let mut other = invocation(&dir);
    let cache_dir = other.cache_dir.clone();
    chain::add(&exec, &config, &other).unwrap();
    other.container_id = ContainerId::parse("stale").unwrap();
    chain::add(&exec, &config, &other).unwrap();
    let foreign =
        NetworkConfig::parse(br#"{"name":"foreign","cniVersion":"1.1.0","type":"a"}"#).unwrap();
    chain::add(&exec, &foreign, &other).unwrap();

    let valid = [Attachment {
        container_id: "0f1e".to_owned(),
        ifname: "net1".to_owned(),
    }];
    chain::gc(&exec, &config, &other.path, &cache_dir, &valid).unwrap();
    assert_eq!(exec.runs()[5..], ["DEL bb", "DEL a", "GC a", "GC bb"]);
    let runs = exec.runs.lock().unwrap();
    assert_eq!(
        (runs[5].env("CNI_CONTAINERID"), runs[5].env("CNI_NETNS")),
        ("stale", "/run/netns/a")
    );
    let attachments = json!([{"containerID": "0f1e", "ifname": "net1"}]);
    assert_eq!(runs[7].stdin["cni.dev/valid-attachments"], attachments);
    assert_eq!(runs[7].stdin["cni.dev/attachments"], attachments);
    let request: Map<String, Value> = serde_json::from_value(runs[7].stdin.clone()).unwrap();
    assert_eq!(chain::valid_attachments(&request), Some(valid.to_vec()));
    let left: Vec<_> = cache::list(&cache_dir)
        .unwrap()
        .into_iter()
        .map(|entry| (entry.network_name, entry.container_id))
        .collect();
    assert_eq!(left, [pair("foreign", "stale"), pair("net", "0f1e")]);
}

#[test]
fn gc_continues_after_a_failure_and_reports_all() {
    let (dir, exec) = (
        tempfile::tempdir().unwrap(),
        Recorder::new(|plugin, command| match command {
            "ADD" => Ok("{}".to_owned()),
            _ => Err(ExecError::Plugin(CniError::new(
                100,
                format!("{plugin} refuses"),
            ))),
        }),
    );
    let (config, invocation) = (network("1.1.0"), invocation(&dir));
    chain::add(&exec, &config, &invocation).unwrap();
    let error = chain::gc(&exec, &config, &invocation.path, &invocation.cache_dir, &[])
        .unwrap_err()
        .to_string();
    assert_eq!(exec.runs()[2..], ["DEL bb", "GC a", "GC bb"]);
    for part in ["(DEL): bb refuses", "(GC): a refuses", "(GC): bb refuses"] {
        assert!(error.contains(part), "{error}");
    }
    let off = NetworkConfig::parse(
        br#"{"name":"net","cniVersion":"1.1.0","disableGC":true,"plugins":[{"type":"a"}]}"#,
    )
    .unwrap();
    chain::gc(&exec, &off, &invocation.path, &invocation.cache_dir, &[]).unwrap();
    assert_eq!(exec.runs().len(), 5);
}

#[test]
fn gc_before_1_1_0_only_runs_del() {
    let (dir, exec) = (tempfile::tempdir().unwrap(), Recorder::succeeding());
    let (config, invocation) = (network("1.0.0"), invocation(&dir));
    chain::add(&exec, &config, &invocation).unwrap();
    chain::gc(&exec, &config, &invocation.path, &invocation.cache_dir, &[]).unwrap();
    assert_eq!(exec.runs()[2..], ["DEL bb", "DEL a"]);
}

#[test]
fn valid_attachments_are_complete_or_none() {
    let parse = |value: Value| chain::valid_attachments(value.as_object().unwrap());
    assert_eq!(parse(json!({})), None);
    assert_eq!(parse(json!({"cni.dev/attachments": []})), Some(Vec::new()));
    assert_eq!(
        parse(json!({"cni.dev/valid-attachments": [{"containerID": "a"}]})),
        None
    );
}
