//! A packet socket on one interface: it hears and sends frames before the interface has an address.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::client::Outgoing;
use crate::frame::{self, Addresses};
use crate::message::Message;
use crate::{Mac, filter};

/// `ETH_P_IP`.
const ETHERTYPE_IPV4: u16 = 0x0800;
/// Frames are shorter; jumbo frames that are cut off are not DHCP messages.
const FRAME_LENGTH: usize = 2048;
/// How many frames are read at a time: whoever sends them without a pause must not keep the caller from its other work.
const FRAMES: usize = 32;

/// A socket for the messages to clients on one interface. It stays in the network namespace in which it was opened, and keeps that alive.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    mac: Mac,
}

impl Socket {
    /// Opens a socket on the interface of this index and hardware address, in the network namespace of the calling thread. It does not
    /// block: the caller waits for its descriptor.
    pub fn open(interface: u32, mac: Mac) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing arrives before the socket is bound to the interface.
        let fd = net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            flags,
            None::<Protocol>,
        )?;
        filter::attach(&fd)?;
        net::bind(&fd, &PacketAddress::new(interface))?;
        Ok(Self { fd, mac })
    }

    pub fn send(&self, outgoing: &Outgoing) -> io::Result<()> {
        let addresses = Addresses {
            source_mac: self.mac,
            destination_mac: outgoing.destination_mac,
            source: outgoing.source,
            destination: outgoing.destination,
        };
        let frame = frame::encode(&addresses, &outgoing.message.encode())
            .ok_or_else(|| io::Error::from(rustix::io::Errno::MSGSIZE))?;
        rustix::io::retry_on_intr(|| net::send(&self.fd, &frame, SendFlags::empty()))?;
        Ok(())
    }

    /// Returns the next message of a transaction and the hardware address from which it came, or `None` when none is there. Other frames
    /// are passed over; when there are many, some are left for the next call.
    pub fn receive(&self, transaction: u32) -> io::Result<Option<(Message, Mac)>> {
        let mut buffer = [0; FRAME_LENGTH];
        for _ in 0..FRAMES {
            let length = match net::recv(&self.fd, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let message = frame::decode(&buffer[..length]).and_then(|(from, bytes)| {
                let is_wanted = Message::transaction_of(bytes) == Some(transaction);
                let message = is_wanted.then(|| Message::decode(bytes)).flatten()?;
                Some((message, from))
            });
            if message.is_some() {
                return Ok(message);
            }
        }
        Ok(None)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `struct sockaddr_ll` (`linux/if_packet.h`).
#[repr(C)]
struct PacketAddress {
    family: u16,
    protocol: u16,
    interface: u32,
    hardware_type: u16,
    packet_type: u8,
    length: u8,
    address: [u8; 8],
}

impl PacketAddress {
    /// The address that binds a socket to the IPv4 frames of an interface.
    fn new(interface: u32) -> Self {
        Self {
            family: AddressFamily::PACKET.as_raw(),
            protocol: ETHERTYPE_IPV4.to_be(),
            interface,
            hardware_type: 0,
            packet_type: 0,
            length: 0,
            address: [0; 8],
        }
    }
}

// SAFETY: the pointer is to a `struct sockaddr_ll` of this length, which lives while `use_address` runs.
#[expect(
    unsafe_code,
    reason = "rustix has no type for the address of a packet socket"
)]
unsafe impl SocketAddrArg for PacketAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        use_address: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let length = u32::try_from(size_of::<Self>()).expect("the address has 20 bytes");
        use_address(std::ptr::from_ref(self).cast(), length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::frame::ADDRESSES;

    #[test]
    fn flood_of_frames_is_read_in_parts() {
        let (fd, sender) = net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let send = |transaction| {
            let message = Message::new(Kind::Offer, transaction, [2, 0, 0, 0, 0, 9]);
            let mut frame = frame::encode(&ADDRESSES, &message.encode()).unwrap();
            // To a client.
            frame[36..38].copy_from_slice(&68u16.to_be_bytes());
            net::send(&sender, &frame, SendFlags::empty()).unwrap();
        };
        let mac = ADDRESSES.source_mac;
        let socket = Socket { fd, mac };
        let transaction = || {
            let received = socket.receive(7).unwrap();
            received.map(|(message, from)| (message.transaction, from))
        };
        (0..FRAMES).for_each(|_| send(8));
        send(7);
        assert_eq!(transaction(), None);
        assert_eq!(transaction(), Some((7, mac)));
        assert_eq!(transaction(), None);
    }
}
