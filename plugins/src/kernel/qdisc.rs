//! Queueing disciplines and filters: what `tc` shows and changes (`linux/pkt_sched.h`, `linux/pkt_cls.h`).

use super::NLM_F_CREATE_EXCL;
use super::codec::{Attributes, Message, text, u32_at};
use super::errno::Errno;
use super::socket::Netlink;

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_U32_CLASSID: u16 = 1;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_fff1;
const TC_U32_TERMINAL: u8 = 1;
const TC_ACT_OK: u32 = 0;
const TC_ACT_STOLEN: u32 = 4;
const TCA_EGRESS_REDIR: u32 = 1;
/// The length of `struct tcmsg`.
const HEADER: usize = 20;
/// `tbf` of a link: handle `1:`.
const TBF_HANDLE: u32 = 0x0001_0000;
/// `ingress` of a link: handle `ffff:`.
const INGRESS_HANDLE: u32 = 0xffff_0000;
/// Class `1:1`.
const CLASS: u32 = 0x0001_0001;
/// Priority 1, all protocols (`ETH_P_ALL` in network order).
const FILTER_INFO: u32 = 0x0001_0000 | (3u16.to_be() as u32);
/// The offsets in `struct tc_tbf_qopt`.
const TBF_RATE: usize = 8;
const TBF_LIMIT: usize = 24;
const TBF_BUFFER: usize = 28;
const TBF_LENGTH: usize = 36;

/// A token bucket filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tbf {
    /// Bytes in each second.
    pub(crate) rate: u64,
    /// How many bytes may wait.
    pub(crate) limit: u32,
    /// The bucket's size as the time, in the kernel's ticks, that it takes to fill it.
    pub(crate) buffer: u32,
}

impl Tbf {
    fn put(self, options: &mut Message) {
        let mut parameters = [0; TBF_LENGTH];
        let mut set = |offset: usize, number: u32| {
            parameters[offset..offset + 4].copy_from_slice(&number.to_ne_bytes());
        };
        // A rate that needs more bits has them in an attribute of its own.
        let low = u32::try_from(self.rate & 0xffff_ffff).expect("32 bits are left");
        set(TBF_RATE, low);
        set(TBF_LIMIT, self.limit);
        set(TBF_BUFFER, self.buffer);
        options.put(TCA_TBF_PARMS, &parameters);
        if self.rate > u64::from(u32::MAX) {
            options.put(TCA_TBF_RATE64, &self.rate.to_ne_bytes());
        }
    }

    fn parse(options: &Attributes<'_>) -> Option<Self> {
        let parameters = options.get(TCA_TBF_PARMS)?;
        let wide = options
            .get(TCA_TBF_RATE64)
            .and_then(|value| value.try_into().ok());
        Some(Self {
            rate: match wide {
                Some(bytes) => u64::from_ne_bytes(bytes),
                None => u64::from(u32_at(parameters, TBF_RATE)?),
            },
            limit: u32_at(parameters, TBF_LIMIT)?,
            buffer: u32_at(parameters, TBF_BUFFER)?,
        })
    }
}

impl Netlink {
    /// Makes a token bucket filter the queueing discipline of a link.
    pub(crate) fn add_tbf(&mut self, link: u32, tbf: Tbf) -> Result<(), Errno> {
        self.request(tbf_message(link, tbf))
    }

    /// Deletes the token bucket filter that [`Self::add_tbf`] made.
    pub(crate) fn delete_tbf(&mut self, link: u32) -> Result<(), Errno> {
        let fixed = tcmsg(link, TBF_HANDLE, TC_H_ROOT, 0);
        self.request(Message::new(RTM_DELQDISC, 0, &fixed))
    }

    /// Gives a link the discipline that has filters for incoming packets.
    pub(crate) fn add_ingress(&mut self, link: u32) -> Result<(), Errno> {
        let fixed = tcmsg(link, INGRESS_HANDLE, TC_H_INGRESS, 0);
        let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE_EXCL, &fixed);
        message.put_text(TCA_KIND, "ingress").put(TCA_OPTIONS, &[]);
        self.request(message)
    }

    /// Deletes that discipline with its filters.
    pub(crate) fn delete_ingress(&mut self, link: u32) -> Result<(), Errno> {
        let fixed = tcmsg(link, INGRESS_HANDLE, TC_H_INGRESS, 0);
        self.request(Message::new(RTM_DELQDISC, 0, &fixed))
    }

    /// Sends all packets that come in on a link out on another one.
    pub(crate) fn redirect_ingress(&mut self, link: u32, to: u32) -> Result<(), Errno> {
        self.request(redirect_message(link, to))
    }

    /// Returns the token bucket filter that is the discipline of a link, or `None` when another one is.
    pub(crate) fn tbf(&mut self, link: u32) -> Result<Option<Tbf>, Errno> {
        let bodies = self.dump(|| Message::new(RTM_GETQDISC, 0, &tcmsg(0, 0, 0, 0)))?;
        Ok(bodies.iter().find_map(|body| parse_tbf(body, link)))
    }
}

fn tbf_message(link: u32, tbf: Tbf) -> Message {
    let fixed = tcmsg(link, TBF_HANDLE, TC_H_ROOT, 0);
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE_EXCL, &fixed);
    message.put_text(TCA_KIND, "tbf");
    message.nest(TCA_OPTIONS, |options| tbf.put(options));
    message
}

fn parse_tbf(body: &[u8], link: u32) -> Option<Tbf> {
    let attributes = Attributes(body.get(HEADER..)?);
    let is_root = u32_at(body, 4)? == link && u32_at(body, 12)? == TC_H_ROOT;
    let is_tbf = attributes.get(TCA_KIND).map(text)? == "tbf";
    if is_root && is_tbf {
        Tbf::parse(&attributes.nested(TCA_OPTIONS)?)
    } else {
        None
    }
}

/// A filter of kind `u32` with one key that every packet matches. It has two actions as the reference's has: the first one takes the
/// packet, so that the second one never runs.
fn redirect_message(link: u32, to: u32) -> Message {
    let fixed = tcmsg(link, 0, INGRESS_HANDLE, FILTER_INFO);
    let mut message = Message::new(RTM_NEWTFILTER, NLM_F_CREATE_EXCL, &fixed);
    message.put_text(TCA_KIND, "u32");
    message.nest(TCA_OPTIONS, |options| {
        let mut selector = [0; 32];
        selector[0] = TC_U32_TERMINAL;
        selector[2] = 1;
        options.put(TCA_U32_SEL, &selector);
        options.put_u32(TCA_U32_CLASSID, CLASS);
        options.nest(TCA_U32_ACT, |actions| {
            for (position, verdict) in [(1, TC_ACT_STOLEN), (2, TC_ACT_OK)] {
                actions.nest(position, |action| put_redirect(action, verdict, to));
            }
        });
    });
    message
}

fn put_redirect(action: &mut Message, verdict: u32, to: u32) {
    action.put_text(TCA_ACT_KIND, "mirred");
    action.nest(TCA_ACT_OPTIONS, |options| {
        // struct tc_mirred: index, capabilities, verdict, two counters, direction, link.
        let fields = [0, 0, verdict, 0, 0, TCA_EGRESS_REDIR, to];
        let parameters: Vec<u8> = fields
            .iter()
            .flat_map(|field| field.to_ne_bytes())
            .collect();
        options.put(TCA_MIRRED_PARMS, &parameters);
    });
}

/// Returns `struct tcmsg`.
fn tcmsg(link: u32, handle: u32, parent: u32, info: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (at, number) in [link, handle, parent, info].into_iter().enumerate() {
        bytes[4 + at * 4..8 + at * 4].copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

/// Fuzz target: reads an object.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(body: &[u8]) -> bool {
    parse_tbf(body, 7).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::codec::HEADER as MESSAGE_HEADER;
    use super::*;

    #[test]
    fn tbf_is_read_as_it_is_written() {
        for rate in [1_000_000, 5 << 32] {
            let tbf = Tbf {
                rate,
                limit: 1_025_000,
                buffer: 15_625_000,
            };
            let bytes = tbf_message(7, tbf).finish(0, 1);
            let body = &bytes[MESSAGE_HEADER..];
            assert_eq!(parse_tbf(body, 7), Some(tbf));
            assert_eq!(parse_tbf(body, 8), None);
        }
    }

    #[test]
    fn filter_takes_every_packet() {
        let bytes = redirect_message(7, 9).finish(0, 1);
        let body = &bytes[MESSAGE_HEADER..];
        assert_eq!(&body[16..20], FILTER_INFO.to_ne_bytes());
        let options = Attributes(&body[HEADER..]).nested(TCA_OPTIONS).unwrap();
        let actions = options.nested(TCA_U32_ACT).unwrap();
        let verdicts: Vec<_> = actions
            .map(|(_, action)| {
                let options = Attributes(action).nested(TCA_ACT_OPTIONS).unwrap();
                let parameters = options.get(TCA_MIRRED_PARMS).unwrap();
                (
                    u32_at(parameters, 8).unwrap(),
                    u32_at(parameters, 24).unwrap(),
                )
            })
            .collect();
        assert_eq!(verdicts, [(TC_ACT_STOLEN, 9), (TC_ACT_OK, 9)]);
    }
}
