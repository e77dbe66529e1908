//! nftables (`linux/netfilter/nf_tables.h`): transactions over tables, chains and rules, and the comments by which rules are found
//! again.
//!
//! Rules are built as `nft` builds them, register by register, since `nft list ruleset` prints a rule in words only when it
//! recognises the sequence of its expressions. There are as few expressions as the plugins have rules; sets are in none of them.

use std::net::IpAddr;

use rustix::net::netlink::NETFILTER;

use super::codec::{Attributes, Message, NLA_F_NESTED, octets, text};
use super::errno::Errno;
use super::socket::Netlink;
use crate::ip::{Cidr, bits};

/// The number of nftables among the subsystems of netfilter.
const SUBSYSTEM: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;

const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_DELCHAIN: u16 = 5;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_GETRULE: u16 = 7;
const NFT_MSG_DELRULE: u16 = 8;
const NFT_MSG_GETGEN: u16 = 16;

const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_TABLE_USERDATA: u16 = 6;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_CHAIN_USERDATA: u16 = 12;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;

/// Where userdata, which are kind, length and value in a byte each, have the comment, in tables, chains and rules alike.
const UDATA_COMMENT: u8 = 0;
/// Where rules have an owner of ours. `nft`, which numbers its own kinds from 0, passes over those that it does not know.
const UDATA_OWNER: u8 = 0x6d;

/// The registers of 16 bytes each; the verdict has the register 0.
const VERDICT_REGISTER: u32 = 0;
const FIRST_REGISTER: u32 = 1;
const SECOND_REGISTER: u32 = 2;

const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;

const ACCEPT: u32 = 1;
/// `RTN_LOCAL`: the type of an address that the host has.
const RTN_LOCAL: u32 = 2;

/// How often a transaction over rules that others delete at the same time begins anew.
const ATTEMPTS: usize = 8;

/// The family of a table (`NFPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Inet = 1,
    Ipv4 = 2,
    Bridge = 7,
    Ipv6 = 10,
}

impl Family {
    /// Returns the family of an address.
    pub(crate) const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::Ipv4
        } else {
            Self::Ipv6
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) name: &'static str,
}

/// The kind and the hook of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    /// The kind of the chain: `nat`, `filter`.
    pub(crate) kind: &'static str,
    pub(crate) point: HookPoint,
    pub(crate) priority: i32,
    /// Whether the policy is written, which is `accept` also when it is not.
    pub(crate) states_policy: bool,
}

/// The place of a base chain (`NF_INET_*`, `NF_BR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookPoint {
    Prerouting = 0,
    Output = 3,
    Postrouting = 4,
}

/// The priority of chains that change the destination.
pub(crate) const DESTINATION_NAT: i32 = -100;
/// The priority of chains that change the source.
pub(crate) const SOURCE_NAT: i32 = 100;

/// Which address of a packet a match reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// The comparison that a match makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal = 0,
    Different = 1,
}

/// The fate of a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    Drop,
    Return,
    Jump(&'a str),
    Goto(&'a str),
}

/// A rule that is in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedRule {
    /// The kernel's number of the rule.
    pub(crate) handle: u64,
    pub(crate) comment: Option<String>,
    /// The owner, which rules of others do not have.
    pub(crate) owner: Option<String>,
    /// The matches and actions as the kernel has them.
    expressions: Vec<u8>,
}

impl ListedRule {
    /// Returns whether an address is in one of the matches or actions.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let octets = octets(address);
        let mut parts = self.expressions.windows(octets.len());
        parts.any(|part| part == octets)
    }
}

/// A rule under construction: each method appends a match or an action.
pub(crate) struct Rule {
    table: Table,
    chain: String,
    /// The matches and actions, as attributes.
    expressions: Message,
    /// The network protocol that the rule has matched already, in families that have several.
    matched_protocol: Option<u8>,
    comment: Option<String>,
    owner: Option<String>,
}

impl Rule {
    /// Begins a rule of this chain.
    pub(crate) fn new(table: Table, chain: &str) -> Self {
        Self {
            table,
            chain: chain.to_owned(),
            expressions: Message::new(0, 0, &[]),
            matched_protocol: None,
            comment: None,
            owner: None,
        }
    }

    pub(crate) fn comment(mut self, comment: &str) -> Self {
        self.comment = Some(comment.to_owned());
        self
    }

    /// Gives the rule an owner, which `nft` does not show.
    pub(crate) fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.to_owned());
        self
    }

    /// Matches an address: `ip saddr 10.0.0.5`, `ip6 daddr != fd00::/64`.
    pub(crate) fn address(mut self, side: Side, compare: Compare, network: Cidr) -> Self {
        let network = network.network();
        let (protocol, offset) = match (network.address, side) {
            (IpAddr::V4(_), Side::Source) => (NFPROTO_IPV4, 12),
            (IpAddr::V4(_), Side::Destination) => (NFPROTO_IPV4, 16),
            (IpAddr::V6(_), Side::Source) => (NFPROTO_IPV6, 8),
            (IpAddr::V6(_), Side::Destination) => (NFPROTO_IPV6, 24),
        };
        if self.table.family == Family::Inet && self.matched_protocol != Some(protocol) {
            const NFT_META_NFPROTO: u32 = 15;
            self = self
                .meta(NFT_META_NFPROTO)
                .compare(Compare::Equal, &[protocol]);
            self.matched_protocol = Some(protocol);
        }
        let mut value = octets(network.address);
        let length = network.length;
        if length > 0 && length.is_multiple_of(8) {
            value.truncate(usize::from(length / 8));
            return self
                .payload(Header::Network, offset, value.len())
                .compare(compare, &value);
        }
        let ones = Cidr::new(
            if network.address.is_ipv4() {
                [0xff; 4].into()
            } else {
                [0xff; 16].into()
            },
            length.min(bits(network.address)),
        );
        self.payload(Header::Network, offset, value.len())
            .mask(&octets(ones.network().address))
            .compare(compare, &value)
    }

    /// Matches a transport protocol and its destination port: `tcp dport 80`.
    pub(crate) fn destination_port(self, protocol: u8, port: u16) -> Self {
        const NFT_META_L4PROTO: u32 = 16;
        self.meta(NFT_META_L4PROTO)
            .compare(Compare::Equal, &[protocol])
            .payload(Header::Transport, 2, 2)
            .compare(Compare::Equal, &port.to_be_bytes())
    }

    /// Matches the name of the incoming link: `iifname "veth0"`.
    pub(crate) fn incoming_link(self, name: &str) -> Self {
        const NFT_META_IIFNAME: u32 = 6;
        let mut value = name.as_bytes().to_vec();
        value.resize(16, 0);
        self.meta(NFT_META_IIFNAME).compare(Compare::Equal, &value)
    }

    /// Matches the hardware address of the sender: `ether saddr 02:00:00:00:00:01`.
    pub(crate) fn sender_mac(self, mac: &[u8]) -> Self {
        self.payload(Header::Link, 6, mac.len())
            .compare(Compare::Equal, mac)
    }

    /// Matches packets to an address of the host: `fib daddr type local`.
    pub(crate) fn local_destination(self) -> Self {
        self.expression("fib", |data| {
            const NFTA_FIB_DREG: u16 = 1;
            const NFTA_FIB_RESULT: u16 = 2;
            const NFTA_FIB_FLAGS: u16 = 3;
            const DESTINATION: u32 = 2;
            const ADDRESS_TYPE: u32 = 3;
            data.put_be32(NFTA_FIB_FLAGS, DESTINATION)
                .put_be32(NFTA_FIB_RESULT, ADDRESS_TYPE)
                .put_be32(NFTA_FIB_DREG, FIRST_REGISTER);
        })
        .compare(Compare::Equal, &RTN_LOCAL.to_ne_bytes())
    }

    /// Matches packets of a connection whose destination was replaced: `ct status dnat`.
    pub(crate) fn replaced_destination(self) -> Self {
        const IPS_DST_NAT: u32 = 0x20;
        self.expression("ct", |data| {
            const NFTA_CT_DREG: u16 = 1;
            const NFTA_CT_KEY: u16 = 2;
            const NFT_CT_STATUS: u32 = 2;
            data.put_be32(NFTA_CT_KEY, NFT_CT_STATUS)
                .put_be32(NFTA_CT_DREG, FIRST_REGISTER);
        })
        .mask(&IPS_DST_NAT.to_ne_bytes())
        .compare(Compare::Different, &[0; 4])
    }

    /// Replaces the destination: `dnat to 10.0.0.5:80`.
    pub(crate) fn dnat(self, address: IpAddr, port: u16) -> Self {
        let family = Family::of(address) as u32;
        self.immediate(FIRST_REGISTER, &octets(address))
            .immediate(SECOND_REGISTER, &port.to_be_bytes())
            .expression("nat", |data| {
                const NFTA_NAT_TYPE: u16 = 1;
                const NFTA_NAT_FAMILY: u16 = 2;
                const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
                const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
                const NFTA_NAT_FLAGS: u16 = 7;
                const DNAT: u32 = 1;
                const PORT_IS_SPECIFIED: u32 = 2;
                data.put_be32(NFTA_NAT_TYPE, DNAT)
                    .put_be32(NFTA_NAT_FAMILY, family)
                    .put_be32(NFTA_NAT_REG_ADDR_MIN, FIRST_REGISTER)
                    .put_be32(NFTA_NAT_REG_PROTO_MIN, SECOND_REGISTER)
                    .put_be32(NFTA_NAT_FLAGS, PORT_IS_SPECIFIED);
            })
    }

    /// Replaces the source by the address of the outgoing link: `masquerade`.
    pub(crate) fn masquerade(self) -> Self {
        self.expression("masq", |_| {})
    }

    /// Ends with a verdict.
    pub(crate) fn verdict(self, verdict: Verdict<'_>) -> Self {
        let (code, chain) = match verdict {
            Verdict::Drop => (0i32, None),
            Verdict::Jump(chain) => (-3, Some(chain)),
            Verdict::Goto(chain) => (-4, Some(chain)),
            Verdict::Return => (-5, None),
        };
        self.expression("immediate", |data| {
            data.put_be32(NFTA_IMMEDIATE_DREG, VERDICT_REGISTER).nest(
                NFTA_IMMEDIATE_DATA,
                |data| {
                    data.nest(NFTA_DATA_VERDICT, |data| {
                        data.put_be32(NFTA_VERDICT_CODE, code.cast_unsigned());
                        if let Some(chain) = chain {
                            data.put_text(NFTA_VERDICT_CHAIN, chain);
                        }
                    });
                },
            );
        })
    }

    fn meta(self, key: u32) -> Self {
        self.expression("meta", |data| {
            const NFTA_META_DREG: u16 = 1;
            const NFTA_META_KEY: u16 = 2;
            data.put_be32(NFTA_META_KEY, key)
                .put_be32(NFTA_META_DREG, FIRST_REGISTER);
        })
    }

    fn payload(self, header: Header, offset: u32, length: usize) -> Self {
        let length = u32::try_from(length).expect("headers are short");
        self.expression("payload", |data| {
            const NFTA_PAYLOAD_DREG: u16 = 1;
            const NFTA_PAYLOAD_BASE: u16 = 2;
            const NFTA_PAYLOAD_OFFSET: u16 = 3;
            const NFTA_PAYLOAD_LEN: u16 = 4;
            data.put_be32(NFTA_PAYLOAD_DREG, FIRST_REGISTER)
                .put_be32(NFTA_PAYLOAD_BASE, header as u32)
                .put_be32(NFTA_PAYLOAD_OFFSET, offset)
                .put_be32(NFTA_PAYLOAD_LEN, length);
        })
    }

    fn mask(self, mask: &[u8]) -> Self {
        let length = u32::try_from(mask.len()).expect("masks are short");
        self.expression("bitwise", |data| {
            const NFTA_BITWISE_SREG: u16 = 1;
            const NFTA_BITWISE_DREG: u16 = 2;
            const NFTA_BITWISE_LEN: u16 = 3;
            const NFTA_BITWISE_MASK: u16 = 4;
            const NFTA_BITWISE_XOR: u16 = 5;
            data.put_be32(NFTA_BITWISE_SREG, FIRST_REGISTER)
                .put_be32(NFTA_BITWISE_DREG, FIRST_REGISTER)
                .put_be32(NFTA_BITWISE_LEN, length)
                .nest(NFTA_BITWISE_MASK, |data| {
                    data.put(NFTA_DATA_VALUE, mask);
                })
                .nest(NFTA_BITWISE_XOR, |data| {
                    data.put(NFTA_DATA_VALUE, &vec![0; mask.len()]);
                });
        })
    }

    fn compare(self, compare: Compare, value: &[u8]) -> Self {
        self.expression("cmp", |data| {
            const NFTA_CMP_SREG: u16 = 1;
            const NFTA_CMP_OP: u16 = 2;
            const NFTA_CMP_DATA: u16 = 3;
            data.put_be32(NFTA_CMP_SREG, FIRST_REGISTER)
                .put_be32(NFTA_CMP_OP, compare as u32)
                .nest(NFTA_CMP_DATA, |data| {
                    data.put(NFTA_DATA_VALUE, value);
                });
        })
    }

    fn immediate(self, register: u32, value: &[u8]) -> Self {
        self.expression("immediate", |data| {
            data.put_be32(NFTA_IMMEDIATE_DREG, register)
                .nest(NFTA_IMMEDIATE_DATA, |data| {
                    data.put(NFTA_DATA_VALUE, value);
                });
        })
    }

    fn expression(mut self, name: &str, fill: impl FnOnce(&mut Message)) -> Self {
        self.expressions.nest(NFTA_LIST_ELEM, |element| {
            element
                .put_text(NFTA_EXPR_NAME, name)
                .nest(NFTA_EXPR_DATA, fill);
        });
        self
    }

    fn message(&self) -> Message {
        let flags = NLM_F_CREATE | NLM_F_APPEND;
        let mut message = request(NFT_MSG_NEWRULE, flags, self.table.family);
        message
            .put_text(NFTA_RULE_TABLE, self.table.name)
            .put_text(NFTA_RULE_CHAIN, &self.chain)
            .put(
                NFTA_RULE_EXPRESSIONS | NLA_F_NESTED,
                self.expressions.body(),
            );
        let entries = [(UDATA_COMMENT, &self.comment), (UDATA_OWNER, &self.owner)];
        put_userdata(&mut message, NFTA_RULE_USERDATA, &entries);
        message
    }
}

const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;

/// The headers of a packet (`NFT_PAYLOAD_*_HEADER`).
#[derive(Clone, Copy)]
enum Header {
    Link = 0,
    Network = 1,
    Transport = 2,
}

/// Changes that the kernel makes all or not at all.
pub(crate) struct Transaction {
    messages: Vec<Message>,
}

impl Transaction {
    pub(crate) fn new() -> Self {
        Self {
            messages: vec![bracket(NFNL_MSG_BATCH_BEGIN)],
        }
    }

    /// Adds a table, unless it is there.
    pub(crate) fn add_table(&mut self, table: Table, comment: Option<&str>) -> &mut Self {
        let mut message = request(NFT_MSG_NEWTABLE, 0, table.family);
        message
            .put_text(NFTA_TABLE_NAME, table.name)
            .put_be32(NFTA_TABLE_FLAGS, 0);
        put_comment(&mut message, NFTA_TABLE_USERDATA, comment);
        self.push(message)
    }

    /// Adds a chain to which rules jump, unless it is there.
    pub(crate) fn add_chain(
        &mut self,
        table: Table,
        name: &str,
        comment: Option<&str>,
    ) -> &mut Self {
        let mut message = chain(NFT_MSG_NEWCHAIN, NLM_F_CREATE, table, name);
        put_comment(&mut message, NFTA_CHAIN_USERDATA, comment);
        self.push(message)
    }

    /// Adds a chain through which packets go, unless it is there.
    pub(crate) fn add_base_chain(&mut self, table: Table, name: &str, hook: Hook) -> &mut Self {
        let mut message = chain(NFT_MSG_NEWCHAIN, NLM_F_CREATE, table, name);
        message.put_text(NFTA_CHAIN_TYPE, hook.kind);
        if hook.states_policy {
            message.put_be32(NFTA_CHAIN_POLICY, ACCEPT);
        }
        message.nest(NFTA_CHAIN_HOOK, |data| {
            data.put_be32(NFTA_HOOK_HOOKNUM, hook.point as u32)
                .put_be32(NFTA_HOOK_PRIORITY, hook.priority.cast_unsigned());
        });
        self.push(message)
    }

    /// Deletes the rules of a chain.
    pub(crate) fn flush_chain(&mut self, table: Table, name: &str) -> &mut Self {
        let mut message = request(NFT_MSG_DELRULE, 0, table.family);
        message
            .put_text(NFTA_RULE_TABLE, table.name)
            .put_text(NFTA_RULE_CHAIN, name);
        self.push(message)
    }

    /// Deletes a chain with its rules.
    pub(crate) fn delete_chain(&mut self, table: Table, name: &str) -> &mut Self {
        self.push(chain(NFT_MSG_DELCHAIN, 0, table, name))
    }

    pub(crate) fn add_rule(&mut self, rule: &Rule) -> &mut Self {
        self.push(rule.message())
    }

    fn delete_rule(&mut self, table: Table, chain: &str, handle: u64) -> &mut Self {
        let mut message = request(NFT_MSG_DELRULE, 0, table.family);
        message
            .put_text(NFTA_RULE_TABLE, table.name)
            .put_text(NFTA_RULE_CHAIN, chain)
            .put(NFTA_RULE_HANDLE, &handle.to_be_bytes());
        self.push(message)
    }

    /// Returns whether nothing would change.
    fn is_empty(&self) -> bool {
        self.messages.len() == 1
    }

    fn push(&mut self, message: Message) -> &mut Self {
        self.messages.push(message);
        self
    }
}

impl Netlink {
    /// Opens a socket for netfilter in the thread's network namespace.
    pub(crate) fn open_netfilter() -> Result<Self, Errno> {
        Self::open_protocol(Some(NETFILTER))
    }

    /// Fails when the kernel has no nftables, or the caller may not use it.
    pub(crate) fn probe_nftables(&mut self) -> Result<(), Errno> {
        let kind = (SUBSYSTEM << 8) | NFT_MSG_GETGEN;
        self.get(Message::new(kind, 0, &[0; 4])).map(|_| ())
    }

    pub(crate) fn commit(&mut self, mut transaction: Transaction) -> Result<(), Errno> {
        if transaction.is_empty() {
            return Ok(());
        }
        transaction.messages.push(bracket(NFNL_MSG_BATCH_END));
        self.transaction(transaction.messages)
    }

    /// Makes changes that depend on rules that are there. `fill` reads the rules and appends the changes; when one of the rules is
    /// deleted by another process meanwhile, it is called again.
    pub(crate) fn commit_over_rules(
        &mut self,
        mut fill: impl FnMut(&mut Self, &mut Transaction) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut attempt = 1;
        loop {
            let mut transaction = Transaction::new();
            fill(self, &mut transaction)?;
            match self.commit(transaction) {
                Err(Errno::ENOENT) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    /// Appends the deletion of the selected rules of a chain to a transaction.
    pub(crate) fn delete_rules(
        &mut self,
        transaction: &mut Transaction,
        table: Table,
        chain: &str,
        is_selected: impl Fn(&ListedRule) -> bool,
    ) -> Result<(), Errno> {
        for rule in self
            .rules(table, chain)?
            .iter()
            .filter(|rule| is_selected(rule))
        {
            transaction.delete_rule(table, chain, rule.handle);
        }
        Ok(())
    }

    /// Returns the rules of a chain; none when the chain does not exist.
    pub(crate) fn rules(&mut self, table: Table, chain: &str) -> Result<Vec<ListedRule>, Errno> {
        let objects = self.dump(|| {
            let mut message = request(NFT_MSG_GETRULE, 0, table.family);
            message
                .put_text(NFTA_RULE_TABLE, table.name)
                .put_text(NFTA_RULE_CHAIN, chain);
            message
        });
        let objects = match objects {
            Err(Errno::ENOENT) => return Ok(Vec::new()),
            objects => objects?,
        };
        // Old kernels dump the rules of all chains.
        let rules = objects
            .iter()
            .filter_map(|object| listed_rule(object, table, chain));
        Ok(rules.collect())
    }
}

fn listed_rule(object: &[u8], table: Table, chain: &str) -> Option<ListedRule> {
    let attributes = Attributes(object.get(4..)?);
    let is_here = attributes.get(NFTA_RULE_TABLE).map(text)? == table.name
        && attributes.get(NFTA_RULE_CHAIN).map(text)? == chain;
    let handle = attributes.get(NFTA_RULE_HANDLE)?.try_into().ok()?;
    let userdata = attributes.get(NFTA_RULE_USERDATA).unwrap_or_default();
    let expressions = attributes.get(NFTA_RULE_EXPRESSIONS);
    is_here.then(|| ListedRule {
        handle: u64::from_be_bytes(handle),
        comment: text_in(userdata, UDATA_COMMENT),
        owner: text_in(userdata, UDATA_OWNER),
        expressions: expressions.unwrap_or_default().to_vec(),
    })
}

/// Returns the text of this kind in userdata.
fn text_in(mut userdata: &[u8], wanted: u8) -> Option<String> {
    while let [kind, length, rest @ ..] = userdata {
        let value = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            return Some(text(value));
        }
        userdata = &rest[value.len()..];
    }
    None
}

fn put_comment(message: &mut Message, kind: u16, comment: Option<&str>) {
    let comment = comment.map(str::to_owned);
    put_userdata(message, kind, &[(UDATA_COMMENT, &comment)]);
}

/// Appends texts as userdata, if there are any.
fn put_userdata(message: &mut Message, kind: u16, entries: &[(u8, &Option<String>)]) {
    let mut userdata = Vec::new();
    for (kind, value) in entries {
        if let Some(value) = value {
            let length = u8::try_from(value.len() + 1).expect("comments are short");
            userdata.extend([*kind, length]);
            userdata.extend_from_slice(value.as_bytes());
            userdata.push(0);
        }
    }
    if !userdata.is_empty() {
        message.put(kind, &userdata);
    }
}

fn chain(kind: u16, flags: u16, table: Table, name: &str) -> Message {
    let mut message = request(kind, flags, table.family);
    message
        .put_text(NFTA_CHAIN_TABLE, table.name)
        .put_text(NFTA_CHAIN_NAME, name);
    message
}

/// Begins a request with netfilter's fixed part: family, version, resource.
fn request(kind: u16, flags: u16, family: Family) -> Message {
    Message::new((SUBSYSTEM << 8) | kind, flags, &[family as u8, 0, 0, 0])
}

/// Returns what encloses a transaction; the resource is the subsystem.
fn bracket(kind: u16) -> Message {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    Message::new(kind, 0, &[0, 0, high, low])
}

#[cfg(test)]
impl Transaction {
    /// Returns the requests as the fixtures have them, one to a line: kind, flags but for those of every request, and what follows
    /// the header. The fixtures are what `nft` sends for the same rules.
    pub(crate) fn lines(self) -> String {
        let lines = self.messages.into_iter().skip(1).map(|message| {
            let bytes = message.finish(0, 0);
            let number = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            let body = crate::filter::hex(&bytes[super::codec::HEADER..]);
            format!("{:04x} {:04x} {body}\n", number(4), number(6) & !1)
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = Table {
        family: Family::Ipv4,
        name: "t",
    };

    #[test]
    fn listed_rule_has_handle_comment_owner_and_addresses() {
        let rule = Rule::new(TABLE, "c")
            .dnat([10, 0, 0, 5].into(), 80)
            .comment("pod")
            .owner("net1");
        let bytes = rule.message().finish(0, 0);
        let mut object = bytes[super::super::codec::HEADER..].to_vec();
        assert_eq!(listed_rule(&object, TABLE, "c"), None, "without a handle");
        object.extend([12, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let listed = listed_rule(&object, TABLE, "c").unwrap();
        assert_eq!(listed.handle, 0x102);
        assert_eq!(listed.comment.as_deref(), Some("pod"));
        assert_eq!(listed.owner.as_deref(), Some("net1"));
        assert!(listed.has_address([10, 0, 0, 5].into()));
        assert!(!listed.has_address([10, 0, 0, 6].into()));
        assert_eq!(listed_rule(&object, TABLE, "d"), None);
    }

    #[test]
    fn comment_is_found_among_other_userdata() {
        let comment = |userdata| text_in(userdata, UDATA_COMMENT);
        assert_eq!(comment(b"\x07\x01x\x00\x03ab\0").as_deref(), Some("ab"));
        assert_eq!(comment(b"\x00\x09ab"), None);
        assert_eq!(comment(b""), None);
    }

    #[test]
    fn prefixes_of_whole_bytes_need_no_mask() {
        let loads = |network: &str| {
            let rule = Rule::new(TABLE, "c");
            let network = network.parse().unwrap();
            let rule = rule.address(Side::Source, Compare::Equal, network);
            let elements = Attributes(rule.expressions.body());
            let names = elements.map(|(_, element)| Attributes(element).get(NFTA_EXPR_NAME));
            names.flatten().map(text).collect::<Vec<_>>().join(" ")
        };
        for network in ["10.1.2.3/8", "10.1.2.3/32", "fd00::/64", "fd00::1/128"] {
            assert_eq!(loads(network), "payload cmp", "{network}");
        }
        for network in ["0.0.0.0/0", "10.1.2.3/22", "fd00::/60"] {
            assert_eq!(loads(network), "payload bitwise cmp", "{network}");
        }
    }
}
