//! Connection tracking (`linux/netfilter/nfnetlink_conntrack.h`): forgets connections that new rules concern, since packets of a
//! known connection are not matched against rules again.

use super::address::{AF_INET, AF_INET6};
use super::codec::{Attributes, Message, NLA_F_NESTED};
use super::errno::Errno;
use super::socket::Netlink;

/// The number of connection tracking among the subsystems of netfilter.
const SUBSYSTEM: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;

const UDP: u8 = 17;

impl Netlink {
    /// Forgets the UDP connections whose first packet went to one of these ports. The socket is one for netfilter.
    pub(crate) fn forget_udp_connections(
        &mut self,
        is_v4: bool,
        ports: &[u16],
    ) -> Result<(), Errno> {
        let family = if is_v4 { AF_INET } else { AF_INET6 };
        // A busy node knows hundreds of thousands.
        let connections = self.dump_selected(
            || request(IPCTNL_MSG_CT_GET, family),
            |connection| is_to(&attributes(connection), ports),
        )?;
        for connection in connections {
            match self.request(deletion(family, attributes(&connection))) {
                // It has ended meanwhile.
                Err(Errno::ENOENT) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// Returns what follows the fixed part.
fn attributes(connection: &[u8]) -> Attributes<'_> {
    Attributes(connection.get(4..).unwrap_or_default())
}

/// Returns whether the connection's first packet was UDP to one of the ports.
fn is_to(connection: &Attributes<'_>, ports: &[u16]) -> bool {
    let Some(protocol) = connection
        .nested(CTA_TUPLE_ORIG)
        .and_then(|tuple| tuple.nested(CTA_TUPLE_PROTO))
    else {
        return false;
    };
    let port = protocol
        .get(CTA_PROTO_DST_PORT)
        .and_then(|port| port.try_into().ok())
        .map(u16::from_be_bytes);
    protocol.get(CTA_PROTO_NUM) == Some(&[UDP]) && port.is_some_and(|port| ports.contains(&port))
}

/// Returns the request that deletes exactly this connection.
fn deletion(family: u8, connection: Attributes<'_>) -> Message {
    let mut message = request(IPCTNL_MSG_CT_DELETE, family);
    for (kind, value) in connection {
        match kind {
            CTA_TUPLE_ORIG => message.put(kind | NLA_F_NESTED, value),
            CTA_ID | CTA_ZONE => message.put(kind, value),
            _ => continue,
        };
    }
    message
}

fn request(kind: u16, family: u8) -> Message {
    Message::new((SUBSYSTEM << 8) | kind, 0, &[family, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_selected_by_their_first_packet() {
        let connection = |number: u8, port: u16| {
            let mut message = request(0, AF_INET);
            message.nest(CTA_TUPLE_ORIG, |tuple| {
                tuple.nest(CTA_TUPLE_PROTO, |protocol| {
                    protocol
                        .put_u8(CTA_PROTO_NUM, number)
                        .put(CTA_PROTO_DST_PORT, &port.to_be_bytes());
                });
            });
            message.finish(0, 0)[20..].to_vec()
        };
        for (number, port, expected) in [(UDP, 8080, true), (6, 8080, false), (UDP, 8081, false)] {
            let bytes = connection(number, port);
            assert_eq!(
                is_to(&Attributes(&bytes), &[53, 8080]),
                expected,
                "{number} {port}"
            );
        }
        assert!(!is_to(&Attributes(&[]), &[8080]));
    }
}
