//! How each verb treats a daemon that is there, on its way, or gone.
//!
//! ADD, CHECK and GC are sent at once and held by a daemon that is not ready; they wait for one that is not there, within the time a
//! runtime gives them, and then ask to be tried again (code 11). STATUS never waits.
//! DEL waits a little and is then left to the daemon in writing, so that a pod can always be removed and nothing leaks.

use std::time::{Duration, Instant};

use api::Response;
use api::wire::to_json;
use cni::convert::result_to;
use cni::{CniError, Command};
use serde_json::Value;

use crate::call::Call;
use crate::client::{Failure, Patience, send};
use crate::http::Answer;
use crate::journal;
use crate::retry::Retry;

/// How long things may take. A kubelet gives a sandbox two to four minutes in all.
pub(crate) struct Timing {
    /// ADD, CHECK and GC: until the daemon begins.
    pub(crate) ready: Duration,
    /// DEL: until it is written down instead.
    pub(crate) reachable: Duration,
    /// STATUS, from end to end.
    pub(crate) status: Patience,
    /// The work itself.
    pub(crate) work: Patience,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            ready: seconds(50),
            reachable: seconds(2),
            status: Patience {
                connect: seconds(1),
                answer: seconds(10),
            },
            work: Patience {
                connect: seconds(10),
                answer: seconds(170),
            },
        }
    }
}

/// Hands the call over; what comes back is the result of ADD, in the version that was asked for.
pub(crate) fn forward(call: &Call, timing: &Timing) -> Result<Option<Value>, CniError> {
    let outcome = match call.command {
        Command::Status => status(call, timing),
        Command::Del => del(call, timing),
        _ => when_ready(call, timing),
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

/// Sends the request at once; the daemon holds it until it can begin. What was not begun is sent again until the time is over.
fn when_ready(call: &Call, timing: &Timing) -> Result<Option<Value>, CniError> {
    let end = Instant::now() + timing.ready;
    let body = body(call);
    let mut retry = Retry::new(&call.socket, end);
    loop {
        let reason = match send(
            &call.socket,
            api::PATH_CNI,
            retry.left(),
            &body,
            timing.work,
        ) {
            Ok(answer) if answer.not_begun => not_begun(&answer),
            Ok(answer) => return read(call, &answer),
            Err(failure @ Failure::Unreachable(_)) => failure.to_string(),
            // An ADD that may have been begun is never sent twice.
            Err(failure) => {
                return Err(unavailable(
                    call,
                    CniError::TRY_AGAIN_LATER,
                    &failure.to_string(),
                ));
            }
        };
        if !retry.wait() {
            let waited = format!(
                "still not ready after {} s: {reason}",
                timing.ready.as_secs()
            );
            return Err(unavailable(call, CniError::TRY_AGAIN_LATER, &waited));
        }
    }
}

/// The daemon's reason for not beginning.
fn not_begun(answer: &Answer) -> String {
    match CniError::parse(&answer.body) {
        Some(error) => error.msg,
        None => format!("it answers {} {}", answer.status, excerpt(&answer.body))
            .trim_end()
            .to_owned(),
    }
}

fn status(call: &Call, timing: &Timing) -> Result<Option<Value>, CniError> {
    let none = Duration::ZERO;
    match send(
        &call.socket,
        api::PATH_CNI,
        none,
        &body(call),
        timing.status,
    ) {
        Ok(answer) => read(call, &answer),
        Err(failure) => Err(unavailable(
            call,
            CniError::PLUGIN_NOT_AVAILABLE,
            &failure.to_string(),
        )),
    }
}

fn del(call: &Call, timing: &Timing) -> Result<Option<Value>, CniError> {
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
            Ok(answer) if answer.not_begun => not_begun(&answer),
            Ok(answer) => return read(call, &answer),
            // It is still at it: a second one beside it would not help.
            Err(failure @ Failure::Late(_)) => {
                return Err(unavailable(
                    call,
                    CniError::TRY_AGAIN_LATER,
                    &failure.to_string(),
                ));
            }
            // DEL may be said twice.
            Err(failure) => failure.to_string(),
        };
        if !retry.wait() {
            return match journal::write(call) {
                Ok(file) => {
                    call.log.error(&format!(
                        "multus daemon: {reason}; DEL is left to it in {}",
                        file.display()
                    ));
                    Ok(None)
                }
                Err(error) => Err(unavailable(
                    call,
                    CniError::TRY_AGAIN_LATER,
                    &format!("{reason}; and DEL cannot be left to it: {error}"),
                )),
            };
        }
    }
}

fn body(call: &Call) -> Vec<u8> {
    to_json(call.variables.0.iter().cloned(), &call.stdin, None)
}

fn read(call: &Call, answer: &Answer) -> Result<Option<Value>, CniError> {
    if !(200..300).contains(&answer.status) {
        // In the words that operators look for in events.
        let failed = format!("CNI request failed with status {}", answer.status);
        return Err(match CniError::parse(&answer.body) {
            Some(error) if call.command.is_about_attachment() => {
                error.context(&format!("{failed}: ERRORED"))
            }
            Some(error) => error,
            None => CniError::new(
                CniError::INTERNAL,
                format!("{failed}: '{}'", excerpt(&answer.body)),
            ),
        });
    }
    if call.command != Command::Add {
        return Ok(None);
    }
    let response = Response::from_json(&answer.body);
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

fn unavailable(call: &Call, code: u32, reason: &str) -> CniError {
    CniError::new(
        code,
        format!("multus daemon at {}: {reason}", call.socket.display()),
    )
}

/// The beginning of a text that is not ours; an event has little room.
fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 2048;
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    match text.char_indices().nth(MOST) {
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

    fn call(dir: &TempDir, command: &str) -> Call {
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

    fn hasty() -> Timing {
        let patience = Patience {
            connect: Duration::from_millis(20),
            answer: Duration::from_millis(20),
        };
        Timing {
            ready: Duration::from_millis(60),
            reachable: Duration::from_millis(60),
            status: patience,
            work: patience,
        }
    }

    fn error(dir: &TempDir, command: &str) -> CniError {
        forward(&call(dir, command), &hasty()).unwrap_err()
    }

    #[test]
    fn a_daemon_that_never_comes_is_waited_for_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        for command in ["ADD", "CHECK", "GC"] {
            let error = error(&dir, command);
            assert_eq!(error.code, CniError::TRY_AGAIN_LATER);
            assert!(
                error.msg.contains("still not ready") && error.msg.contains("No such file"),
                "{error}"
            );
        }
        assert_eq!(error(&dir, "STATUS").code, CniError::PLUGIN_NOT_AVAILABLE);
        assert!(!api::journal::dir(dir.path()).exists());
    }

    #[test]
    fn a_daemon_that_hangs_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        // It takes connections, by way of its queue, and says nothing.
        let _listener = UnixListener::bind(dir.path().join(api::SOCKET_NAME)).unwrap();
        for (command, code) in [("ADD", 11), ("STATUS", 50), ("DEL", 11)] {
            let error = error(&dir, command);
            assert_eq!(error.code, code);
            assert!(error.msg.contains("no answer within"), "{error}");
        }
        assert!(!api::journal::dir(dir.path()).exists());
    }

    #[test]
    fn a_full_queue_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(api::SOCKET_NAME)).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first =
            std::os::unix::net::UnixStream::connect(dir.path().join(api::SOCKET_NAME)).unwrap();
        let refused = error(&dir, "STATUS");
        assert!(refused.msg.contains("cannot connect"), "{refused}");
        drop(first);
        assert_eq!(forward(&call(&dir, "DEL"), &hasty()), Ok(None));
        assert_eq!(
            std::fs::read_dir(api::journal::dir(dir.path()))
                .unwrap()
                .count(),
            1
        );
    }
}
