//! One netlink socket. It stays in the network namespace in which it was opened, so that one entry into a namespace serves all requests
//! there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use zeroize::Zeroizing;

use crate::codec::{ALIGNTO, HEADER, Message, u16_at, u32_at};

const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
/// The kernel's tables changed while it wrote a dump.
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// A dump that changes under the reader this often is returned as it is.
const DUMP_ATTEMPTS: usize = 5;
/// By how much the kernel wants the buffer to be longer than a message.
const SEND_OVERHEAD: usize = 32;
/// What the kernel counts for a refusal besides the refused request, half of it since it doubles the size that it is given.
const REFUSAL: usize = 512;

/// The kernel's messages about links and about routes of both families (`RTMGRP_*` of `linux/rtnetlink.h`).
const LINKS_AND_ROUTES: u32 = 0x1 | 0x40 | 0x400;

/// Opens a socket that becomes readable once a link or a route of the thread's network namespace changes. It does not block.
pub fn changes_of_links() -> io::Result<OwnedFd> {
    let fd = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    net::bind(&fd, &SocketAddrNetlink::new(0, LINKS_AND_ROUTES))?;
    Ok(fd)
}

/// A socket for requests to the kernel. The kernel's refusals are errors with its number.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket in the thread's network namespace; `None` is for links, addresses, routes and rules (`NETLINK_ROUTE`).
    pub fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        // NETLINK_ROUTE is 0, which is not a protocol.
        let fd = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Bounds the wait for a reply. The kernel replies at once, unless the reply was lost.
    pub fn limit_wait(&self, limit: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.fd, Timeout::Recv, Some(limit))?)
    }

    /// Sends a request that has no reply but success or an error.
    pub fn request(&mut self, message: Message) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK, |_, _| ()).map(|_| ())
    }

    /// Sends a request and returns what follows the header of its one reply.
    pub fn get(&mut self, message: Message) -> io::Result<Vec<u8>> {
        let mut reply = None;
        self.exchange(message, NLM_F_ACK, |_, body| {
            reply.get_or_insert_with(|| body.to_vec());
        })?;
        reply.ok_or_else(|| Errno::NOENT.into())
    }

    /// Requests all objects of a kind and returns what follows the header of each.
    pub fn dump(&mut self, message: impl Fn() -> Message) -> io::Result<Vec<Vec<u8>>> {
        self.dump_selected(message, |_| true)
    }

    /// The same, of the objects that are selected; the others take no memory.
    pub fn dump_selected(
        &mut self,
        message: impl Fn() -> Message,
        is_selected: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Vec<Vec<u8>>> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut objects = Vec::new();
            let was_interrupted = self.exchange(message(), NLM_F_DUMP, |_, body| {
                if is_selected(body) {
                    objects.push(body.to_vec());
                }
            })?;
            if !was_interrupted || attempts == DUMP_ATTEMPTS {
                return Ok(objects);
            }
        }
    }

    /// Sends requests that the kernel does all or not at all; the first and the last one enclose the others. Returns the first error.
    ///
    /// Only the last enclosed request demands a reply: a reply to each would overflow the buffer of the socket. The kernel reports
    /// errors without a demand.
    pub fn transaction(&mut self, messages: Vec<Message>) -> io::Result<()> {
        let first = self.sequence + 1;
        let last = first + u32::try_from(messages.len()).expect("transactions are short") - 1;
        self.sequence = last;
        let mut bytes = Vec::new();
        let count = messages.len();
        for (sequence, message) in (first..).zip(messages) {
            let flags = if sequence + 1 == last { NLM_F_ACK } else { 0 };
            bytes.extend(message.finish(flags, sequence));
        }
        self.make_room(bytes.len(), count);
        self.send(&bytes)?;
        let mut outcome = Ok(());
        loop {
            let datagram = self.receive()?;
            let mut rest = datagram.as_slice();
            while let Some((header, body, next)) = split(rest) {
                rest = next;
                if header.kind != NLMSG_ERROR || !(first..=last).contains(&header.sequence) {
                    continue;
                }
                let error = error_in(body);
                let has_failed = error.is_some();
                outcome = outcome.and(error.map_or(Ok(()), Err));
                // An error of the enclosing request concerns the whole, and nothing follows it.
                if header.sequence + 1 == last || (header.sequence == first && has_failed) {
                    return outcome;
                }
            }
        }
    }

    /// Sends a request and hands each reply (kind, body) to `take` until the kernel ends the exchange. Returns whether the replies may
    /// be inconsistent.
    fn exchange(
        &mut self,
        message: Message,
        flags: u16,
        mut take: impl FnMut(u16, &[u8]),
    ) -> io::Result<bool> {
        self.sequence += 1;
        self.send(&message.finish(flags, self.sequence))?;
        let mut was_interrupted = false;
        loop {
            let datagram = self.receive()?;
            let mut rest = datagram.as_slice();
            while let Some((header, body, next)) = split(rest) {
                rest = next;
                if header.sequence != self.sequence {
                    continue;
                }
                was_interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
                match header.kind {
                    // A dump that fails has its error at its end; a positive number there is none.
                    NLMSG_ERROR | NLMSG_DONE => {
                        let error = error_in(body);
                        return error.map_or(Ok(was_interrupted), Err);
                    }
                    kind => take(kind, body),
                }
            }
        }
    }

    /// Enlarges the buffers for a transaction of this many bytes: the kernel takes none that is longer than the buffer for sending, and
    /// the other one has to hold a refusal of each request. A limit that cannot be passed is an error when the transaction meets it.
    fn make_room(&self, bytes: usize, count: usize) {
        let fd = &self.fd;
        let is_short = |size: io::Result<usize>, wanted| size.is_ok_and(|size| size < wanted);
        let size = sockopt::socket_send_buffer_size(fd).map_err(io::Error::from);
        if is_short(size, bytes + SEND_OVERHEAD)
            && sockopt::set_socket_send_buffer_size_force(fd, bytes).is_err()
        {
            let _ = sockopt::set_socket_send_buffer_size(fd, bytes);
        }
        let replies = bytes + REFUSAL * count;
        let size = sockopt::socket_recv_buffer_size(fd).map_err(io::Error::from);
        if is_short(size, 2 * replies)
            && sockopt::set_socket_recv_buffer_size_force(fd, replies).is_err()
        {
            let _ = sockopt::set_socket_recv_buffer_size(fd, replies);
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| net::send(self.fd.as_fd(), bytes, SendFlags::empty()))?;
        Ok(())
    }

    /// Receives one datagram of the kernel, however long it is. Other processes of the network namespace can send some as well.
    fn receive(&self) -> io::Result<Datagram> {
        let peek = RecvFlags::PEEK | RecvFlags::TRUNC;
        let fd = self.fd.as_fd();
        loop {
            let (_, length) = rustix::io::retry_on_intr(|| net::recv(fd, &mut [0u8; 1][..], peek))?;
            let mut datagram = Datagram::new(vec![0; length]);
            let (read, _, sender) = rustix::io::retry_on_intr(|| {
                net::recvfrom(fd, &mut datagram[..], RecvFlags::empty())
            })?;
            let sender = sender.and_then(|address| SocketAddrNetlink::try_from(address).ok());
            if sender.is_some_and(|sender| sender.pid() == 0) {
                datagram.truncate(read);
                return Ok(datagram);
            }
        }
    }
}

/// A datagram of the kernel. It is overwritten when it is dropped, since one about an interface of WireGuard has its private key.
type Datagram = Zeroizing<Vec<u8>>;

pub(crate) struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

/// Returns the error in the body of a message that ends an exchange: a negative number, or none.
pub(crate) fn error_in(body: &[u8]) -> Option<io::Error> {
    let number = u32_at(body, 0).map_or(0, u32::cast_signed);
    (number < 0).then(|| io::Error::from_raw_os_error(number.wrapping_neg()))
}

/// Splits the first message off a datagram: its header, its body and the rest.
pub(crate) fn split(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let header = Header {
        kind: u16_at(bytes, 4)?,
        flags: u16_at(bytes, 6)?,
        sequence: u32_at(bytes, 8)?,
    };
    let body = bytes.get(HEADER..length)?;
    let rest = bytes
        .get(length.next_multiple_of(ALIGNTO)..)
        .unwrap_or_default();
    Some((header, body, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends requests of one kind, each with `length` bytes behind its header, between two that do nothing.
    fn transact(kind: u16, length: usize, count: usize) -> io::Result<()> {
        const NLMSG_NOOP: u16 = 1;
        let noop = || Message::new(NLMSG_NOOP, 0, &[]);
        let requests = (0..count).map(|_| Message::new(kind, 0, &vec![0; length]));
        let messages = std::iter::once(noop()).chain(requests);
        let mut socket = Socket::open(None).unwrap();
        socket.limit_wait(Duration::from_secs(10)).unwrap();
        socket.transaction(messages.chain([noop(), noop()]).collect())
    }

    /// The lengths are above the kernel's usual 212992 bytes, and below what it grants without privileges.
    #[test]
    fn transactions_may_be_longer_than_the_usual_buffers() {
        const NLMSG_NOOP: u16 = 1;
        const NO_KIND: u16 = 0x7ff;
        transact(NLMSG_NOOP, 30_000, 12).unwrap();
        let refusals = transact(NO_KIND, 20, 400).unwrap_err();
        let unsupported = Errno::OPNOTSUPP.raw_os_error();
        assert_eq!(refusals.raw_os_error(), Some(unsupported), "{refusals}");
    }

    #[test]
    fn datagrams_of_processes_are_passed_over() {
        // The protocol in which processes may send to each other without a privilege.
        let open = || Socket::open(Some(net::netlink::USERSOCK)).unwrap();
        let (socket, other) = (open(), open());
        let address = SocketAddrNetlink::try_from(net::getsockname(&socket.fd).unwrap()).unwrap();
        let bytes = Message::new(NLMSG_DONE, 0, &[]).finish(0, 1);
        net::sendto(&other.fd, &bytes, SendFlags::empty(), &address).unwrap();
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (arrived, _) = net::recv(&socket.fd, &mut [0; 64][..], flags).unwrap();
        assert_eq!(arrived, bytes.len());
        socket.limit_wait(Duration::from_millis(1)).unwrap();
        let error = socket.receive().err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    }

    #[test]
    fn split_separates_messages() {
        let mut datagram = Message::new(20, 0, &[1, 2, 3, 4]).finish(0, 9);
        datagram.extend(Message::new(3, 0, &[0; 4]).finish(0, 9));
        let (header, body, rest) = split(&datagram).unwrap();
        assert_eq!((header.kind, header.sequence), (20, 9));
        assert_eq!(body, [1, 2, 3, 4]);
        let (header, _, rest) = split(rest).unwrap();
        assert_eq!(header.kind, 3);
        assert!(rest.is_empty());
        assert!(split(&datagram[..18]).is_none());
    }

    #[test]
    fn messages_that_are_cut_short_are_refused() {
        let whole = Message::new(34, 0, &[1, 2, 3, 4]).finish(0, 7);
        let (header, body, rest) = split(&whole).unwrap();
        assert_eq!((header.kind, header.sequence), (34, 7));
        assert_eq!((body, rest), (&[1, 2, 3, 4][..], &[][..]));
        for end in 0..whole.len() {
            assert!(split(&whole[..end]).is_none(), "{end}");
        }
    }
}
