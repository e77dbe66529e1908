//! The spawner: the built program starts plugins for an executor in this process, and for a complete daemon.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cni::{
    CniError,
    exec::{Exec as _, ExecError},
    process::Limits,
};
use daemon::host::exec::{ExecContext, Fate, RuntimeExec};
use node::root::Root;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{PATIENCE, node::NodeFixture, wait_for};

/// An executor, and a directory for its plugins.
struct Fixture {
    dir: TempDir,
    exec: RuntimeExec,
}

impl Fixture {
    fn new() -> Self {
        Self::within(None)
    }

    fn within(time: Option<Duration>) -> Self {
        let root = Arc::new(Root::open("/").unwrap());
        let limits = Limits {
            time: time.or(Some(PATIENCE)),
            ..Limits::default()
        };
        Self {
            dir: tempfile::tempdir().unwrap(),
            exec: RuntimeExec::new(root, ExecContext::default())
                .with_limits(limits)
                .with_spawner_program(env!("CARGO_BIN_EXE_multus-daemon").into()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn plugin(&self, script: &str) -> PathBuf {
        let path = self.path("plugin");
        fs::write(
            &path,
            format!("#!/bin/sh\ncd {}\n{script}\n", self.dir.path().display()),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn run(&self, script: &str, stdin: &[u8]) -> Result<Vec<u8>, ExecError> {
        self.exec.run(&self.plugin(script), &[], stdin)
    }

    /// The pid that a plugin has written into a file.
    fn pid_in(&self, file: &str) -> Pid {
        pid_in(&self.path(file))
    }
}

fn pid_in(file: &Path) -> Pid {
    let what = format!("an id in {}", file.display());
    wait_for(&what, || {
        let text = fs::read_to_string(file).ok()?;
        let id = text.strip_suffix('\n')?.parse().ok()?;
        Pid::from_raw(id)
    })
}

/// Returns whether any thread of the process runs. The first thread is a zombie as soon as it has ended, even while others still hold the
/// files; a process whose threads are all zombies has ended.
pub(crate) fn runs(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    threads.into_iter().flatten().flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    })
}

fn wait_for_end(pid: Pid) {
    wait_for("the end of a process", || (!runs(pid)).then_some(()));
}

fn code(error: &ExecError) -> u32 {
    error.to_cni().code
}

#[test]
fn plugin_reads_stdin_and_writes_stdout() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run("cat", b"in").unwrap(), b"in");
    // More than any pipe holds, both ways at once.
    let much = vec![b'x'; 4 << 20];
    assert!(fixture.run("cat", &much).unwrap() == much);
    let error = fixture.run("echo broken >&2; exit 3", b"").unwrap_err();
    assert!(
        error.to_string().contains("exit status: 3: broken"),
        "{error}"
    );
    let error = fixture
        .exec
        .run(&fixture.path("absent"), &[], b"")
        .unwrap_err();
    assert!(
        matches!(&error, ExecError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound),
        "{error}"
    );
    assert_eq!(fixture.run("cat", b"again").unwrap(), b"again");
}

#[test]
fn large_environment_arrives_complete() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin("printf %s \"$A$B$C$D\" | wc -c");
    let value = "x".repeat(100 << 10);
    let environment = ["A", "B", "C", "D"].map(|name| (name.to_owned(), value.clone()));
    let length = fixture.exec.run(&plugin, &environment, b"").unwrap();
    assert_eq!(
        String::from_utf8(length).unwrap().trim(),
        (400 << 10).to_string()
    );
}

#[test]
fn plugins_share_one_spawner_and_inherit_only_standard_streams() {
    let fixture = Fixture::new();
    // The test's own open files must not be inherited.
    let files: Vec<_> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
    // The shell has its script open as descriptor 10, and for a moment as another one.
    let script = "echo $PPID; for fd in 0 1 2 4 5 6 7 8 9; do if [ -e /proc/$$/fd/$fd ]; then echo $fd; fi; done";
    let first = fixture.run(script, b"").unwrap();
    let second = fixture.run(script, b"").unwrap();
    assert_eq!(first, second);
    drop(files);
    let text = String::from_utf8(first).unwrap();
    let (parent, descriptors) = text.split_once('\n').unwrap();
    assert_ne!(parent, std::process::id().to_string());
    assert_eq!(descriptors, "0\n1\n2\n");
}

#[test]
fn plugins_get_the_configured_file_limit() {
    let mut fixture = Fixture::new();
    fixture.exec = fixture.exec.with_file_limit(123);
    assert_eq!(fixture.run("ulimit -S -n", b"").unwrap(), b"123\n");
}

#[test]
fn late_plugin_is_killed_with_its_process_group() {
    let fixture = Fixture::within(Some(Duration::from_secs(2)));
    let error = fixture
        .run("sleep 600 & echo $! > child; echo $$ > own; wait", b"")
        .unwrap_err();
    assert!(
        matches!(error, ExecError::TimedOut { seconds: 2, .. }),
        "{error}"
    );
    wait_for_end(fixture.pid_in("own"));
    wait_for_end(fixture.pid_in("child"));
    // The spawner still works.
    assert_eq!(fixture.run("cat", b"next").unwrap(), b"next");
}

#[test]
fn plugin_gets_the_time_that_its_verb_has_left() {
    let fixture = Fixture::within(Some(Duration::from_mins(2)));
    let program = fixture.plugin("sleep 600");
    let late = fixture
        .exec
        .run_within(Duration::from_secs(1), &program, &[], b"");
    let error = late.unwrap_err();
    assert!(
        matches!(error, ExecError::TimedOut { seconds: 1, .. }),
        "{error}"
    );
}

#[test]
fn grandchild_that_keeps_the_pipes_does_not_delay_the_call() {
    let fixture = Fixture::new();
    let before = Instant::now();
    let output = fixture
        .run("sleep 600 & echo $! > child; echo done", b"")
        .unwrap();
    assert_eq!(output, b"done\n");
    assert!(before.elapsed() < PATIENCE);
    let child = fixture.pid_in("child");
    assert!(runs(child));
    kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn killed_spawner_fails_the_call_and_its_plugin_is_ended() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin("echo $PPID > parent; echo $$ > own; exec sleep 600");
    let error = thread::scope(|scope| {
        let call = scope.spawn(|| fixture.exec.run(&plugin, &[], b""));
        let own = fixture.pid_in("own");
        kill_process(fixture.pid_in("parent"), Signal::KILL).unwrap();
        let error = call.join().unwrap().unwrap_err();
        assert!(
            !runs(own),
            "it must not run concurrently with the DEL that undoes it"
        );
        error
    });
    assert!(error.to_string().contains("has ended"), "{error}");
    assert_eq!(code(&error), CniError::TRY_AGAIN_LATER);
    assert_eq!(fixture.run("cat", b"next").unwrap(), b"next");
}

#[test]
fn spawner_killed_while_idle_fails_no_call() {
    let fixture = Fixture::new();
    fixture.run("echo $PPID > parent", b"").unwrap();
    let spawner = fixture.pid_in("parent");
    kill_process(spawner, Signal::KILL).unwrap();
    wait_for_end(spawner);
    assert_eq!(fixture.run("cat", b"next").unwrap(), b"next");
}

#[test]
fn calls_run_concurrently() {
    const CALLS: usize = 64;
    let fixture = Fixture::new();
    // Each plugin waits until all have been started.
    let plugin = fixture.plugin(&format!(
        "mkdir -p here; : > here/$$; while [ $(ls here | wc -l) -lt {CALLS} ]; do sleep 0.05; done; cat"
    ));
    thread::scope(|scope| {
        let calls: Vec<_> = (0..CALLS)
            .map(|call| {
                let (fixture, plugin) = (&fixture, &plugin);
                scope.spawn(move || {
                    let input = call.to_string();
                    let output = fixture.exec.run(plugin, &[], input.as_bytes()).unwrap();
                    assert_eq!(output, input.as_bytes());
                })
            })
            .collect();
        for call in calls {
            call.join().unwrap();
        }
    });
    // Lanes beyond the idle ones are opened again.
    assert_eq!(fixture.run("cat", b"next").unwrap(), b"next");
}

#[test]
fn start_of_a_busy_program_is_retried() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin("echo replaced");
    let writer = File::options().append(true).open(&plugin).unwrap();
    thread::scope(|scope| {
        let call = scope.spawn(|| fixture.exec.run(&plugin, &[], b""));
        // The kernel refuses to run it while it is open for writing.
        thread::park_timeout(Duration::from_millis(300));
        drop(writer);
        assert_eq!(call.join().unwrap().unwrap(), b"replaced\n");
    });
}

#[test]
fn detached_program_outlives_the_spawner() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin(
        "echo $PPID > parent; env > environment; echo $1 > argument; echo $$ > own; exec sleep 600",
    );
    let mark = ("TEST_KEEPS", "this");
    let mut detached = fixture.exec.start(&plugin, &["word"], mark).unwrap();
    let own = fixture.pid_in("own");
    assert_eq!(detached.pid(), own.as_raw_nonzero().get());
    assert_eq!(detached.fate(), Fate::Running);
    let environment = fs::read_to_string(fixture.path("environment")).unwrap();
    assert!(environment.contains("TEST_KEEPS=this\n"), "{environment}");
    assert!(
        !environment.contains("MULTUS_"),
        "the next start must not end it as an orphan: {environment}"
    );
    assert_eq!(
        fs::read_to_string(fixture.path("argument")).unwrap(),
        "word\n"
    );
    let spawner = fixture.pid_in("parent");
    kill_process(spawner, Signal::KILL).unwrap();
    wait_for_end(spawner);
    wait_for("an unknown fate", || {
        (detached.fate() == Fate::Unknown).then_some(())
    });
    assert!(runs(own));
    kill_process(own, Signal::KILL).unwrap();
    let error = fixture
        .exec
        .start(&fixture.path("absent"), &[], mark)
        .unwrap_err();
    assert!(matches!(error, ExecError::Io { .. }), "{error}");
}

#[test]
fn spawner_ends_with_its_executor() {
    let fixture = Fixture::new();
    fixture.run("echo $PPID > parent", b"").unwrap();
    let spawner = fixture.pid_in("parent");
    assert!(runs(spawner));
    let Fixture { dir, exec } = fixture;
    drop(exec);
    wait_for_end(spawner);
    drop(dir);
}

#[test]
fn spawner_ends_with_a_killed_daemon() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "a")).result();
    let spawner = spawner_of(daemon.id());
    daemon.kill();
    wait_for_end(spawner);
}

#[test]
fn daemon_without_work_has_no_spawner() {
    let node = NodeFixture::new();
    let daemon = node.start().ready();
    assert_eq!(children_of(daemon.id()), []);
}

fn spawner_of(daemon: u32) -> Pid {
    let children = children_of(daemon);
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

fn children_of(parent: u32) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    ids.filter(is_child).filter_map(Pid::from_raw).collect()
}
