//! The protocol between the daemon and its spawner. Both are the same program, so it has no versions.
//!
//! The control socket preserves message boundaries (`SOCK_SEQPACKET`): the context to enter, new lanes, kills. A lane is a stream; it carries
//! one request at a time, with the plugin's standard streams, and its replies.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt as _},
    },
    path::PathBuf,
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// The maximum size of a message on the control socket: a path and a little more.
const CONTROL: usize = 8 << 10;
/// The most file descriptors of one message: two namespaces, and a `cgroup.procs` per hierarchy.
const DESCRIPTORS: usize = 32;
/// The maximum size of a request: more than any kernel accepts for a program's arguments and environment.
const REQUEST: usize = 8 << 20;

/// A message of the daemon on the control socket.
#[derive(Debug)]
pub(super) enum Control {
    /// The first message: where plugins run. The spawner replies with a report.
    Enter(Enter),
    /// Opens a new lane with this number.
    Open(u64, OwnedFd),
    /// Kills the process group of the plugin on the lane with this number.
    Kill(u64),
}

/// The context to enter: where plugins run.
#[derive(Debug, Default)]
pub(super) struct Enter {
    pub(super) chroot: Option<PathBuf>,
    pub(super) mount_namespace: Option<OwnedFd>,
    /// The cgroup namespace in which the files below were opened.
    pub(super) cgroup_namespace: Option<OwnedFd>,
    pub(super) cgroup_procs: Vec<OwnedFd>,
}

const ENTER: u8 = 0;
const OPEN: u8 = 1;
const KILL: u8 = 2;

/// Sends [`Control::Enter`] with borrowed descriptors.
pub(super) fn send_enter(
    control: impl AsFd,
    chroot: Option<&OsStr>,
    mount_namespace: Option<BorrowedFd<'_>>,
    cgroup_namespace: Option<BorrowedFd<'_>>,
    cgroup_procs: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let namespaces = [mount_namespace, cgroup_namespace];
    let mut message = vec![ENTER];
    message.extend(namespaces.map(|one| u8::from(one.is_some())));
    message.extend_from_slice(chroot.map_or(b"", OsStrExt::as_bytes));
    let mut descriptors: Vec<_> = namespaces.into_iter().flatten().collect();
    descriptors.extend(cgroup_procs.iter().take(DESCRIPTORS - namespaces.len()));
    send_all(control.as_fd(), &message, &descriptors)
}

pub(super) fn send_open(control: impl AsFd, number: u64, lane: BorrowedFd<'_>) -> io::Result<()> {
    send_all(control.as_fd(), &numbered(OPEN, number), &[lane])
}

pub(super) fn send_kill(control: impl AsFd, number: u64) -> io::Result<()> {
    send_all(control.as_fd(), &numbered(KILL, number), &[])
}

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(number.to_le_bytes());
    message
}

/// Waits for the next message; `None` when the daemon has closed its end.
pub(super) fn receive_control(control: impl AsFd) -> io::Result<Option<Control>> {
    let mut buffer = [0; CONTROL];
    let (length, mut descriptors) = receive_some(control.as_fd(), &mut buffer)?;
    let Some((kind, rest)) = buffer[..length].split_first() else {
        return Ok(None);
    };
    let number = || {
        rest.try_into()
            .map(u64::from_le_bytes)
            .map_err(|_| malformed())
    };
    Ok(Some(match *kind {
        ENTER => {
            let [has_mount, has_cgroup, chroot @ ..] = rest else {
                return Err(malformed());
            };
            let chroot = (!chroot.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(chroot)));
            let mut descriptors = descriptors.into_iter();
            let mut namespace = |is_there: u8| {
                (is_there != 0)
                    .then(|| descriptors.next().ok_or_else(malformed))
                    .transpose()
            };
            Control::Enter(Enter {
                chroot,
                mount_namespace: namespace(*has_mount)?,
                cgroup_namespace: namespace(*has_cgroup)?,
                cgroup_procs: descriptors.collect(),
            })
        }
        OPEN => Control::Open(number()?, descriptors.pop().ok_or_else(malformed)?),
        KILL => Control::Kill(number()?),
        _ => return Err(malformed()),
    }))
}

/// The spawner's reply to [`Control::Enter`]: a warning about the place where plugins run, if any, or the reason why it cannot start any.
pub(super) type Report = Result<Option<String>, String>;

const ENTERED: u8 = 0;
const FAILED: u8 = 1;

/// Replies to [`Control::Enter`].
pub(super) fn send_report(control: impl AsFd, report: &Report) -> io::Result<()> {
    let (kind, text) = match report {
        Ok(warning) => (ENTERED, warning.as_deref().unwrap_or_default()),
        Err(failure) => (FAILED, failure.as_str()),
    };
    send_all(control.as_fd(), &[&[kind], text.as_bytes()].concat(), &[])
}

/// Waits for the reply to [`Control::Enter`].
pub(super) fn receive_report(control: impl AsFd) -> io::Result<Report> {
    let mut buffer = [0; CONTROL];
    let (length, _) = receive_some(control.as_fd(), &mut buffer)?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    match buffer[..length] {
        [] => Err(io::ErrorKind::UnexpectedEof.into()),
        [ENTERED] => Ok(Ok(None)),
        [ENTERED, ref warning @ ..] => Ok(Ok(Some(text(warning)))),
        [_, ref failure @ ..] => Ok(Err(text(failure))),
    }
}

/// A program to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// True to get a reply at the start of the program as well as at its end.
    pub(super) reports_start: bool,
    /// The program's path in the file tree where plugins run.
    pub(super) path: OsString,
    pub(super) arguments: Vec<OsString>,
    /// The complete environment.
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Request {
    /// Encodes length, flag and number of arguments, then strings, each with its NUL.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 4];
        bytes.push(u8::from(self.reports_start));
        let arguments = u32::try_from(self.arguments.len()).map_err(io::Error::other)?;
        bytes.extend(arguments.to_le_bytes());
        let pairs = self.environment.iter();
        let strings = [&self.path]
            .into_iter()
            .chain(&self.arguments)
            .chain(pairs.flat_map(|(name, value)| [name, value]));
        for string in strings {
            if string.as_bytes().contains(&0) {
                let text = "an argument or variable contains a NUL byte";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            bytes.extend_from_slice(string.as_bytes());
            bytes.push(0);
        }
        if bytes.len() > REQUEST {
            return Err(Errno::TOOBIG.into());
        }
        let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> io::Result<Self> {
        let (flag, rest) = bytes.split_first().ok_or_else(malformed)?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
        let strings = rest.strip_suffix(&[0]).ok_or_else(malformed)?;
        let mut strings = strings
            .split(|byte| *byte == 0)
            .map(|string| OsString::from_vec(string.to_vec()));
        let path = strings.next().ok_or_else(malformed)?;
        let count = usize::try_from(u32::from_le_bytes(*count)).map_err(io::Error::other)?;
        let arguments: Vec<_> = strings.by_ref().take(count).collect();
        let mut environment = Vec::new();
        while let Some(name) = strings.next() {
            environment.push((name, strings.next().ok_or_else(malformed)?));
        }
        Ok(Self {
            reports_start: *flag != 0,
            path,
            arguments,
            environment,
        })
    }
}

/// Sends a request with the plugin's stdin, stdout and stderr.
pub(super) fn send_request(
    lane: impl AsFd,
    request: &Request,
    streams: [BorrowedFd<'_>; 3],
) -> io::Result<()> {
    send_all(lane.as_fd(), &request.encode()?, &streams)
}

/// Waits for the next request; `None` when the daemon has closed the lane.
pub(super) fn receive_request(lane: impl AsFd) -> io::Result<Option<(Request, [OwnedFd; 3])>> {
    let lane = lane.as_fd();
    let mut buffer = vec![0; 4 << 10];
    let (mut length, descriptors) = receive_some(lane, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let streams = descriptors.try_into().map_err(|_| malformed())?;
    while length < 4 {
        length += receive_more(lane, &mut buffer[length..])?;
    }
    let head = buffer.first_chunk::<4>().ok_or_else(malformed)?;
    let wanted = usize::try_from(u32::from_le_bytes(*head)).map_err(io::Error::other)?;
    if wanted > REQUEST {
        return Err(malformed());
    }
    buffer.resize(buffer.len().max(wanted + 4), 0);
    while length < wanted + 4 {
        length += receive_more(lane, &mut buffer[length..wanted + 4])?;
    }
    let request = Request::decode(&buffer[4..wanted + 4])?;
    Ok(Some((request, streams)))
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// The program runs with this pid; only sent if the request has `reports_start`.
    Started(i32),
    /// The program has ended with this status of wait(2).
    Ended(i32),
    /// The program could not be started; the number of errno(3).
    Failed(i32),
}

const REPLY: usize = 8;

pub(super) fn send_reply(lane: impl AsFd, reply: Reply) -> io::Result<()> {
    let (kind, value) = match reply {
        Reply::Started(pid) => (0_u32, pid),
        Reply::Ended(status) => (1, status),
        Reply::Failed(errno) => (2, errno),
    };
    let mut message = [0; REPLY];
    message[..4].copy_from_slice(&kind.to_le_bytes());
    message[4..].copy_from_slice(&value.to_le_bytes());
    send_all(lane.as_fd(), &message, &[])
}

/// Waits for the next reply; returns `None` when the spawner has ended.
pub(super) fn receive_reply(lane: impl AsFd) -> io::Result<Option<Reply>> {
    let lane = lane.as_fd();
    let mut message = [0; REPLY];
    let mut length = 0;
    while length < REPLY {
        match receive_more(lane, &mut message[length..]) {
            Ok(more) => length += more,
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let (kind, value) = message.split_at(4);
    let number = |bytes: &[u8]| {
        bytes
            .try_into()
            .map(i32::from_le_bytes)
            .map_err(|_| malformed())
    };
    let value = number(value)?;
    Ok(Some(match number(kind)? {
        0 => Reply::Started(value),
        1 => Reply::Ended(value),
        2 => Reply::Failed(value),
        _ => return Err(malformed()),
    }))
}

/// Returns whether an error of a socket means that the other end is closed.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotConnected
    )
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a message between daemon and spawner is malformed",
    )
}

/// Sends all bytes; the descriptors go with the first byte.
fn send_all(
    socket: BorrowedFd<'_>,
    mut bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG.into());
    }
    while !bytes.is_empty() {
        match sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        ) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                ancillary.clear();
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives once, with the descriptors of the message.
fn receive_some(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let slices = &mut [IoSliceMut::new(buffer)];
        match recvmsg(socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The kernel dropped descriptors: this process has reached its limit of open files.
        return Err(Errno::MFILE.into());
    }
    Ok((received.bytes, descriptors))
}

/// Receives at least one byte.
fn receive_more(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    match receive_some(socket, buffer)? {
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (length, _) => Ok(length),
    }
}
