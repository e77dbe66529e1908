//! Forwarding each verb to a daemon that is ready, is starting, or does not run.
//!
//! ADD, CHECK and GC are sent at once, and a daemon that is not ready holds them. Without a daemon they wait for one, within the time
//! that a runtime allows, and then ask for a retry (code 11). DEL waits briefly and is then journaled for the daemon, so that a pod can
//! always be removed and nothing leaks. STATUS waits for a moment and then succeeds if a daemon served the node a moment ago: the
//! runtime has the configuration and this program, and one failure makes the node `NotReady`, with all its pods. Code 50 is for what the
//! daemon itself reports, and for a daemon that stays away.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use api::cause::Cause;
use api::wire::to_json;
use api::{Response, presence};
use cni::convert::result_to;
use cni::{CniError, Command};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};
use serde_json::Value;

use crate::call::CniCall;
use crate::client::{SendError, Timeouts, send};
use crate::http::HttpResponse;
use crate::journal;
use crate::retry::Retry;

/// The time limits of the verbs. A kubelet allows two to four minutes for a sandbox in all.
pub(crate) struct Timing {
    /// How long ADD, CHECK and GC wait until the daemon begins.
    pub(crate) ready: Duration,
    /// How long DEL waits for a daemon before it is journaled.
    pub(crate) reachable: Duration,
    /// How long STATUS waits for a daemon: less than the 2 s that `crictl` allows, and far less than the 30 s after which a kubelet calls
    /// the runtime down.
    pub(crate) answering: Duration,
    pub(crate) status: Timeouts,
    /// The timeouts of the other verbs.
    pub(crate) work: Timeouts,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            ready: seconds(50),
            reachable: seconds(2),
            answering: seconds(1),
            status: Timeouts {
                connect: seconds(1),
                response: seconds(10),
            },
            work: Timeouts {
                connect: seconds(10),
                response: seconds(170),
            },
        }
    }
}

/// Forwards the call and returns the result of ADD, in the version of the configuration.
pub(crate) fn forward(call: &CniCall, timing: &Timing) -> Result<Option<Value>, CniError> {
    let outcome = match call.command {
        Command::Status => status(call, timing),
        Command::Del => del(call, timing),
        _ => send_until_begun(call, timing),
    };
    let name = match call.command {
        Command::Add => "CmdAdd",
        Command::Check => "CmdCheck",
        Command::Del => "CmdDel",
        Command::Gc => "CmdGC",
        Command::Status => "CmdStatus",
        Command::Version => "CmdVersion",
    };
    outcome.map_err(|error| error.context(&format!("{name} (shim)")))
}

/// Sends the request at once; the daemon holds it until it can begin. A request that was not begun is sent again until the time is over.
fn send_until_begun(call: &CniCall, timing: &Timing) -> Result<Option<Value>, CniError> {
    let end = Instant::now() + timing.ready;
    let body = body(call);
    let mut retry = Retry::new(&call.socket, end);
    loop {
        let (reason, is_unreachable) = match send(
            &call.socket,
            api::PATH_CNI,
            retry.left(),
            &body,
            timing.work,
        ) {
            Ok(response) if response.not_begun => (not_begun_reason(&response), false),
            Ok(response) => return read(call, &response),
            Err(error @ SendError::Unreachable(_)) => (error.to_string(), true),
            // An ADD that may have been begun is never sent twice.
            Err(error) => {
                return Err(unavailable(
                    call,
                    CniError::TRY_AGAIN_LATER,
                    &error.to_string(),
                ));
            }
        };
        if !retry.wait() {
            let hint = if is_unreachable {
                "; start a daemon on this node, or remove 00-multus.conf if none is to run here"
            } else {
                ""
            };
            let waited = format!(
                "still not ready after {} s: {reason}{hint}",
                timing.ready.as_secs()
            );
            return Err(unavailable(call, CniError::TRY_AGAIN_LATER, &waited));
        }
    }
}

/// Returns the daemon's reason for not beginning.
fn not_begun_reason(response: &HttpResponse) -> String {
    match CniError::parse(&response.body) {
        Some(error) => error.msg,
        None => format!("it answers {} {}", response.status, excerpt(&response.body))
            .trim_end()
            .to_owned(),
    }
}

fn status(call: &CniCall, timing: &Timing) -> Result<Option<Value>, CniError> {
    let body = body(call);
    let mut retry = Retry::new(&call.socket, Instant::now() + timing.answering);
    loop {
        let none = Duration::ZERO;
        let reason = match send(&call.socket, api::PATH_CNI, none, &body, timing.status) {
            Ok(response) if response.not_begun => not_begun_reason(&response),
            Ok(response) => {
                return read(call, &response).inspect(|_| note_success(&call.socket));
            }
            Err(error) => error.to_string(),
        };
        if !retry.wait() {
            let dir = call.socket.parent().unwrap_or(Path::new("/"));
            if presence::is_recent(dir, SystemTime::now()) {
                return Ok(None);
            }
            let reason = format!(
                "{reason}; none has served this node for {} s: see why its pod does not run",
                presence::GRACE.as_secs()
            );
            return Err(unavailable(call, CniError::PLUGIN_NOT_AVAILABLE, &reason));
        }
    }
}

/// Sets the time of the socket, by which a later STATUS knows that a daemon served a moment ago.
fn note_success(socket: &Path) {
    const fn at(nanoseconds: i64) -> Timespec {
        Timespec {
            tv_sec: 0,
            tv_nsec: nanoseconds,
        }
    }
    let times = Timestamps {
        last_access: at(UTIME_OMIT),
        last_modification: at(UTIME_NOW),
    };
    // Best effort: without it only the time at which the daemon took the socket counts.
    let _ = utimensat(CWD, socket, &times, AtFlags::SYMLINK_NOFOLLOW);
}

fn del(call: &CniCall, timing: &Timing) -> Result<Option<Value>, CniError> {
    let body = body(call);
    let mut retry = Retry::new(&call.socket, Instant::now() + timing.reachable);
    loop {
        let reason = match send(
            &call.socket,
            api::PATH_CNI,
            Duration::ZERO,
            &body,
            timing.work,
        ) {
            Ok(response) if response.not_begun => not_begun_reason(&response),
            Ok(response) => return read(call, &response),
            // The daemon still works on it: a second DEL at the same time would not help.
            Err(error @ SendError::TimedOut(_)) => {
                return Err(unavailable(
                    call,
                    CniError::TRY_AGAIN_LATER,
                    &error.to_string(),
                ));
            }
            // DEL is idempotent and may be sent twice.
            Err(error) => error.to_string(),
        };
        if !retry.wait() {
            return match journal::write(call) {
                Ok(file) => {
                    call.log.error(&format!(
                        "multus daemon: {reason}; DEL journaled for replay in {}",
                        file.display()
                    ));
                    Ok(None)
                }
                Err(error) => Err(unavailable(
                    call,
                    CniError::TRY_AGAIN_LATER,
                    &format!("{reason}; and DEL cannot be journaled: {error}"),
                )),
            };
        }
    }
}

fn body(call: &CniCall) -> Vec<u8> {
    to_json(call.variables.0.iter().cloned(), &call.stdin, None)
}

/// Returns the result in the daemon's response, or its error.
fn read(call: &CniCall, response: &HttpResponse) -> Result<Option<Value>, CniError> {
    if !(200..300).contains(&response.status) {
        // Upstream's words, which operators search events for.
        let failed = format!("CNI request failed with status {}", response.status);
        return Err(match CniError::parse(&response.body) {
            Some(error) if call.command.is_about_attachment() => {
                error.context(&format!("{failed}: ERRORED"))
            }
            Some(error) => error,
            None => CniError::new(
                CniError::INTERNAL,
                format!("{failed}: '{}'", excerpt(&response.body)),
            ),
        });
    }
    if call.command != Command::Add {
        return Ok(None);
    }
    let response = Response::from_json(&response.body);
    let response = response.map_err(|error| {
        CniError::new(
            CniError::DECODING_FAILURE,
            format!("multus daemon sent no usable result: {error}"),
        )
    })?;
    let result = response.result.ok_or_else(|| {
        CniError::new(
            CniError::INTERNAL,
            "multus daemon answered ADD without a result",
        )
    })?;
    Ok(Some(result_to(&result, call.version)))
}

fn unavailable(call: &CniCall, code: u32, reason: &str) -> CniError {
    CniError::new(
        code,
        format!("multus daemon at {}: {reason}", call.socket.display()),
    )
    .with_details(Cause::DaemonNotReady.details())
}

/// Returns the beginning of a text, since an event has little room.
fn excerpt(bytes: &[u8]) -> String {
    const MAX_CHARS: usize = 2048;
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    match text.char_indices().nth(MAX_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use cni::version::SUPPORTED;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::call::Environment;

    fn call(dir: &TempDir, command: &str) -> CniCall {
        let env = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "a"),
            ("CNI_NETNS", "/n"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/p"),
        ];
        let env = env
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()));
        let config = json!({"cniVersion": "1.1.0", "name": "n", "daemonSocketDir": dir.path(), "cniDir": dir.path()}).to_string();
        Environment::read(env)
            .unwrap()
            .unwrap()
            .with_config(config.into_bytes(), &SUPPORTED)
            .unwrap()
    }

    fn short() -> Timing {
        let timeouts = Timeouts {
            connect: Duration::from_millis(20),
            response: Duration::from_millis(20),
        };
        Timing {
            ready: Duration::from_millis(60),
            reachable: Duration::from_millis(60),
            answering: Duration::from_millis(60),
            status: timeouts,
            work: timeouts,
        }
    }

    /// Makes the directory and the socket in it look as if no daemon had served for a year.
    fn set_old(dir: &TempDir) {
        let old = SystemTime::now() - Duration::from_hours(24 * 365);
        std::fs::File::open(dir.path())
            .and_then(|dir| dir.set_modified(old))
            .unwrap();
        let since = old.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let time = Timespec::try_from(since).unwrap();
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let socket = dir.path().join(api::SOCKET_NAME);
        let _ = utimensat(CWD, &socket, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    fn error(dir: &TempDir, command: &str) -> CniError {
        set_old(dir);
        forward(&call(dir, command), &short()).unwrap_err()
    }

    #[test]
    fn daemon_that_never_starts_is_waited_for_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        for command in ["ADD", "CHECK", "GC"] {
            let error = error(&dir, command);
            assert_eq!(error.code, CniError::TRY_AGAIN_LATER);
            assert!(
                error.msg.contains("still not ready") && error.msg.contains("No such file"),
                "{error}"
            );
            assert!(error.msg.contains("remove 00-multus.conf"), "{error}");
        }
        assert_eq!(error(&dir, "STATUS").code, CniError::PLUGIN_NOT_AVAILABLE);
        assert!(!api::journal::dir(dir.path()).exists());
    }

    #[test]
    fn daemon_that_hangs_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        // The kernel accepts connections into the queue, and no process answers them.
        let _listener = UnixListener::bind(dir.path().join(api::SOCKET_NAME)).unwrap();
        for (command, code) in [("ADD", 11), ("STATUS", 50), ("DEL", 11)] {
            let error = error(&dir, command);
            assert_eq!(error.code, code);
            assert!(error.msg.contains("no answer within"), "{error}");
        }
        assert!(!api::journal::dir(dir.path()).exists());
    }

    #[test]
    fn full_queue_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(api::SOCKET_NAME)).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first =
            std::os::unix::net::UnixStream::connect(dir.path().join(api::SOCKET_NAME)).unwrap();
        let refused = error(&dir, "STATUS");
        assert!(refused.msg.contains("cannot connect"), "{refused}");
        drop(first);
        assert_eq!(forward(&call(&dir, "DEL"), &short()), Ok(None));
        assert_eq!(
            std::fs::read_dir(api::journal::dir(dir.path()))
                .unwrap()
                .count(),
            1
        );
    }
}
