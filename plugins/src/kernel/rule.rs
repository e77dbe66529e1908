//! Rules of policy routing (`linux/fib_rules.h`).

use std::net::IpAddr;

use super::NLM_F_CREATE_EXCL;
use super::address::family;
use super::codec::{Attributes, Message, from_octets, octets, u32_at};
use super::errno::Errno;
use super::socket::Netlink;
use crate::ip::Cidr;

const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const FRA_SRC: u16 = 2;
const FRA_TABLE: u16 = 15;
const FR_ACT_TO_TBL: u8 = 1;
/// The length of `struct fib_rule_hdr`.
const HEADER: usize = 12;

/// A rule as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// The source addresses that it is for; `None` for all.
    pub(crate) source: Option<Cidr>,
    /// The routing table that it names; 0 for none.
    pub(crate) table: u32,
    /// The rule as the kernel wrote it, with every attribute, so that exactly this rule can be deleted.
    body: Vec<u8>,
}

impl Rule {
    fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body.get(HEADER..)?);
        let source = attributes.get(FRA_SRC).and_then(from_octets);
        let length = *body.get(2)?;
        Some(Self {
            source: source.map(|address| Cidr::new(address, length)),
            table: attributes
                .get(FRA_TABLE)
                .and_then(|value| u32_at(value, 0))
                .unwrap_or(u32::from(*body.get(4)?)),
            body: body.to_vec(),
        })
    }
}

impl Netlink {
    /// Adds a rule: packets from this address use this table. The kernel puts it before those that are there.
    pub(crate) fn add_rule(&mut self, source: IpAddr, table: u32) -> Result<(), Errno> {
        self.request(rule_message(RTM_NEWRULE, NLM_F_CREATE_EXCL, source, table))
    }

    pub(crate) fn delete_rule(&mut self, rule: &Rule) -> Result<(), Errno> {
        self.request(Message::new(RTM_DELRULE, 0, &rule.body))
    }

    /// Deletes the first rule for this address and table.
    pub(crate) fn delete_rule_of(&mut self, source: IpAddr, table: u32) -> Result<(), Errno> {
        self.request(rule_message(RTM_DELRULE, 0, source, table))
    }

    /// Returns the rules of all families.
    pub(crate) fn policy_rules(&mut self) -> Result<Vec<Rule>, Errno> {
        let bodies = self.dump(|| Message::new(RTM_GETRULE, 0, &[0; HEADER]))?;
        Ok(bodies.iter().filter_map(|body| Rule::parse(body)).collect())
    }
}

fn rule_message(kind: u16, flags: u16, source: IpAddr, table: u32) -> Message {
    let source = Cidr::host(source);
    let mut fixed = [0; HEADER];
    fixed[0] = family(source.address);
    fixed[2] = source.length;
    // A table above 255 has room only in its attribute.
    fixed[4] = u8::try_from(table).unwrap_or(0);
    fixed[7] = FR_ACT_TO_TBL;
    let mut message = Message::new(kind, flags, &fixed);
    message.put(FRA_SRC, &octets(source.address));
    if table > 255 {
        message.put_u32(FRA_TABLE, table);
    }
    message
}

/// Fuzz target: reads an object.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(body: &[u8]) -> bool {
    Rule::parse(body).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::codec::HEADER as MESSAGE_HEADER;
    use super::*;

    #[test]
    fn rules_are_written_as_they_are_read() {
        for (source, table) in [("10.0.0.5", 100), ("fd00::5", 70_000)] {
            let source: IpAddr = source.parse().unwrap();
            let bytes = rule_message(RTM_NEWRULE, 0, source, table).finish(0, 1);
            let rule = Rule::parse(&bytes[MESSAGE_HEADER..]).unwrap();
            assert_eq!(rule.source, Some(Cidr::host(source)));
            assert_eq!(rule.table, table);
            let again = Message::new(RTM_NEWRULE, 0, &rule.body).finish(0, 1);
            assert_eq!(again, bytes);
        }
    }
}
