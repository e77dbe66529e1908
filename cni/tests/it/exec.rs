//! Real child processes: shell scripts as plugins.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cni::CniError;
use cni::exec::{DirectExec, Exec, ExecError};
use cni::process::Limits;
use tempfile::TempDir;

fn plugin(dir: &TempDir, script: &str) -> PathBuf {
    let path = dir.path().join("plugin");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn run(script: &str, stdin: &[u8], limits: Limits) -> Result<Vec<u8>, ExecError> {
    let dir = tempfile::tempdir().unwrap();
    let exec = DirectExec {
        limits,
        ..DirectExec::default()
    };
    exec.run(
        &plugin(&dir, script),
        &[("CNI_COMMAND".to_owned(), "ADD".to_owned())],
        stdin,
    )
}

fn failure(script: &str) -> CniError {
    match run(script, b"", Limits::default()).unwrap_err() {
        ExecError::Plugin(error) => error,
        ExecError::Killed(error) => *error,
        other => panic!("{other}"),
    }
}

#[test]
fn stdin_and_stdout_are_passed_complete() {
    assert_eq!(
        run("cat", b"{\"a\":1}", Limits::default()).unwrap(),
        b"{\"a\":1}"
    );
    // More than any pipe holds, both ways at once.
    let much = vec![b'x'; 4 << 20];
    assert!(run("cat", &much, Limits::default()).unwrap() == much);
    // A plugin that does not read its stdin succeeds all the same.
    assert_eq!(run("echo '{}'", &much, Limits::default()).unwrap(), b"{}\n");
}

#[test]
fn environment_is_the_cni_variables_and_path() {
    let output = String::from_utf8(
        run(
            "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort",
            b"",
            Limits::default(),
        )
        .unwrap(),
    )
    .unwrap();
    assert_eq!(
        output,
        "CNI_COMMAND=ADD\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    );
}

#[test]
fn typed_error_of_a_plugin_is_kept() {
    let error = failure(
        r#"echo '{"cniVersion":"1.0.0","code":103,"msg":"no lease","details":"pool is empty"}'; exit 1"#,
    );
    assert_eq!(
        error,
        CniError::new(103, "no lease").with_details("pool is empty")
    );
}

#[test]
fn output_of_an_untyped_failure_is_quoted() {
    let error = failure("echo '  it broke\n  badly' >&2; exit 3");
    assert_eq!(
        error,
        CniError::new(999, "plugin plugin failed: exit status: 3: it broke badly")
    );
    assert_eq!(
        failure("echo plain words; exit 1").msg,
        "plugin plugin failed: exit status: 1: plain words"
    );
    assert_eq!(
        failure("exit 2").msg,
        "plugin plugin failed: exit status: 2"
    );
    assert!(
        failure("kill -9 $$")
            .msg
            .starts_with("plugin plugin failed: signal: 9")
    );
    let long = failure("yes abcdefgh | head -c 3000000 >&2; exit 1").msg;
    assert!(long.len() < 2000, "{}", long.len());
}

#[test]
fn stdout_is_bounded() {
    let limits = Limits {
        stdout: 1000,
        ..Limits::default()
    };
    let error = run("exec yes", b"", limits).unwrap_err();
    assert!(
        matches!(error, ExecError::TooMuchOutput { limit: 1000, .. }),
        "{error}"
    );
    let limits = Limits {
        stdout: 8,
        ..Limits::default()
    };
    assert_eq!(run("printf 12345678", b"", limits).unwrap(), b"12345678");
}

#[test]
fn run_time_is_bounded_by_the_limit() {
    let limits = Limits {
        time: Some(Duration::from_millis(50)),
        ..Limits::default()
    };
    let start = Instant::now();
    let error = run("exec sleep 600", b"", limits).unwrap_err();
    assert!(matches!(error, ExecError::TimedOut { .. }), "{error}");
    assert_eq!(error.to_cni().code, 11);
    assert!(start.elapsed() < Duration::from_secs(90));
}

#[test]
fn timed_out_plugin_is_killed_with_its_children() {
    let limits = Limits {
        time: Some(Duration::from_millis(200)),
        ..Limits::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; wait", file.display());
    run(&script, b"", limits).unwrap_err();
    let pid = std::fs::read_to_string(file).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let end = Instant::now() + Duration::from_mins(1);
    // The process that inherits it may take a moment to reap it.
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < end, "the child still runs");
        std::thread::yield_now();
    }
}

#[test]
fn grandchild_that_keeps_the_pipes_open_is_not_waited_for() {
    let start = Instant::now();
    let output = run("sleep 60 & echo \"$!\"", b"", Limits::default()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(30));
    let pid: i32 = String::from_utf8(output).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn plugin_that_is_being_replaced_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    let path = plugin(&dir, "echo '{}'");
    let writer = OpenOptions::new().append(true).open(&path).unwrap();
    let (sender, receiver) = mpsc::channel();
    let runner = thread::spawn(move || {
        sender.send(
            DirectExec::default()
                .run(&path, &[], b"")
                .map_err(|error| error.to_string()),
        )
    });
    // As long as the file is open for writing the run does not end, not even with an error.
    assert_eq!(
        receiver.recv_timeout(Duration::from_millis(300)),
        Err(mpsc::RecvTimeoutError::Timeout)
    );
    drop(writer);
    assert_eq!(receiver.recv().unwrap().unwrap(), b"{}\n");
    runner.join().unwrap().unwrap();
}

#[test]
fn programs_are_found_in_the_order_of_directories() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dirs = [
        first.path().to_owned(),
        Path::new("/absent").to_owned(),
        second.path().to_owned(),
    ];
    let find = |name: &str| DirectExec::default().find(name, &dirs);
    plugin(&second, "");
    assert_eq!(find("plugin").unwrap(), second.path().join("plugin"));
    // Neither a directory nor a file that is not executable counts.
    fs::create_dir(first.path().join("plugin")).unwrap();
    assert_eq!(find("plugin").unwrap(), second.path().join("plugin"));
    fs::remove_dir(first.path().join("plugin")).unwrap();
    File::create(first.path().join("plugin")).unwrap();
    assert_eq!(find("plugin").unwrap(), second.path().join("plugin"));
    plugin(&first, "");
    assert_eq!(find("plugin").unwrap(), first.path().join("plugin"));
    for name in ["", ".", "..", "../plugin", "/bin/sh", "a\0"] {
        assert!(matches!(find(name), Err(ExecError::Name(_))), "{name:?}");
    }
    let error = find("bridge").unwrap_err().to_string();
    assert!(
        error.starts_with("plugin \"bridge\" is in none of ") && error.contains(", /absent, "),
        "{error}"
    );
    assert!(
        DirectExec::default()
            .find("bridge", &[])
            .unwrap_err()
            .to_string()
            .contains("CNI_PATH is empty")
    );
}

#[test]
fn program_that_cannot_start_is_an_io_error() {
    let error = DirectExec::default()
        .run(Path::new("/absent/plugin"), &[], b"")
        .unwrap_err();
    assert!(
        matches!(&error, ExecError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
    assert!(error.to_string().starts_with("cannot run /absent/plugin: "));
}

#[test]
fn plugin_that_a_signal_ended_has_not_failed_by_itself() {
    for script in [
        "kill -9 $$",
        "echo '{\"code\":7,\"msg\":\"x\"}'; kill -9 $$",
    ] {
        let error = run(script, b"", Limits::default()).unwrap_err();
        assert!(matches!(error, ExecError::Killed(_)), "{error}");
    }
    let error = run("exit 137", b"", Limits::default()).unwrap_err();
    assert!(matches!(error, ExecError::Plugin(_)), "{error}");
}
