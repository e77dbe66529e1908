//! One ICMP echo to another node (RFC 792, RFC 4443).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send,
    socket_with,
    sockopt::{Timeout, set_socket_timeout},
};

/// The deadline of an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the time until an address answers.
pub(crate) fn ping(address: IpAddr) -> io::Result<Duration> {
    let (family, protocol) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = socket_with(
        family,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(protocol),
    )?;
    connect(&socket, &SocketAddr::new(address, 0))?;
    let start = Instant::now();
    // Threads ask several nodes at once; the answer comes from one of them alone.
    let id = std::process::id().to_be_bytes();
    let request = request(address.is_ipv4(), [id[2], id[3]]);
    send(&socket, &request, SendFlags::empty())?;
    loop {
        let left = LIMIT.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        set_socket_timeout(&socket, Timeout::Recv, Some(left))?;
        let mut buffer = [0; 256];
        match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) if is_answer(address.is_ipv4(), &buffer[..length], request) => {
                return Ok(start.elapsed());
            }
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns an echo request with a checksum, which the kernel makes itself with IPv6.
fn request(is_ipv4: bool, id: [u8; 2]) -> [u8; 8] {
    let kind = if is_ipv4 { 8 } else { 128 };
    let mut request = [kind, 0, 0, 0, id[0], id[1], 0, 1];
    let words = request.chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = u16::try_from(!folded & 0xffff).expect("16 bits");
    request[2..4].copy_from_slice(&checksum.to_be_bytes());
    request
}

/// Returns whether a packet answers the request. With IPv4 it has its header.
fn is_answer(is_ipv4: bool, packet: &[u8], request: [u8; 8]) -> bool {
    let (kind, header) = if is_ipv4 {
        (
            0,
            usize::from(packet.first().map_or(0, |first| first & 15)) * 4,
        )
    } else {
        (129, 0)
    };
    let message = packet.get(header..header + 8);
    message.is_some_and(|message| message[0] == kind && message[4..8] == request[4..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_repeats_what_was_sent() {
        let sent = request(true, [7, 9]);
        assert_eq!(sent, [8, 0, 0xf0, 0xf5, 7, 9, 0, 1]);
        let answer = |header: &[u8], kind, id| [header, &[kind, 0, 1, 2, 7, id, 0, 1]].concat();
        let ip = [&[0x46][..], &[0; 23]].concat();
        assert!(is_answer(true, &answer(&ip, 0, 9), sent));
        assert!(!is_answer(true, &answer(&ip, 0, 8), sent));
        // A host that pings itself sees its request, too.
        assert!(!is_answer(true, &answer(&ip, 8, 9), sent));
        assert!(!is_answer(true, &ip, sent));
        assert!(is_answer(
            false,
            &answer(&[], 129, 9),
            request(false, [7, 9])
        ));
    }
}
