//! Every verb with a daemon that responds.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{ShimFixture, env, not_begun, ok, run, run_with, with_status};

const RESULT: &str = r#"{"Result":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:07","mtu":1450,"sandbox":"/run/netns/a","pciID":"0000:00:01.0"}],"ips":[{"interface":0,"address":"10.244.1.7/24","gateway":"10.244.1.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.244.1.1","priority":100}]}}"#;

#[test]
fn version_needs_neither_stdin_nor_daemon() {
    let output = run("multus-shim", &[("CNI_COMMAND", "VERSION".to_owned())], b"");
    assert_eq!(
        output.success(),
        "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n"
    );
}

#[test]
fn version_flags_print_one_line() {
    for flag in ["-v", "-V", "-version", "--version"] {
        let output = run_with("multus-shim", &[flag], &[], b"");
        assert!(
            output.success().starts_with("multus-shim: version:v"),
            "{output:?}"
        );
        assert_eq!(output.stdout.lines().count(), 1);
    }
}

#[test]
fn add_forwards_environment_and_stdin_and_prints_the_result() {
    let fixture = ShimFixture::responding(ok(RESULT));
    let output = fixture.run("ADD");
    let result: Value = serde_json::from_str(output.success()).unwrap();
    assert_eq!(result["cniVersion"], "1.1.0");
    assert_eq!(result["interfaces"][0]["mtu"], 1450);
    assert_eq!(result["routes"][0]["priority"], 100);
    assert!(output.stdout.starts_with("{\n    \"cniVersion\""));
    assert_eq!(fixture.paths(), ["/cni"], "one round trip");
    let call = &fixture.calls()[0];
    assert_eq!(
        call.config,
        serde_json::to_vec(&fixture.config("1.1.0")).unwrap()
    );
    let expected = env("ADD")
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    assert_eq!(call.env, expected);
}

#[test]
fn calls_that_succeed_are_logged_when_somebody_wants_to_read_them() {
    for (level, expected) in [
        ("error", ""),
        ("verbose", " [verbose] ADD of eth0 in container "),
    ] {
        let fixture = ShimFixture::responding(ok(RESULT));
        let mut config = fixture.config("1.1.0");
        config.insert("logLevel".to_owned(), level.into());
        config.insert("logToStderr".to_owned(), true.into());
        let config = serde_json::to_vec(&config).unwrap();
        let output = run("multus-shim", &env("ADD"), &config);
        output.success();
        assert_eq!(output.stderr.is_empty(), expected.is_empty());
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
}

#[test]
fn other_variables_of_the_runtime_stay_with_the_shim() {
    let fixture = ShimFixture::responding(ok(""));
    let mut variables = env("DEL");
    for name in ["K3S_TOKEN", "PATH", "CNIX"] {
        variables.push((name, "swordfish".to_owned()));
    }
    let stdin = serde_json::to_vec(&fixture.config("1.1.0")).unwrap();
    run("multus-shim", &variables, &stdin).success();
    let expected = env("DEL")
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    assert_eq!(fixture.calls()[0].env, expected);
}

#[test]
fn add_prints_the_version_of_the_configuration() {
    let expected = json!({
        "cniVersion": "0.4.0",
        "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:07", "sandbox": "/run/netns/a"}],
        "ips": [{"version": "4", "interface": 0, "address": "10.244.1.7/24", "gateway": "10.244.1.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}],
        "dns": {}
    });
    let fixture = ShimFixture::responding(ok(RESULT));
    let result: Value =
        serde_json::from_str(fixture.run_version("ADD", "0.4.0").success()).unwrap();
    assert_eq!(result, expected);
    let result: Value =
        serde_json::from_str(fixture.run_version("ADD", "0.2.0").success()).unwrap();
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
fn add_reads_a_chunked_response() {
    let (head, tail) = RESULT.split_at(40);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{head}\r\n{:x}\r\n{tail}\r\n0\r\n\r\n",
        head.len(),
        tail.len()
    );
    let fixture = ShimFixture::responding(chunked);
    assert!(fixture.run("ADD").success().contains("10.244.1.7/24"));
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
            ShimFixture::responding(ok(body)).run("ADD").error().code,
            code,
            "{body:?}"
        );
    }
}

#[test]
fn the_other_verbs_print_nothing() {
    for command in ["DEL", "CHECK", "GC", "STATUS"] {
        let fixture = ShimFixture::responding(ok(""));
        assert_eq!(fixture.run(command).success(), "", "{command}");
        assert_eq!(fixture.calls()[0].env["CNI_COMMAND"], command);
        assert_eq!(fixture.journal(), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn typed_error_keeps_its_code_and_details() {
    let failed = "CNI request failed with status 400: ERRORED: ";
    for (command, name, prefix) in [
        ("ADD", "CmdAdd", failed),
        ("DEL", "CmdDel", failed),
        ("CHECK", "CmdCheck", failed),
        ("GC", "CmdGC", ""),
        ("STATUS", "CmdStatus", ""),
    ] {
        let fixture = ShimFixture::responding(with_status(
            400,
            r#"{"code":51,"msg":"half of it","details":"the other half"}"#,
        ));
        let error = fixture.run(command).error();
        assert_eq!(
            (error.code, error.msg, error.details),
            (
                51,
                format!("{name} (shim): {prefix}half of it"),
                "the other half".to_owned()
            )
        );
        assert!(fixture.journal().is_empty());
    }
}

#[test]
fn plain_text_of_an_older_daemon_is_quoted() {
    let error = ShimFixture::responding(with_status(400, "ERRORED: no such pod\n"))
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
fn request_that_was_not_begun_is_sent_again() {
    for command in ["ADD", "CHECK", "GC", "DEL"] {
        let requests = AtomicUsize::new(0);
        let fixture = ShimFixture::with_daemon(move |_, _| {
            Some(match requests.fetch_add(1, Ordering::SeqCst) {
                0..2 => not_begun(r#"{"code":11,"msg":"shutting down"}"#),
                _ => ok(RESULT),
            })
        });
        fixture.run(command).success();
        assert_eq!(fixture.paths(), ["/cni"; 3], "{command}");
        assert!(fixture.journal().is_empty());
    }
}

#[test]
fn del_that_no_daemon_begins_is_journaled() {
    let fixture = ShimFixture::responding(not_begun(r#"{"code":11,"msg":"shutting down"}"#));
    fixture.run("DEL").success();
    assert_eq!(fixture.journal().len(), 1);
}

/// Upstream's daemon or a proxy may respond so, and the ADD may have been begun.
#[test]
fn add_is_not_sent_again_after_503_without_the_header() {
    let fixture = ShimFixture::responding(with_status(503, "busy"));
    let error = fixture.run("ADD").error();
    assert_eq!((error.code, fixture.calls().len()), (999, 1), "{error}");
}

#[test]
fn add_waits_for_a_daemon_that_starts() {
    let fixture = ShimFixture::without_daemon();
    std::thread::scope(|scope| {
        let shim = scope.spawn(|| fixture.run("ADD"));
        fixture.start_daemon(|_, _| Some(ok(RESULT)));
        shim.join().unwrap().success();
    });
    assert_eq!(fixture.paths(), ["/cni"]);
}

#[test]
fn status_and_del_send_one_request() {
    let fixture = ShimFixture::responding(ok(""));
    fixture.run("STATUS").success();
    fixture.run("DEL").success();
    assert_eq!(fixture.paths(), ["/cni", "/cni"]);
}

#[test]
fn add_that_lost_its_connection_asks_for_a_retry() {
    let fixture =
        ShimFixture::with_daemon(|path, _| if path == "/cni" { None } else { Some(ok("")) });
    let error = fixture.run("ADD").error();
    assert_eq!(error.code, 11);
    assert!(
        error
            .msg
            .contains("closed the connection without an answer"),
        "{error}"
    );
    assert_eq!(fixture.calls().len(), 1);
}

#[test]
fn shim_inside_the_pods_namespace_is_refused() {
    let fixture = ShimFixture::responding(ok(RESULT));
    let stdin = serde_json::to_vec(&fixture.config("1.0.0")).unwrap();
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
    assert!(fixture.calls().is_empty());
    assert_eq!(
        run("multus-shim", &with_netns("DEL"), &stdin).error().code,
        8
    );
    assert_eq!(fixture.calls().len(), 1);
    let mut overridden = with_netns("ADD");
    overridden.push(("CNI_NETNS_OVERRIDE", "true".to_owned()));
    run("multus-shim", &overridden, &stdin).success();
}
