//! A scripted daemon that records its requests, and the shim run against it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use api::Request;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The daemon's complete response, with its head, to a path and a body. `None` closes the connection without one.
type Script = dyn Fn(&str, &[u8]) -> Option<String> + Send + Sync;

/// Paths and bodies, in the order of arrival.
type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A directory with a socket and a state directory, with or without a daemon.
pub(crate) struct ShimFixture {
    dir: TempDir,
    requests: Requests,
}

/// The exit status and the output of the shim.
#[derive(Debug)]
pub(crate) struct ShimOutput {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ShimFixture {
    /// No process listens on the socket.
    pub(crate) fn without_daemon() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            requests: Arc::default(),
        }
    }

    pub(crate) fn with_daemon(
        script: impl Fn(&str, &[u8]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let fixture = Self::without_daemon();
        fixture.start_daemon(script);
        fixture
    }

    /// A daemon that is ready and gives every call this response.
    pub(crate) fn responding(response: String) -> Self {
        Self::with_daemon(move |path, _| {
            Some(if path == "/cni" {
                response.clone()
            } else {
                ok("")
            })
        })
    }

    pub(crate) fn start_daemon(
        &self,
        script: impl Fn(&str, &[u8]) -> Option<String> + Send + Sync + 'static,
    ) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let requests = Arc::clone(&self.requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &script, &requests);
            }
        });
    }

    /// Leaves the socket of a daemon that was killed.
    pub(crate) fn leave_dead_socket(&self) {
        drop(UnixListener::bind(self.socket()).unwrap());
    }

    /// Sets the times of the socket and its directory to so many seconds before now.
    pub(crate) fn set_age(&self, seconds: u64) {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        let set = |directory: File| directory.set_modified(time).unwrap();
        File::open(self.path()).map(set).unwrap();
        if self.socket().exists() {
            let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let time = Timespec::try_from(time).unwrap();
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            utimensat(CWD, self.socket(), &times, AtFlags::empty()).unwrap();
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join(api::SOCKET_NAME)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The paths of all requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// The calls (requests to `/cni`) so far.
    pub(crate) fn calls(&self) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|(path, _)| path == "/cni")
            .map(|(_, body)| Request::from_json(body).unwrap())
            .collect()
    }

    /// The files in the journal.
    pub(crate) fn journal(&self) -> Vec<PathBuf> {
        let Ok(dir) = std::fs::read_dir(api::journal::dir(&self.state())) else {
            return Vec::new();
        };
        dir.map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn config(&self, version: &str) -> Map<String, Value> {
        let config = json!({"cniVersion": version, "name": "multus-cni-network", "type": "multus-shim", "daemonSocketDir": self.path(), "cniDir": self.state()});
        config.as_object().unwrap().clone()
    }

    pub(crate) fn run(&self, command: &str) -> ShimOutput {
        self.run_version(command, "1.1.0")
    }

    pub(crate) fn run_version(&self, command: &str, version: &str) -> ShimOutput {
        let stdin = serde_json::to_vec(&self.config(version)).unwrap();
        run("multus-shim", &env(command), &stdin)
    }
}

impl ShimOutput {
    /// Asserts success and returns stdout.
    pub(crate) fn success(&self) -> &str {
        assert_eq!(self.status, Some(0), "{self:?}");
        &self.stdout
    }

    /// Asserts failure and returns the error, which has to be the only document on stdout.
    pub(crate) fn error(&self) -> cni::CniError {
        assert_eq!(self.status, Some(1), "{self:?}");
        let error: cni::CniError =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(self.stdout.as_bytes(), error.to_pretty());
        error
    }
}

/// The variables that a runtime sets; those of an attachment only for verbs that have one.
pub(crate) fn env(command: &str) -> Vec<(&'static str, String)> {
    let mut env = vec![
        ("CNI_COMMAND", command.to_owned()),
        ("CNI_PATH", "/opt/cni/bin".to_owned()),
    ];
    if matches!(command, "ADD" | "DEL" | "CHECK") {
        env.extend([
            ("CNI_CONTAINERID", "0f1e2d".to_owned()),
            ("CNI_NETNS", "/run/netns/absent".to_owned()),
            ("CNI_IFNAME", "eth0".to_owned()),
            (
                "CNI_ARGS",
                "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0".to_owned(),
            ),
        ]);
    }
    env
}

/// Runs the built program under this name.
pub(crate) fn run(name: &str, env: &[(&str, String)], stdin: &[u8]) -> ShimOutput {
    run_with(name, &[], env, stdin)
}

pub(crate) fn run_with(
    name: &str,
    args: &[&str],
    env: &[(&str, String)],
    stdin: &[u8],
) -> ShimOutput {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_multus-shim"), &program).unwrap();
    let mut command = Command::new(&program);
    command
        .args(args)
        .env_clear()
        .envs(env.iter().map(|(key, value)| (*key, value)));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails early does not read its stdin.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    ShimOutput {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn ok(body: &str) -> String {
    with_status(200, body)
}

/// The response of a daemon that began nothing.
pub(crate) fn not_begun(body: &str) -> String {
    format!(
        "HTTP/1.1 503 x\r\nmultus-not-begun: 1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn with_status(status: u16, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn serve(mut stream: UnixStream, script: &Script, requests: &Mutex<Vec<(String, Vec<u8>)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        match line.trim().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().unwrap();
            }
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    requests.lock().unwrap().push((path.clone(), body.clone()));
    if let Some(response) = script(&path, &body) {
        stream.write_all(response.as_bytes()).unwrap();
    }
}
