//! The filter of a packet socket (classic BPF, `linux/filter.h`): datagrams to the port of clients. Without it the kernel copies every
//! IPv4 frame of a pod to the one thread that holds all leases, and a reply is lost among them.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::frame::CLIENT_PORT;

const SOL_SOCKET: c_int = 1;
const SO_ATTACH_FILTER: c_int = 26;

/// `struct sock_filter`.
#[repr(C)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

const fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        value,
    }
}

const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_AT_X: u16 = 0x48;
const LOAD_HEADER_LENGTH_TO_X: u16 = 0xb1;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Places count from the Ethernet header, whose type the socket's protocol has compared already.
static PROGRAM: [Instruction; 9] = [
    // The protocol is UDP.
    instruction(LOAD_BYTE, 0, 0, 23),
    instruction(JUMP_IF_EQUAL, 0, 6, 17),
    // It is not a fragment.
    instruction(LOAD_HALF, 0, 0, 20),
    instruction(JUMP_IF_BITS, 4, 0, 0x3fff),
    // The port of the destination.
    instruction(LOAD_HEADER_LENGTH_TO_X, 0, 0, 14),
    instruction(LOAD_HALF_AT_X, 0, 0, 16),
    instruction(JUMP_IF_EQUAL, 0, 1, CLIENT_PORT as u32),
    instruction(RETURN, 0, 0, u32::MAX),
    instruction(RETURN, 0, 0, 0),
];

#[expect(
    unsafe_code,
    reason = "rustix has no function for this option; the C library that the standard library links has"
)]
unsafe extern "C" {
    fn setsockopt(
        socket: c_int,
        level: c_int,
        option: c_int,
        value: *const c_void,
        length: u32,
    ) -> c_int;
}

/// Lets a socket receive nothing but datagrams to clients.
pub(crate) fn attach(socket: impl AsFd) -> io::Result<()> {
    let program = Program {
        length: u16::try_from(PROGRAM.len()).expect("the program is short"),
        instructions: PROGRAM.as_ptr(),
    };
    let length = u32::try_from(size_of::<Program>()).expect("it has two members");
    #[expect(unsafe_code, reason = "it is a foreign function")]
    // SAFETY: the descriptor is open, and the kernel reads one `struct sock_fprog`, which lives until the call returns.
    let outcome = unsafe {
        setsockopt(
            socket.as_fd().as_raw_fd(),
            SOL_SOCKET,
            SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::frame::{ADDRESSES, encode};

    #[test]
    fn datagrams_to_clients_pass_and_nothing_else() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        attach(&receiver).unwrap();
        let to_server = encode(&ADDRESSES, b"message").unwrap();
        let mut reply = to_server.clone();
        reply[37] = 68;
        let with = |at: usize, byte: u8| {
            let mut frame = reply.clone();
            frame[at] = byte;
            frame
        };
        // A header with an option of four bytes, before which the port stood.
        let mut long_header = with(14, 0x46);
        long_header.splice(34..34, [1, 1, 1, 1]);
        for (what, frame, expected) in [
            ("a reply", reply.clone(), true),
            ("a reply behind options", long_header, true),
            ("do not fragment", with(20, 0x40), true),
            ("a message to a server", to_server, false),
            ("TCP", with(23, 6), false),
            ("the first fragment", with(20, 0x20), false),
            ("the last fragment", with(21, 7), false),
            ("half a frame", reply[..30].to_vec(), false),
        ] {
            sender.send(&frame).unwrap();
            let mut buffer = [0; 512];
            let length = receiver.recv(&mut buffer).ok();
            assert_eq!(length, expected.then_some(frame.len()), "{what}");
        }
    }
}
