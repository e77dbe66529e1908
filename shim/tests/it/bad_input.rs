//! Input that the shim refuses before it connects to a daemon.

use crate::support::{ShimFixture, env, run};

#[test]
fn shim_without_cni_command_explains_itself() {
    let output = run("multus-shim", &[], b"");
    assert_eq!(output.success(), "");
    assert!(
        output.stderr.contains(
            "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
        ),
        "{output:?}"
    );
}

#[test]
fn one_error_names_everything_invalid_in_the_environment() {
    let error = run(
        "multus-shim",
        &[
            ("CNI_COMMAND", "ADD".to_owned()),
            ("CNI_CONTAINERID", "../evil".to_owned()),
        ],
        b"{}",
    )
    .error();
    assert_eq!(error.code, 4);
    assert!(error.msg.starts_with("required env variables [CNI_NETNS,CNI_IFNAME,CNI_PATH] missing; invalid container id \"../evil\""), "{error}");
    let error = run("multus-shim", &[("CNI_COMMAND", "add".to_owned())], b"{}").error();
    assert_eq!(
        (error.code, error.msg.as_str()),
        (4, "unknown CNI_COMMAND: add")
    );
    let error = run(
        "multus-shim",
        &[("CNI_COMMAND", "STATUS".to_owned())],
        b"{}",
    )
    .error();
    assert_eq!(
        (error.code, error.msg.as_str()),
        (4, "required env variables [CNI_PATH] missing")
    );
}

#[test]
fn del_needs_no_namespace() {
    let fixture = ShimFixture::without_daemon();
    let mut env = env("DEL");
    env.retain(|(key, _)| *key != "CNI_NETNS" && *key != "CNI_ARGS");
    run(
        "multus-shim",
        &env,
        &serde_json::to_vec(&fixture.config("0.3.1")).unwrap(),
    )
    .success();
}

fn check(command: &str, stdin: &str, code: u32, msg: &str) {
    let error = run("multus-shim", &env(command), stdin.as_bytes()).error();
    assert_eq!(error.code, code, "{stdin}: {error}");
    assert!(error.to_string().contains(msg), "{stdin}: {error}");
}

#[test]
fn configuration_is_validated() {
    check("ADD", "", 6, "not JSON");
    check("ADD", "{\"name\":", 6, "not JSON");
    check("ADD", "[]", 6, "not a JSON object");
    check("ADD", "{}", 7, "no name");
    check("ADD", r#"{"name":""}"#, 7, "no name");
    check(
        "ADD",
        r#"{"name":"a/b"}"#,
        7,
        "invalid network name \"a/b\"",
    );
    check(
        "ADD",
        r#"{"name":7}"#,
        7,
        "name in the network configuration is not a string",
    );
    check(
        "ADD",
        r#"{"name":"n","cniVersion":"2.0.0"}"#,
        1,
        "config is \"2.0.0\", plugin supports 0.1.0",
    );
    check(
        "ADD",
        r#"{"name":"n","cniVersion":"x"}"#,
        1,
        "incompatible CNI versions",
    );
    check(
        "CHECK",
        r#"{"name":"n","cniVersion":"0.3.1"}"#,
        1,
        "CHECK needs 0.4.0",
    );
    check(
        "GC",
        r#"{"name":"n","cniVersion":"1.0.0"}"#,
        1,
        "GC needs 1.1.0",
    );
    check("STATUS", r#"{"name":"n"}"#, 1, "STATUS needs 1.1.0");
    check(
        "DEL",
        r#"{"name":"n","cniDir":"state"}"#,
        7,
        "cniDir \"state\" is not an absolute path",
    );
    check(
        "DEL",
        r#"{"name":"n","daemonSocketDir":"run"}"#,
        7,
        "daemonSocketDir \"run\" is not an absolute path",
    );
}
