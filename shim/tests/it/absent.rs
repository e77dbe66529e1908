//! Every verb but ADD (whose long wait is a unit test) with a daemon that is not there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use api::Request;

use crate::support::{Node, env, ok, run};

#[test]
fn status_fails_at_once() {
    let start = Instant::now();
    let error = Node::without_daemon().run("STATUS").error();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("multus.sock"), "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn del_is_written_down() {
    let node = Node::without_daemon();
    let stdin = serde_json::to_vec(&node.config("0.4.0")).unwrap();
    let mut env = env("DEL");
    env.push(("SECRET", "swordfish".to_owned()));
    assert_eq!(run("multus-shim", &env, &stdin).success(), "");
    let [file] = node.journal().try_into().unwrap();
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
fn the_same_del_twice_is_one_entry_and_another_namespace_is_another() {
    let node = Node::without_daemon();
    node.run("DEL").success();
    node.run("DEL").success();
    assert_eq!(node.journal().len(), 1);
    let mut env = env("DEL");
    env.retain(|(key, _)| *key != "CNI_NETNS");
    run(
        "multus-shim",
        &env,
        &serde_json::to_vec(&node.config("0.4.0")).unwrap(),
    )
    .success();
    assert_eq!(node.journal().len(), 2);
}

#[test]
fn del_says_so_in_the_log() {
    let node = Node::without_daemon();
    let mut config = node.config("0.4.0");
    config.insert(
        "LogFile".to_owned(),
        node.path().join("shim.log").to_str().into(),
    );
    config.insert("logLevel".to_owned(), "error".into());
    config.insert("logToStderr".to_owned(), true.into());
    let outcome = run(
        "multus-shim",
        &env("DEL"),
        &serde_json::to_vec(&config).unwrap(),
    );
    assert_eq!(outcome.success(), "");
    let log = fs::read_to_string(node.path().join("shim.log")).unwrap();
    assert!(
        log.contains(" [error] ") && log.contains("DEL is left to it in"),
        "{log}"
    );
    assert_eq!(outcome.stderr, log);
}

#[test]
fn del_that_cannot_be_written_down_is_to_be_tried_again() {
    let node = Node::without_daemon();
    // A file where the directory should be stops root, too.
    fs::write(node.state(), "").unwrap();
    let error = node.run("DEL").error();
    assert_eq!(error.code, 11);
    assert!(error.msg.contains("cannot be left to it"), "{error}");
}

#[test]
fn del_reaches_a_daemon_that_comes_a_little_late() {
    let node = Node::without_daemon();
    std::thread::scope(|scope| {
        let shim = scope.spawn(|| node.run("DEL"));
        node.start_daemon(|_, _| Some(ok("")));
        shim.join().unwrap().success();
    });
    assert_eq!(node.calls().len(), 1);
    assert!(node.journal().is_empty());
}

#[test]
fn del_whose_daemon_dies_over_it_is_written_down() {
    let node = Node::with_daemon(|_, _| None);
    node.run("DEL").success();
    assert!(!node.calls().is_empty());
    assert_eq!(node.journal().len(), 1);
}

#[test]
fn a_socket_in_a_deep_directory_is_reached() {
    let node = Node::answering(ok(""));
    let deep = node.path().join("d".repeat(60)).join("e".repeat(60));
    fs::create_dir_all(deep.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(node.path(), &deep).unwrap();
    let mut config = node.config("1.1.0");
    config.insert("daemonSocketDir".to_owned(), deep.to_str().into());
    run(
        "multus-shim",
        &env("STATUS"),
        &serde_json::to_vec(&config).unwrap(),
    )
    .success();
    assert_eq!(node.calls().len(), 1);
}
