//! Fuzz targets of what a DHCP server on the network, or a neighbour in its name, sends, and of the stored leases.
//! `docs/contributing/testing.md` says how they run.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use std::time::Duration;

use crate::client::{Action, Client, Config, Retry};
use crate::frame::{self, ADDRESSES};
use crate::message::Message;
use crate::store::Stored;
use crate::wire::Grant;
use crate::{Lease, Mac};

const MAC: Mac = ADDRESSES.source_mac;
const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// A frame from the network.
pub fn frames(input: &[u8]) -> bool {
    // A message that is put into a frame comes out of it, once the frame is one to a client.
    if let Some(mut frame) = frame::encode(&ADDRESSES, input) {
        assert_eq!(frame::decode(&frame), None, "a frame to a server");
        frame[36..38].copy_from_slice(&frame::CLIENT_PORT.to_be_bytes());
        assert_eq!(frame::decode(&frame), Some((MAC, input)));
    }
    frame::decode(input).is_some()
}

/// A message, and the lease that it grants.
pub fn messages(input: &[u8]) -> bool {
    let Some(message) = Message::decode(input) else {
        return false;
    };
    let again = Message::decode(&message.encode());
    assert_eq!(again.as_ref(), Some(&message));
    let began = Duration::from_secs(1000);
    check_lease(&Lease {
        ack: message,
        began,
        server_mac: SERVER_MAC,
    });
    true
}

fn check_lease(lease: &Lease) {
    match (lease.renews(), lease.rebinds(), lease.expires()) {
        (None, None, None) => {}
        (Some(renews), Some(rebinds), Some(expires)) => {
            assert!(lease.began <= renews && renews <= rebinds && rebinds <= expires);
        }
        times => panic!("a lease that expires in part: {times:?}"),
    }
    for route in lease.routes() {
        assert!(route.length <= 32);
        let host_bits = u32::MAX.checked_shr(route.length.into()).unwrap_or(0);
        assert_eq!(route.destination.to_bits() & host_bits, 0);
    }
    if let Ok(grant) = Grant::of(lease) {
        assert_eq!(grant.routes.len(), lease.routes().len());
    }
}

/// The life of a client. A step is a byte for its kind, one for the time that passes, and for a message that arrives its length in two
/// bytes and the message, as from a server that answers this client.
pub fn lives(input: &[u8]) -> bool {
    let config = Config {
        mac: MAC,
        identifier: "a".to_owned(),
        request: vec![1, 3, 121],
        provide: vec![(12, b"host".to_vec())],
        broadcast: true,
        requested_address: None,
        retry: Retry::default(),
        seed: 1,
    };
    let mut now = Duration::from_secs(1000);
    let (mut client, mut actions) = Client::start(config, now);
    let (mut transaction, mut was_bound) = (0, false);
    let mut rest = input;
    loop {
        for action in actions.drain(..) {
            match action {
                Action::Send(outgoing) => {
                    transaction = outgoing.message.transaction;
                    let sent = Message::decode(&outgoing.message.encode());
                    assert_eq!(sent, Some(outgoing.message));
                }
                Action::Keep(lease) => {
                    was_bound = true;
                    assert!(!lease.address().is_unspecified());
                    assert_eq!(client.lease(), Some(&*lease));
                    check_lease(&lease);
                }
                Action::Lost(_) => {
                    assert!(client.lease().is_none() && client.lost().is_some());
                }
                Action::Failed(_) => {
                    assert!(client.deadline().is_none() && client.lease().is_none());
                }
            }
        }
        assert!(client.deadline().is_some() || !client.waits_for_reply());
        let [kind, time, after @ ..] = rest else {
            return was_bound;
        };
        rest = after;
        now += Duration::from_secs(u64::from(*time) * 16);
        match kind % 4 {
            0 => actions = client.advance(now),
            1 => {
                now = now.max(client.deadline().unwrap_or(now));
                actions = client.advance(now);
            }
            2 => {
                let Some(([high, low], after)) = rest.split_first_chunk::<2>() else {
                    return was_bound;
                };
                let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
                let (message, after) = after.split_at(length);
                rest = after;
                if let Some(mut message) = Message::decode(message) {
                    message.transaction = transaction;
                    message.mac = MAC;
                    actions = client.receive(&message, SERVER_MAC, now);
                }
            }
            _ => {
                client.release();
                assert!(client.lease().is_none());
            }
        }
    }
}

pub fn stored(input: &[u8]) -> bool {
    let stored: Option<Stored> = serde_json::from_slice(input).ok();
    let Some(lease) = stored.and_then(|stored| stored.lease()) else {
        return false;
    };
    check_lease(&lease);
    true
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn frames() {
        run("dhcp_frames", super::frames);
    }

    #[test]
    fn messages() {
        run("dhcp_messages", super::messages);
    }

    #[test]
    fn lives() {
        run("dhcp_lives", super::lives);
    }

    #[test]
    fn stored() {
        run("dhcp_stored", super::stored);
    }
}
