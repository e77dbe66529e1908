//! `dhcp daemon`: the process that holds the leases of a node without Multus, with the flags of the reference's.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dhcp::service::{Event, Host, Options, Service};
use dhcp::store::Store;
use dhcp::wire::REFERENCE_SOCKET;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::kernel::netns::{Namespace, OpenError};

/// The descriptor of the first socket that systemd passes.
const FIRST_SOCKET: RawFd = 3;

const USAGE: &str = "\
Holds the DHCP leases of a node for the plugin dhcp, and renews them.

Usage: dhcp daemon [FLAGS]

Flags:
  -socketpath PATH         the socket for the plugin (/run/cni/dhcp.sock), unless systemd passes one; leases are kept in PATH.leases
  -hostprefix DIR          the directory below which the socket and network namespaces are
  -pidfile PATH            writes the process id into this file
  -broadcast               has servers broadcast their replies, which ipvlan needs
  -resendmax DURATION      the longest pause between two messages (62s)
  -resendtimeout DURATION  gives up after this time without a lease (208s)
  -timeout DURATION        accepted for the reference's command lines, without effect
";

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flags {
    socket: PathBuf,
    pid_file: Option<PathBuf>,
    host_prefix: String,
    options: Options,
}

/// This process as the host of the service.
struct Process {
    /// The directory below which the paths of network namespaces are.
    host_prefix: String,
}

impl Host for Process {
    fn open_namespace(&self, path: &str) -> io::Result<OwnedFd> {
        let namespace = Namespace::open(format!("{}{path}", self.host_prefix));
        namespace.map(OwnedFd::from).map_err(|error| {
            let kind = match error {
                OpenError::NotFound(_) => io::ErrorKind::NotFound,
                OpenError::Other(_) => io::ErrorKind::Other,
            };
            io::Error::new(kind, error.to_string())
        })
    }

    fn record(&self, client: &str, event: &Event<'_>) {
        log(&format!("{client}: {event}"));
    }

    fn set_held(&self, _: usize) {}
}

/// Runs until it is killed.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = args.map(|arg| arg.to_string_lossy().into_owned());
    let flags = match parse(args) {
        Ok(Some(flags)) => flags,
        Ok(None) => {
            log(USAGE.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            log(&format!("{error}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    if let Err(error) = serve(flags) {
        log(&error);
    }
    ExitCode::FAILURE
}

fn serve(flags: Flags) -> Result<(), String> {
    if let Some(path) = &flags.pid_file {
        fs::write(path, std::process::id().to_string())
            .map_err(|error| format!("Error writing pidfile {}: {error}", path.display()))?;
    }
    let listener =
        listener(&flags.socket).map_err(|error| format!("Error getting listener: {error}"))?;
    let store = Store::from_socket(&flags.socket);
    let host = Process {
        host_prefix: flags.host_prefix,
    };
    // It runs until it is killed.
    let (stop, _writer) = io::pipe().map_err(|error| format!("cannot open a pipe: {error}"))?;
    Service::resume(flags.options, store, host)
        .map_err(|error| format!("cannot read the leases: {error}"))?
        .run(&listener, stop)
        .map_err(|error| format!("cannot wait for requests: {error}"))
}

/// Returns the socket that systemd has opened for this process, or opens one.
fn listener(path: &Path) -> Result<UnixListener, String> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let passed = passed_sockets(&variable("LISTEN_PID"), &variable("LISTEN_FDS"));
    match passed {
        0 => listen(path).map_err(|error| error.to_string()),
        1 => inherited().map_err(|error| format!("cannot use systemd's socket: {error}")),
        more => Err(format!(
            "Too many ({more}) FDs passed through socket activation"
        )),
    }
}

/// Returns how many sockets systemd has opened for this process: the variables may be an ancestor's.
fn passed_sockets(pid: &str, count: &str) -> u32 {
    let is_own = pid == std::process::id().to_string();
    if is_own {
        count.parse().unwrap_or_default()
    } else {
        0
    }
}

/// Returns a duplicate of the first socket that systemd passes.
fn inherited() -> io::Result<UnixListener> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket = pidfd_getfd(own, FIRST_SOCKET, PidfdGetfdFlags::empty())?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Listens on the socket. A socket behind which no process listens was left by a daemon that was killed.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
    }
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    // A caller that has gone again must not hold up the leases.
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Parses flags, which begin with one dash or two and have their value behind `=` or in the next argument. `None` is a request for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Flags>, String> {
    let mut flags = Flags {
        socket: REFERENCE_SOCKET.into(),
        ..Flags::default()
    };
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            return Err(format!("unexpected argument {arg:?}"));
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        match name {
            "h" | "help" => return Ok(None),
            "broadcast" => {
                flags.options.broadcast = !matches!(value.as_deref(), Some("false" | "0" | "f"));
                continue;
            }
            _ => {}
        }
        let value = value.or_else(|| args.next());
        let value = value.ok_or_else(|| format!("flag needs an argument: -{name}"))?;
        let time = || {
            duration(&value).ok_or_else(|| {
                format!("invalid value {value:?} for flag -{name}: write it as 90s or 1m30s")
            })
        };
        match name {
            "socketpath" => flags.socket = value.into(),
            "hostprefix" => flags.host_prefix = value,
            "pidfile" if value.starts_with('/') => flags.pid_file = Some(value.into()),
            "pidfile" => {
                return Err(format!(
                    "Error writing pidfile {value:?}: path not absolute"
                ));
            }
            "resendmax" => flags.options.retry.longest = time()?,
            "resendtimeout" => flags.options.retry.limit = time()?,
            "timeout" => {
                time()?;
            }
            _ => return Err(format!("flag provided but not defined: -{name}")),
        }
    }
    if !flags.host_prefix.is_empty() {
        let socket = flags.socket.display();
        flags.socket = format!("{}{socket}", flags.host_prefix).into();
    }
    Ok(Some(flags))
}

/// Reads a time as Go writes it: numbers with units.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits =
            rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let end = unit
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(unit.len());
        let seconds = match &unit[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = &unit[end..];
    }
    (!text.is_empty()).then_some(total)
}

/// Writes a line to stderr, which is all that the process has.
fn log(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Option<Flags>, String> {
        parse(args.iter().map(|arg| (*arg).to_owned()))
    }

    #[test]
    fn flags_are_those_of_the_reference() {
        let flags = parsed(&["-socketpath", "/run/x.sock"]).unwrap().unwrap();
        assert_eq!(flags.socket, Path::new("/run/x.sock"));
        let flags = parsed(&[
            "--hostprefix=/host",
            "-broadcast",
            "-pidfile",
            "/run/pid",
            "-resendmax=30s",
            "-resendtimeout",
            "1m30s",
            "-timeout=500ms",
        ]);
        let flags = flags.unwrap().unwrap();
        assert_eq!(flags.socket, Path::new("/host/run/cni/dhcp.sock"));
        assert_eq!(flags.pid_file.as_deref(), Some(Path::new("/run/pid")));
        assert!(flags.options.broadcast);
        assert_eq!(flags.options.retry.longest, Duration::from_secs(30));
        assert_eq!(flags.options.retry.limit, Duration::from_secs(90));
        assert!(
            !parsed(&["-broadcast=false"])
                .unwrap()
                .unwrap()
                .options
                .broadcast
        );
        assert_eq!(parsed(&["-h"]), Ok(None));
    }

    #[test]
    fn other_flags_are_refused() {
        for (args, expected) in [
            (&["-x=1"][..], "flag provided but not defined: -x"),
            (&["-socketpath"], "flag needs an argument: -socketpath"),
            (&["run"], "unexpected argument \"run\""),
            (
                &["-pidfile", "a"],
                "Error writing pidfile \"a\": path not absolute",
            ),
            (
                &["-resendmax", "5"],
                "invalid value \"5\" for flag -resendmax: write it as 90s or 1m30s",
            ),
        ] {
            assert_eq!(parsed(args).unwrap_err(), expected);
        }
    }

    #[test]
    fn times_have_units() {
        for (text, expected) in [
            ("10s", Some(10_000)),
            ("1h2m3.5s", Some(3_723_500)),
            ("250ms", Some(250)),
            ("", None),
            ("s", None),
            ("5", None),
            ("5d", None),
            ("1..5s", None),
        ] {
            assert_eq!(
                duration(text),
                expected.map(Duration::from_millis),
                "{text}"
            );
        }
    }

    #[test]
    fn sockets_of_systemd_are_for_one_process() {
        let own = std::process::id().to_string();
        for (pid, count, expected) in [
            (own.as_str(), "1", 1),
            (&own, "2", 2),
            (&own, "", 0),
            ("1", "1", 0),
            ("", "1", 0),
        ] {
            assert_eq!(passed_sockets(pid, count), expected, "{pid} {count}");
        }
    }

    #[test]
    fn socket_of_a_killed_daemon_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/dhcp.sock");
        drop(listen(&path).unwrap());
        assert!(path.exists());
        let listener = listen(&path).unwrap();
        let error = listen(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
