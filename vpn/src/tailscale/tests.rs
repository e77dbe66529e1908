//! The outputs are those of tailscale 1.102.5 against its own test control server.

use std::{cell::RefCell, os::unix::fs::PermissionsExt as _};

use super::*;

const RUNNING: &str = include_str!("../../tests/fixtures/tailscale/status-running.json");
const NEEDS_LOGIN: &str = include_str!("../../tests/fixtures/tailscale/status-needs-login.json");
const PREFS: &str = include_str!("../../tests/fixtures/tailscale/prefs-running.json");
const NEW_PREFS: &str = include_str!("../../tests/fixtures/tailscale/prefs-new.json");

/// Answers with recorded outputs, and keeps the calls.
struct Recorded {
    prefs: &'static str,
    up: Output,
    calls: RefCell<Vec<String>>,
    /// The content and the mode of the key's file while `up` ran.
    key: RefCell<Option<(String, u32)>>,
}

fn success(stdout: &str) -> Output {
    Output {
        is_success: true,
        stdout: stdout.to_owned(),
        stderr: String::new(),
    }
}

fn failure(stderr: &str) -> Output {
    Output {
        stderr: stderr.to_owned(),
        ..Output::default()
    }
}

impl Runner for &Recorded {
    fn run(&self, args: &[String], _: Duration) -> Result<Output, RunError> {
        self.calls.borrow_mut().push(args.join(" "));
        let key = args
            .iter()
            .find_map(|arg| arg.strip_prefix("--auth-key=file:"));
        if let Some(path) = key {
            let mode = fs::metadata(path)?.permissions().mode() & 0o777;
            *self.key.borrow_mut() = Some((fs::read_to_string(path)?, mode));
        }
        Ok(match args[0].as_str() {
            "debug" => success(self.prefs),
            "up" => self.up.clone(),
            _ => success(RUNNING),
        })
    }
}

fn recorded(prefs: &'static str, up: Output) -> Recorded {
    Recorded {
        prefs,
        up,
        calls: RefCell::default(),
        key: RefCell::default(),
    }
}

fn prefixes(text: &str) -> Vec<Prefix> {
    text.split_whitespace()
        .map(|text| text.parse().unwrap())
        .collect()
}

/// Logs in; returns the error, the call of `up`, and what its key file was.
fn log_in(
    prefs: &'static str,
    up: Output,
    login: &Login<'_>,
) -> (Option<String>, String, Option<(String, u32)>) {
    let dir = tempfile::tempdir().unwrap();
    let runner = recorded(prefs, up);
    let outcome = Tailscale::new(&runner, dir.path()).up(login);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "the key is removed"
    );
    let call = runner.calls.take().pop().unwrap();
    let path = dir.path().display().to_string();
    (
        outcome.err().map(|error| error.to_string()),
        call.replace(&path, "DIR"),
        runner.key.take(),
    )
}

#[test]
fn status_has_what_the_recorded_output_has() {
    let runner = recorded(PREFS, Output::default());
    let tailscale = Tailscale::new(&runner, "/none");
    let status = tailscale.status().unwrap();
    assert_eq!(status.phase, Phase::Running);
    assert!(status.has_interface && status.health.is_empty());
    assert_eq!(status.own.addresses[0].to_string(), "100.64.0.2");
    assert_eq!(status.own.name, "v1");
    assert_eq!(status.own.routes, prefixes("10.42.1.0/24"));
    // The control server of the recording does not know when it made the node.
    assert_eq!(
        (&status.own.created, &status.own.key_expiry),
        (&None, &None)
    );
    let [peer] = &status.peers[..] else {
        panic!("{status:?}")
    };
    assert_eq!(peer.routes, prefixes("192.168.77.0/24"));
    assert_eq!(peer.direct.as_deref(), Some("10.78.0.3:44986"));
    let settings = tailscale.settings().unwrap();
    assert_eq!(settings.advertised, prefixes("10.42.1.0/24"));
    assert!(settings.accepts_routes && !settings.translates_sources && !settings.accepts_dns);
    assert!(!settings.blocks_incoming && !settings.uses_exit_node);
    assert_eq!(
        settings.control_server.as_deref(),
        Some("http://10.78.0.1:8080")
    );
}

#[test]
fn new_node_needs_a_login() {
    let output: StatusOutput = serde_json::from_str(NEEDS_LOGIN).unwrap();
    let status = Status::from(output);
    assert_eq!(status.phase, Phase::NeedsLogin(None));
    let settings = Settings::from(serde_json::from_str::<Prefs>(NEW_PREFS).unwrap());
    assert_eq!(
        (settings.control_server, settings.advertised),
        (None, Vec::new())
    );
}

#[test]
fn states_of_the_daemon_are_known() {
    for (state, phase) in [
        ("NoState", Phase::Starting),
        ("Starting", Phase::Starting),
        ("Stopped", Phase::Stopped),
        ("NeedsMachineAuth", Phase::NeedsApproval),
    ] {
        let text = format!(r#"{{"BackendState": "{state}", "TailscaleIPs": null, "Self": null}}"#);
        let output: StatusOutput = serde_json::from_str(&text).unwrap();
        assert_eq!(Status::from(output).phase, phase);
    }
    // After a restart of the daemon.
    let refused = r#"{"BackendState": "Starting", "Health": ["Tailscale is starting. Please wait.", "You are logged out. The last login error was: invalid authkey"]}"#;
    let status = Status::from(serde_json::from_str::<StatusOutput>(refused).unwrap());
    assert_eq!(status.phase, Phase::NeedsLogin(None));
    // Its login may be valid; a key would be wasted.
    for error in [
        "fetch control key: Get \\\"https://a/key\\\": dial tcp 192.0.2.1:443: connect: connection refused",
        "lookup a on 192.0.2.53:53: no such host",
        "context deadline exceeded",
    ] {
        let away = format!(
            r#"{{"BackendState": "NoState", "Health": ["You are logged out. The last login error was: {error}"]}}"#
        );
        let status = Status::from(serde_json::from_str::<StatusOutput>(&away).unwrap());
        assert!(matches!(status.phase, Phase::Unreached(_)), "{error}");
    }
    let page = r#"{"BackendState": "NeedsLogin", "AuthURL": "https://login.example/a"}"#;
    let status = Status::from(serde_json::from_str::<StatusOutput>(page).unwrap());
    assert_eq!(
        status.phase,
        Phase::NeedsLogin(Some("https://login.example/a".to_owned()))
    );
}

#[test]
fn key_is_in_a_file_of_root_while_up_runs_and_nowhere_else() {
    let key = Secret::new(*b"tskey-auth-x");
    let extra_args = ["--hostname=v1".to_owned()];
    let login = Login {
        key: Some(&key),
        control_server: Some("http://10.78.0.1:8080"),
        extra_args: &extra_args,
    };
    let (error, call, file) = log_in(NEW_PREFS, success(""), &login);
    assert_eq!(error, None);
    assert_eq!(file, Some(("tskey-auth-x".to_owned(), 0o600)));
    assert_eq!(
        call,
        "up --timeout=30s --auth-key=file:DIR/key --login-server=http://10.78.0.1:8080 --accept-dns=false --hostname=v1"
    );
    // Not even where the program repeats it.
    let (error, ..) = log_in(
        NEW_PREFS,
        failure("backend error:\n  invalid key tskey-auth-x\n"),
        &login,
    );
    assert_eq!(
        error.as_deref(),
        Some(
            "`tailscale up --timeout --auth-key --login-server --accept-dns --hostname` failed: backend error: invalid key …"
        )
    );
}

#[test]
fn key_is_masked_before_a_long_error_is_cut() {
    let key = Secret::new(*b"tskey-client-abc?ephemeral=false");
    let login = Login {
        key: Some(&key),
        ..Login::default()
    };
    // Both forms of the key lie across the cut.
    for repeated in ["tskey-client-abc?ephemeral=false", "tskey-client-abc"] {
        let words = format!("{} {repeated} is refused", "x".repeat(MAX_TEXT - 6));
        let (error, ..) = log_in(NEW_PREFS, failure(&words), &login);
        let error = error.unwrap();
        assert!(!error.contains("tskey"), "{error}");
    }
}

#[test]
fn deadline_of_up_is_told_from_a_refusal() {
    let key = Secret::new(*b"k");
    let login = Login {
        key: Some(&key),
        ..Login::default()
    };
    let words = r#"timeout waiting for Tailscale service to enter a Running state; check health with "tailscale status""#;
    let dir = tempfile::tempdir().unwrap();
    let outcome = |up: Output| Tailscale::new(&recorded(NEW_PREFS, up), dir.path()).up(&login);
    let late = outcome(failure(words)).unwrap_err();
    assert!(matches!(late, ProviderError::Timeout { .. }), "{late}");
    let refused = outcome(failure("backend error: invalid authkey")).unwrap_err();
    assert!(matches!(refused, ProviderError::Failed { .. }), "{refused}");
}

#[test]
fn up_repeats_every_setting_that_tailscale_asks_for() {
    let peer = StatusOutput::deserialize(&mut serde_json::Deserializer::from_str(RUNNING)).unwrap();
    let peer = peer.peer.unwrap().into_values().next().unwrap();
    let address = peer.addresses.unwrap()[0];
    let prefs = PREFS
        .replace(
            "\"ExitNodeID\": \"\"",
            &format!("\"ExitNodeID\": \"{}\"", peer.id),
        )
        .replace("LANAccess\": false", "LANAccess\": true")
        .replace("StatefulFiltering\": true", "StatefulFiltering\": false")
        .replace("Advertise\": false", "Advertise\": true")
        .replace("PostureChecking\": false", "PostureChecking\": true");
    let prefs: &'static str = prefs.leak();
    let runner = recorded(prefs, Output::default());
    let settings = Tailscale::new(&runner, "/none").settings().unwrap();
    assert!(settings.uses_exit_node);
    let key = Secret::new(*b"k");
    let login = Login {
        key: Some(&key),
        ..Login::default()
    };
    let up = log_in(prefs, success(""), &login).1;
    let expected = format!(
        "--stateful-filtering --exit-node={address} --exit-node-allow-lan-access --advertise-connector --report-posture"
    );
    assert!(up.ends_with(&expected), "{up}");
}

#[test]
fn second_up_repeats_the_flags_that_differ() {
    let key = Secret::new(*b"k");
    let login = |control_server, extra_args| Login {
        key: Some(&key),
        control_server,
        extra_args,
    };
    let up = |login: &Login<'_>| log_in(PREFS, success(""), login).1;
    let repeated = "--accept-routes --accept-dns=false --hostname=v1 --advertise-routes=10.42.1.0/24 --snat-subnet-routes=false";
    assert_eq!(
        up(&login(None, &[])),
        format!(
            "up --timeout=30s --auth-key=file:DIR/key --login-server=http://10.78.0.1:8080 {repeated}"
        )
    );
    // Another control server needs a new login; a flag of the user is not repeated.
    let own = [
        "--hostname".to_owned(),
        "a".to_owned(),
        "-accept-dns=true".to_owned(),
    ];
    assert_eq!(
        up(&login(Some("https://b.example"), &own)),
        "up --timeout=30s --auth-key=file:DIR/key --login-server=https://b.example --force-reauth --accept-routes --advertise-routes=10.42.1.0/24 --snat-subnet-routes=false --hostname a -accept-dns=true"
    );
    // Without settings nothing is changed.
    assert_eq!(up(&Login::default()), "up");
}

#[test]
fn settings_are_changed_one_by_one() {
    let runner = recorded(PREFS, Output::default());
    let tailscale = Tailscale::new(&runner, "/none");
    tailscale
        .advertise(&prefixes("10.42.1.0/24 10.9.0.0/16"))
        .unwrap();
    tailscale.advertise(&[]).unwrap();
    tailscale.accept_routes(true).unwrap();
    tailscale.translate_sources(false).unwrap();
    tailscale.down().unwrap();
    tailscale.logout().unwrap();
    assert_eq!(
        runner.calls.take(),
        [
            "set --advertise-routes=10.42.1.0/24,10.9.0.0/16",
            "set --advertise-routes=",
            "set --accept-routes=true",
            "set --snat-subnet-routes=false",
            "down --accept-risk=lose-ssh",
            "logout",
        ]
    );
}

#[test]
fn ping_returns_the_time_of_its_answer() {
    let pong = |time: &str| {
        latency(&format!(
            "pong from b (100.64.0.2, 41641) via TSMP in {time}\n"
        ))
    };
    assert_eq!(pong("23ms"), Some(Duration::from_millis(23)));
    assert_eq!(pong("0s"), Some(Duration::ZERO));
    assert_eq!(pong("1.204s"), Some(Duration::from_millis(1204)));
    assert_eq!(latency("ping \"100.64.0.2\" timed out\n"), None);
    let failing = Failing(|| Ok(failure("no reply\n")));
    let error = Tailscale::new(failing, "/none").ping([100, 64, 0, 2].into());
    let expected = "`tailscale ping --tsmp --c --timeout 100.64.0.2` failed: no reply";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

/// Ends every call in one way.
struct Failing(fn() -> Result<Output, RunError>);

impl Runner for Failing {
    fn run(&self, _: &[String], _: Duration) -> Result<Output, RunError> {
        self.0()
    }
}

#[test]
fn failures_name_the_cure() {
    let check = |outcome: fn() -> Result<Output, RunError>, expected: &str| {
        let error = Tailscale::new(Failing(outcome), "/none")
            .status()
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        || {
            Ok(failure(
                "failed to connect to local tailscaled; it doesn't appear to be running (sudo systemctl start tailscaled ?)",
            ))
        },
        "the daemon of tailscale does not run: systemctl start tailscaled.service",
    );
    check(
        || Err(io::Error::from(io::ErrorKind::NotFound).into()),
        "there is no program tailscale: install it, and run its daemon",
    );
    check(
        || Err(RunError::TimedOut(SHORT)),
        "`tailscale status --json` did not succeed within 10 s: look at journalctl -u tailscaled.service",
    );
    check(
        || Ok(success("{")),
        "cannot read the output of `tailscale status --json`: EOF while parsing an object at line 1 column 1",
    );
    check(
        || Ok(failure(&"x ".repeat(1000))),
        &format!(
            "`tailscale status --json` failed: {}…",
            "x ".repeat(MAX_TEXT / 2)
        ),
    );
}

#[test]
fn policy_approves_the_subnets_of_tagged_nodes() {
    assert_eq!(
        policy(&["10.42.0.0/16".parse().unwrap()]),
        r#""autoApprovers": {"routes": {"10.42.0.0/16": ["tag:k3s"]}}"#
    );
}
