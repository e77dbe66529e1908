//! Every verb with a daemon that answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Node, env, not_begun, ok, run, run_with, with_status};

const RESULT: &str = r#"{"Result":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:07","mtu":1450,"sandbox":"/run/netns/a","pciID":"0000:00:01.0"}],"ips":[{"interface":0,"address":"10.244.1.7/24","gateway":"10.244.1.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.244.1.1","priority":100}]}}"#;

#[test]
fn version_is_answered_without_anything() {
    let outcome = run("multus-shim", &[("CNI_COMMAND", "VERSION".to_owned())], b"");
    assert_eq!(
        outcome.success(),
        "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n"
    );
}

#[test]
fn version_flags_print_one_line() {
    for flag in ["-v", "-version", "--version"] {
        let outcome = run_with("multus-shim", &[flag], &[], b"");
        assert!(
            outcome.success().starts_with("multus-shim: version:v"),
            "{outcome:?}"
        );
        assert_eq!(outcome.stdout.lines().count(), 1);
    }
}

#[test]
fn add_carries_environment_and_stdin_and_prints_the_result() {
    let node = Node::answering(ok(RESULT));
    let outcome = node.run("ADD");
    let result: Value = serde_json::from_str(outcome.success()).unwrap();
    assert_eq!(result["cniVersion"], "1.1.0");
    assert_eq!(result["interfaces"][0]["mtu"], 1450);
    assert_eq!(result["routes"][0]["priority"], 100);
    assert!(outcome.stdout.starts_with("{\n    \"cniVersion\""));
    assert_eq!(node.paths_asked(), ["/cni"], "one round trip");
    let call = &node.calls()[0];
    assert_eq!(
        call.config,
        serde_json::to_vec(&node.config("1.1.0")).unwrap()
    );
    let expected = env("ADD")
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    assert_eq!(call.env, expected);
}

#[test]
fn add_prints_the_version_that_was_asked_for() {
    let expected = json!({
        "cniVersion": "0.4.0",
        "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:07", "sandbox": "/run/netns/a"}],
        "ips": [{"version": "4", "interface": 0, "address": "10.244.1.7/24", "gateway": "10.244.1.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}],
        "dns": {}
    });
    let node = Node::answering(ok(RESULT));
    let result: Value = serde_json::from_str(node.run_version("ADD", "0.4.0").success()).unwrap();
    assert_eq!(result, expected);
    let result: Value = serde_json::from_str(node.run_version("ADD", "0.2.0").success()).unwrap();
    assert_eq!(
        result,
        json!({
            "cniVersion": "0.2.0",
            "ip4": {"ip": "10.244.1.7/24", "gateway": "10.244.1.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}]},
            "dns": {}
        })
    );
}

#[test]
fn add_reads_chunks() {
    let (head, tail) = RESULT.split_at(40);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{head}\r\n{:x}\r\n{tail}\r\n0\r\n\r\n",
        head.len(),
        tail.len()
    );
    let node = Node::answering(chunked);
    assert!(node.run("ADD").success().contains("10.244.1.7/24"));
}

#[test]
fn add_without_a_result_is_a_failure() {
    for (body, code) in [
        ("", 6),
        ("{}", 999),
        (r#"{"Result":null}"#, 999),
        (r#"{"Result":{"cniVersion":"9.0.0"}}"#, 6),
        ("nonsense", 6),
    ] {
        assert_eq!(
            Node::answering(ok(body)).run("ADD").error().code,
            code,
            "{body:?}"
        );
    }
}

#[test]
fn the_other_verbs_print_nothing() {
    for command in ["DEL", "CHECK", "GC", "STATUS"] {
        let node = Node::answering(ok(""));
        assert_eq!(node.run(command).success(), "", "{command}");
        assert_eq!(node.calls()[0].env["CNI_COMMAND"], command);
        assert_eq!(node.journal(), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn a_typed_error_keeps_its_code_and_details() {
    let failed = "CNI request failed with status 400: ERRORED: ";
    for (command, name, words) in [
        ("ADD", "CmdAdd", failed),
        ("DEL", "CmdDel", failed),
        ("CHECK", "CmdCheck", failed),
        ("GC", "CmdGC", ""),
        ("STATUS", "CmdStatus", ""),
    ] {
        let node = Node::answering(with_status(
            400,
            r#"{"code":51,"msg":"half of it","details":"the other half"}"#,
        ));
        let error = node.run(command).error();
        assert_eq!(
            (error.code, error.msg, error.details),
            (
                51,
                format!("{name} (shim): {words}half of it"),
                "the other half".to_owned()
            )
        );
        assert!(node.journal().is_empty());
    }
}

#[test]
fn a_text_of_an_older_daemon_is_quoted() {
    let error = Node::answering(with_status(400, "ERRORED: no such pod\n"))
        .run("ADD")
        .error();
    assert_eq!(
        (error.code, error.msg.as_str()),
        (
            999,
            "CmdAdd (shim): CNI request failed with status 400: 'ERRORED: no such pod'"
        )
    );
}

#[test]
fn a_request_that_was_not_begun_is_sent_again() {
    for command in ["ADD", "CHECK", "GC", "DEL"] {
        let asked = AtomicUsize::new(0);
        let node = Node::with_daemon(move |_, _| {
            Some(match asked.fetch_add(1, Ordering::SeqCst) {
                0..2 => not_begun(r#"{"code":11,"msg":"shutting down"}"#),
                _ => ok(RESULT),
            })
        });
        node.run(command).success();
        assert_eq!(node.paths_asked(), ["/cni"; 3], "{command}");
        assert!(node.journal().is_empty());
    }
}

#[test]
fn a_del_that_no_daemon_begins_is_written_down() {
    let node = Node::answering(not_begun(r#"{"code":11,"msg":"shutting down"}"#));
    node.run("DEL").success();
    assert_eq!(node.journal().len(), 1);
}

/// Upstream's daemon and a proxy may answer so: it says nothing of whether the ADD was begun.
#[test]
fn a_refusal_without_that_word_is_no_reason_to_send_an_add_again() {
    let node = Node::answering(with_status(503, "busy"));
    let error = node.run("ADD").error();
    assert_eq!((error.code, node.calls().len()), (999, 1), "{error}");
}

#[test]
fn an_add_waits_for_a_daemon_that_comes_and_sends_nothing_before() {
    let node = Node::without_daemon();
    std::thread::scope(|scope| {
        let shim = scope.spawn(|| node.run("ADD"));
        node.start_daemon(|_, _| Some(ok(RESULT)));
        shim.join().unwrap().success();
    });
    assert_eq!(node.paths_asked(), ["/cni"]);
}

#[test]
fn status_and_del_ask_nothing_else() {
    let node = Node::answering(ok(""));
    node.run("STATUS").success();
    node.run("DEL").success();
    assert_eq!(node.paths_asked(), ["/cni", "/cni"]);
}

#[test]
fn add_that_lost_its_daemon_is_to_be_tried_again() {
    let node = Node::with_daemon(|path, _| if path == "/cni" { None } else { Some(ok("")) });
    let error = node.run("ADD").error();
    assert_eq!(error.code, 11);
    assert!(
        error
            .msg
            .contains("closed the connection without an answer"),
        "{error}"
    );
    assert_eq!(node.calls().len(), 1);
}

#[test]
fn a_plugin_inside_its_own_namespace_is_refused() {
    let node = Node::answering(ok(RESULT));
    let stdin = serde_json::to_vec(&node.config("1.0.0")).unwrap();
    let with_netns = |command: &str| {
        let mut env = env(command);
        env.retain(|(key, _)| *key != "CNI_NETNS");
        env.push(("CNI_NETNS", "/proc/self/ns/net".to_owned()));
        env
    };
    assert_eq!(
        run("multus-shim", &with_netns("ADD"), &stdin).error().code,
        8
    );
    assert!(node.calls().is_empty());
    assert_eq!(
        run("multus-shim", &with_netns("DEL"), &stdin).error().code,
        8
    );
    assert_eq!(node.calls().len(), 1);
    let mut overridden = with_netns("ADD");
    overridden.push(("CNI_NETNS_OVERRIDE", "true".to_owned()));
    run("multus-shim", &overridden, &stdin).success();
}
