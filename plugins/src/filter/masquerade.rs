//! Masquerading: what containers send out of their network leaves with the host's address.
//!
//! With iptables each container has a chain of its own in the table `nat`. With nftables there is one table with a rule for each
//! address; the comment begins with a hash of the owner, by which DEL finds exactly what its ADD made, even when the address has
//! another owner by then.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::iptables::{Iptables, ListedRule, Protocol, rule};
use super::{Backend, chain_name, hash, quoted};
use crate::error::{Context, Result, join_failures};
use crate::ip::Cidr;
use crate::kernel::Netlink;
use crate::kernel::nftables::{
    self, Compare, Family, Hook, HookPoint, Rule, SOURCE_NAT, Side, Table, Transaction, Verdict,
};

const TABLE: Table = Table {
    family: Family::Inet,
    name: "cni_plugins_masquerade",
};
const TABLE_COMMENT: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const CHECKS: &str = "masq_checks";
const CHECKS_COMMENT: &str =
    "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";
const POSTROUTING: &str = "postrouting";
/// How many digits of a hash identify a network or an attachment.
const HASH_LENGTH: usize = 16;
/// How long comments may be for `nft`.
const COMMENT_LENGTH: usize = 128;

/// The attachment to which rules belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) network: String,
    pub(crate) ifname: String,
    pub(crate) container_id: String,
}

impl Owner {
    /// Returns the name of the chain for iptables, which is the same for all interfaces of a container in a network.
    fn chain(&self) -> String {
        chain_name("", &self.network, &self.container_id)
    }

    /// Returns the comment of the rules of iptables.
    fn iptables_comment(&self) -> String {
        format!(
            "name: {} id: {}",
            quoted(&self.network),
            quoted(&self.container_id)
        )
    }

    /// Returns how the comments of the rules of nftables begin.
    fn hash(&self) -> String {
        let attachment = hash(&format!("{}:{}", self.ifname, self.container_id));
        format!(
            "{}-{}",
            network_hash(&self.network),
            &attachment[..HASH_LENGTH]
        )
    }

    /// Returns the comment of the rules of nftables.
    fn comment(&self) -> String {
        let mut comment = self.hash();
        for (name, value) in [
            ("net", &self.network),
            ("if", &self.ifname),
            ("id", &self.container_id),
        ] {
            let value = value.replace('"', "");
            write!(comment, ", {name}: {value}").expect("a String takes every text");
        }
        let length = comment.floor_char_boundary(COMMENT_LENGTH);
        comment.truncate(length);
        comment
    }
}

fn network_hash(network: &str) -> String {
    hash(network)[..HASH_LENGTH].to_owned()
}

/// Masquerades what the addresses send to others than their network. Without a `backend`, it is the one that works here.
pub(crate) fn set_up(backend: Option<&str>, addresses: &[Cidr], owner: &Owner) -> Result<()> {
    let set_up = |backend| match backend {
        Backend::Iptables => addresses
            .iter()
            .try_for_each(|address| set_up_iptables(*address, owner)),
        Backend::Nftables => set_up_nftables(addresses, owner),
    };
    match backend {
        None => Backend::likely_here().or_other(set_up),
        Some(name) => Backend::parse_masquerade(name).and_then(set_up),
    }
}

/// Deletes the rules of an attachment with both backends, since its ADD may have run with another configuration. Another attachment of the
/// container in this network has its rules in the same chain of iptables, but for other addresses; without addresses, which is when the
/// container is gone, all of them are deleted.
pub(crate) fn tear_down(addresses: Option<&[Cidr]>, owner: &Owner) -> Result<()> {
    let protocols = [Protocol::V4, Protocol::V6].into_iter().filter(|protocol| {
        let is_of_protocol = |cidr: &Cidr| Protocol::of(cidr.address) == *protocol;
        addresses.is_none_or(|addresses| addresses.iter().any(is_of_protocol))
    });
    let mut errors = Vec::new();
    for protocol in protocols {
        if let Err(error) = delete_iptables(protocol, &owner.chain(), addresses)
            && has_table(protocol)
        {
            errors.push(error.msg);
        }
    }
    let prefix = owner.hash();
    errors.extend(delete_nftables(|comment| comment.starts_with(&prefix)).err());
    join_failures(&errors, "\n")
}

/// Deletes the rules of a network's attachments, but those of the `valid` ones.
pub(crate) fn gc(network: &str, valid: &[Owner]) -> Result<()> {
    let mut errors = Vec::new();
    let comments: HashSet<_> = valid.iter().map(Owner::iptables_comment).collect();
    for protocol in [Protocol::V4, Protocol::V6] {
        if let Err(error) = gc_iptables(protocol, network, &comments)
            && has_table(protocol)
        {
            errors.push(error.msg);
        }
    }
    let prefix = network_hash(network);
    let comments: HashSet<_> = valid.iter().map(Owner::comment).collect();
    let is_stale = |comment: &str| comment.starts_with(&prefix) && !comments.contains(comment);
    errors.extend(delete_nftables(is_stale).err());
    join_failures(&errors, "\n")
}

/// Returns the rules of the chain of an attachment, and the one that leads there.
fn iptables_rules(address: Cidr, owner: &Owner) -> ([Vec<String>; 2], Vec<String>) {
    let multicast = match address.address {
        IpAddr::V4(_) => "224.0.0.0/4",
        IpAddr::V6(_) => "ff00::/8",
    };
    let comment = owner.iptables_comment();
    let comment = ["-m", "comment", "--comment", &comment];
    let commented = |words: &[&str]| rule(words.iter().copied().chain(comment));
    (
        [
            commented(&["-d", &address.network().to_string(), "-j", "ACCEPT"]),
            commented(&["!", "-d", multicast, "-j", "MASQUERADE"]),
        ],
        commented(&["-s", &address.address.to_string(), "-j", &owner.chain()]),
    )
}

fn set_up_iptables(address: Cidr, owner: &Owner) -> Result<()> {
    let iptables = Iptables::find(Protocol::of(address.address))
        .context(|| "failed to locate iptables".to_owned())?;
    let chain = owner.chain();
    let ([own, others], entry) = iptables_rules(address, owner);
    let rules = [(&*chain, own), (&chain, others), ("POSTROUTING", entry)];
    Ok(iptables.add_chain("nat", &chain, &rules)?)
}

/// Returns whether iptables can read the table of a protocol here. Where it cannot, no rules are there either.
fn has_table(protocol: Protocol) -> bool {
    Iptables::find(protocol).is_ok_and(|iptables| iptables.list("nat", "POSTROUTING").is_ok())
}

fn delete_iptables(protocol: Protocol, chain: &str, addresses: Option<&[Cidr]>) -> Result<()> {
    let iptables = Iptables::find(protocol).context(|| "failed to locate iptables".to_owned())?;
    if iptables.has_chain("nat", chain)? {
        let is_ours = |rule: &ListedRule| match addresses {
            None => true,
            Some(addresses) => is_from(rule, addresses),
        };
        iptables.delete_jumps("nat", "POSTROUTING", chain, is_ours)?;
    }
    Ok(())
}

/// Returns whether a rule selects what one of the addresses sends.
fn is_from(rule: &ListedRule, addresses: &[Cidr]) -> bool {
    let source = rule.after("-s").map(str::parse::<Cidr>);
    source.is_some_and(|source| {
        source.is_ok_and(|source| addresses.iter().any(|cidr| cidr.address == source.address))
    })
}

fn gc_iptables(protocol: Protocol, network: &str, valid: &HashSet<String>) -> Result<()> {
    let iptables = Iptables::find(protocol).context(|| "failed to locate iptables".to_owned())?;
    let prefix = format!("name: {} id: ", quoted(network));
    Ok(iptables.delete_stale_chains("nat", "POSTROUTING", &prefix, valid)?)
}

fn set_up_nftables(addresses: &[Cidr], owner: &Owner) -> Result<()> {
    let prefix = owner.hash();
    let mut netlink =
        Netlink::open_netfilter().context(|| "failed to open a netlink socket".to_owned())?;
    let add = |netlink: &mut Netlink, transaction: &mut Transaction| {
        add_skeleton(transaction);
        netlink.delete_rules(transaction, TABLE, CHECKS, |rule| {
            rule.comment
                .as_deref()
                .is_some_and(|comment| comment.starts_with(&prefix))
        })?;
        for address in addresses {
            transaction.add_rule(&masquerade_rule(*address, owner));
        }
        Ok(())
    };
    netlink
        .commit_over_rules(add)
        .context(|| "failed to add the nftables rules that masquerade".to_owned())
}

/// Adds the table and its chains; the base chain gets its rules anew, since another version may have written others.
fn add_skeleton(transaction: &mut Transaction) {
    let hook = Hook {
        kind: "nat",
        point: HookPoint::Postrouting,
        priority: SOURCE_NAT,
        states_policy: false,
    };
    let multicast = [
        Cidr::new(IpAddr::from([224, 0, 0, 0]), 4),
        Cidr::new(IpAddr::from([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8),
    ];
    transaction
        .add_table(TABLE, Some(TABLE_COMMENT))
        .add_chain(TABLE, CHECKS, Some(CHECKS_COMMENT))
        .add_base_chain(TABLE, POSTROUTING, hook)
        .flush_chain(TABLE, POSTROUTING);
    for network in multicast {
        let rule = Rule::new(TABLE, POSTROUTING)
            .address(Side::Destination, Compare::Equal, network)
            .verdict(Verdict::Return);
        transaction.add_rule(&rule);
    }
    transaction.add_rule(&Rule::new(TABLE, POSTROUTING).verdict(Verdict::Goto(CHECKS)));
}

fn masquerade_rule(address: Cidr, owner: &Owner) -> Rule {
    Rule::new(TABLE, CHECKS)
        .address(Side::Source, Compare::Equal, Cidr::host(address.address))
        .address(Side::Destination, Compare::Different, address.network())
        .masquerade()
        .comment(&owner.comment())
}

/// Deletes the rules whose comment is selected. A kernel without nftables has none.
fn delete_nftables(is_selected: impl Fn(&str) -> bool) -> std::result::Result<(), String> {
    let has_comment =
        |rule: &nftables::ListedRule| rule.comment.as_deref().is_some_and(&is_selected);
    let delete = |netlink: &mut Netlink, transaction: &mut Transaction| {
        netlink.delete_rules(transaction, TABLE, CHECKS, has_comment)
    };
    let outcome =
        Netlink::open_netfilter().and_then(|mut netlink| netlink.commit_over_rules(delete));
    match outcome {
        Err(error) if super::supports_nftables() => Err(format!(
            "failed to delete the nftables rules that masquerade: {error}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(ifname: &str, container_id: &str) -> Owner {
        Owner {
            network: "net1".to_owned(),
            ifname: ifname.to_owned(),
            container_id: container_id.to_owned(),
        }
    }

    #[test]
    fn nftables_rules_are_what_nft_sends() {
        let owner = owner("eth0", "cid1");
        let mut transaction = Transaction::new();
        add_skeleton(&mut transaction);
        for address in ["10.9.0.5/22", "fd00:9::5/64"] {
            transaction.add_rule(&masquerade_rule(address.parse().unwrap(), &owner));
        }
        assert_eq!(
            transaction.lines(),
            include_str!("../../tests/fixtures/nftables/masquerade.txt")
        );
    }

    #[test]
    fn comment_is_cut_at_what_nft_prints() {
        let owner = owner("eth0", &"0123456789abcdef".repeat(5));
        let comment = owner.comment();
        assert_eq!(comment.len(), COMMENT_LENGTH);
        assert!(comment.starts_with(&format!(
            "{}, net: net1, if: eth0, id: 0123456789abcdef",
            owner.hash()
        )));
    }

    #[test]
    fn iptables_rules_have_the_names_of_the_reference() {
        let owner = owner("eth0", "cid1");
        let ([own, others], entry) = iptables_rules("10.9.0.5/22".parse().unwrap(), &owner);
        assert_eq!(
            own.join(" "),
            r#"-d 10.9.0.0/22 -j ACCEPT -m comment --comment name: "net1" id: "cid1""#
        );
        assert_eq!(
            others.join(" "),
            r#"! -d 224.0.0.0/4 -j MASQUERADE -m comment --comment name: "net1" id: "cid1""#
        );
        assert_eq!(
            entry[..4],
            ["-s", "10.9.0.5", "-j", "CNI-e8f6f419596f7f47b3468487"]
        );
    }
}
