//! Every verb without a daemon, but ADD, whose long wait is a unit test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use api::Request;

use crate::support::{ShimFixture, env, ok, run, with_status};

#[test]
fn status_succeeds_while_a_daemon_restarts() {
    for is_killed in [true, false] {
        let fixture = ShimFixture::without_daemon();
        if is_killed {
            fixture.leave_dead_socket();
        }
        fixture.set_age(25);
        assert_eq!(fixture.run("STATUS").success(), "");
    }
}

#[test]
fn status_fails_once_a_daemon_stays_away() {
    for (is_killed, reason) in [(true, "Connection refused"), (false, "No such file")] {
        let fixture = ShimFixture::without_daemon();
        if is_killed {
            fixture.leave_dead_socket();
        }
        fixture.set_age(31);
        let error = fixture.run("STATUS").error();
        assert_eq!(error.code, 50);
        for part in ["multus.sock", reason, "see why its pod does not run"] {
            assert!(error.msg.contains(part), "{error}");
        }
    }
}

#[test]
fn status_of_a_node_without_a_daemon_is_the_answer_of_the_next_one() {
    let fixture = ShimFixture::without_daemon();
    fixture.set_age(31);
    std::thread::scope(|scope| {
        let shim = scope.spawn(|| fixture.run("STATUS"));
        let problem = r#"{"code":50,"msg":"watches: no answer"}"#;
        fixture.start_daemon(|_, _| Some(with_status(400, problem)));
        let error = shim.join().unwrap().error();
        assert!(
            error.code == 50 && error.msg.contains("watches: no answer"),
            "{error}"
        );
    });
    assert_eq!(fixture.calls().len(), 1);
}

#[test]
fn only_a_successful_status_counts_as_served() {
    let old = Duration::from_secs(500);
    for (response, is_noted) in [(ok(""), true), (with_status(400, "{}"), false)] {
        let fixture = ShimFixture::responding(response);
        fixture.set_age(1000);
        fixture.run("STATUS");
        let time = fixture.socket().metadata().unwrap().modified().unwrap();
        assert_eq!(time.elapsed().unwrap() < old, is_noted);
    }
}

#[test]
fn del_is_journaled() {
    let fixture = ShimFixture::without_daemon();
    let stdin = serde_json::to_vec(&fixture.config("0.4.0")).unwrap();
    let mut env = env("DEL");
    env.push(("SECRET", "swordfish".to_owned()));
    assert_eq!(run("multus-shim", &env, &stdin).success(), "");
    let [file] = fixture.journal().try_into().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("0f1e2d-eth0-") && api::journal::is_entry(name),
        "{name}"
    );
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        file.parent()
            .unwrap()
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    let request = Request::from_json(&fs::read(file).unwrap()).unwrap();
    assert_eq!(request.config, stdin);
    assert_eq!(request.env["CNI_COMMAND"], "DEL");
    assert_eq!(
        request.env["CNI_ARGS"],
        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0"
    );
    assert!(
        request.env.keys().all(|key| key.starts_with("CNI_")),
        "{:?}",
        request.env
    );
}

#[test]
fn journal_has_one_entry_per_attachment_and_namespace() {
    let fixture = ShimFixture::without_daemon();
    fixture.run("DEL").success();
    fixture.run("DEL").success();
    assert_eq!(fixture.journal().len(), 1);
    let mut env = env("DEL");
    env.retain(|(key, _)| *key != "CNI_NETNS");
    run(
        "multus-shim",
        &env,
        &serde_json::to_vec(&fixture.config("0.4.0")).unwrap(),
    )
    .success();
    assert_eq!(fixture.journal().len(), 2);
}

#[test]
fn journaled_del_is_logged() {
    let fixture = ShimFixture::without_daemon();
    let mut config = fixture.config("0.4.0");
    config.insert(
        "LogFile".to_owned(),
        fixture.path().join("shim.log").to_str().into(),
    );
    config.insert("logLevel".to_owned(), "error".into());
    config.insert("logToStderr".to_owned(), true.into());
    let output = run(
        "multus-shim",
        &env("DEL"),
        &serde_json::to_vec(&config).unwrap(),
    );
    assert_eq!(output.success(), "");
    let log = fs::read_to_string(fixture.path().join("shim.log")).unwrap();
    assert!(
        log.contains(" [error] ") && log.contains("DEL journaled for replay in"),
        "{log}"
    );
    assert_eq!(output.stderr, log);
}

#[test]
fn log_file_that_is_a_link_is_not_followed() {
    let fixture = ShimFixture::without_daemon();
    let (file, link) = (fixture.path().join("theirs"), fixture.path().join("link"));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let mut config = fixture.config("0.4.0");
    config.insert("logFile".to_owned(), link.to_str().into());
    config.insert("logLevel".to_owned(), "error".into());
    let stdin = serde_json::to_vec(&config).unwrap();
    run("multus-shim", &env("DEL"), &stdin).success();
    assert_eq!(fs::read_to_string(file).unwrap(), "");
}

#[test]
fn del_that_cannot_be_journaled_asks_for_a_retry() {
    let fixture = ShimFixture::without_daemon();
    // A file in place of the directory makes the write fail for root, too.
    fs::write(fixture.state(), "").unwrap();
    let error = fixture.run("DEL").error();
    assert_eq!(error.code, 11);
    assert!(error.msg.contains("DEL cannot be journaled"), "{error}");
}

#[test]
fn del_reaches_a_daemon_that_starts_a_little_later() {
    let fixture = ShimFixture::without_daemon();
    std::thread::scope(|scope| {
        let shim = scope.spawn(|| fixture.run("DEL"));
        fixture.start_daemon(|_, _| Some(ok("")));
        shim.join().unwrap().success();
    });
    assert_eq!(fixture.calls().len(), 1);
    assert!(fixture.journal().is_empty());
}

#[test]
fn del_whose_daemon_dies_is_journaled() {
    let fixture = ShimFixture::with_daemon(|_, _| None);
    fixture.run("DEL").success();
    assert!(!fixture.calls().is_empty());
    assert_eq!(fixture.journal().len(), 1);
}

#[test]
fn socket_with_a_long_path_is_reached() {
    let fixture = ShimFixture::responding(ok(""));
    let deep = fixture.path().join("d".repeat(60)).join("e".repeat(60));
    fs::create_dir_all(deep.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(fixture.path(), &deep).unwrap();
    let mut config = fixture.config("1.1.0");
    config.insert("daemonSocketDir".to_owned(), deep.to_str().into());
    run(
        "multus-shim",
        &env("STATUS"),
        &serde_json::to_vec(&config).unwrap(),
    )
    .success();
    assert_eq!(fixture.calls().len(), 1);
}
