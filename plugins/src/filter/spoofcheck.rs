//! The check of a bridge's port against spoofing: frames whose sender is not the container's hardware address are dropped.
//!
//! In the table `nat` of the family `bridge` the base chain leads the frames of a port to a chain of its own, and that to one for
//! the check. The names end in the reference of the attachment.

use crate::error::{Context, Result};
use crate::kernel::nftables::{Family, Hook, HookPoint, Rule, Table, Transaction, Verdict};
use crate::kernel::{Errno, Netlink};

const TABLE: Table = Table {
    family: Family::Bridge,
    name: "nat",
};
const PREROUTING: &str = "PREROUTING";
/// Before all of the bridge's own chains.
const PRIORITY: i32 = -300;

/// The names of one attachment's chains and rules.
struct Names {
    port: String,
    check: String,
    comment: String,
}

impl Names {
    fn of(reference: &str) -> Self {
        Self {
            port: format!("cni-br-iface-{reference}"),
            check: format!("cni-br-iface-{reference}-mac"),
            comment: format!("macspoofchk-{reference}"),
        }
    }
}

/// Lets the host's end of a container's pair, `ifname`, send only from `mac`. `reference` identifies the attachment.
pub(crate) fn set_up(ifname: &str, mac: &[u8], reference: &str) -> Result<()> {
    let what = || "failed to setup spoof-check".to_owned();
    let mut netlink = Netlink::open_netfilter().context(what)?;
    let names = Names::of(reference);
    let add = |netlink: &mut Netlink, transaction: &mut Transaction| {
        delete_jumps(netlink, transaction, &names)?;
        add_chains(transaction, &names);
        for rule in rules(ifname, mac, &names) {
            transaction.add_rule(&rule);
        }
        Ok(())
    };
    netlink.commit_over_rules(add).context(what)
}

/// Deletes the chains and rules of an attachment.
pub(crate) fn tear_down(reference: &str) -> Result<()> {
    let what = || "failed to teardown spoof-check".to_owned();
    let mut netlink = Netlink::open_netfilter().context(what)?;
    let names = Names::of(reference);
    netlink
        .commit_over_rules(|netlink, transaction| delete_jumps(netlink, transaction, &names))
        .context(what)?;
    for chain in [&names.port, &names.check] {
        let mut transaction = Transaction::new();
        transaction.delete_chain(TABLE, chain);
        match netlink.commit(transaction) {
            Err(Errno::ENOENT) => {}
            outcome => outcome.context(what)?,
        }
    }
    Ok(())
}

fn delete_jumps(
    netlink: &mut Netlink,
    transaction: &mut Transaction,
    names: &Names,
) -> std::result::Result<(), Errno> {
    netlink.delete_rules(transaction, TABLE, PREROUTING, |rule| {
        rule.comment.as_ref() == Some(&names.comment)
    })
}

fn add_chains(transaction: &mut Transaction, names: &Names) {
    let hook = Hook {
        kind: "filter",
        point: HookPoint::Prerouting,
        priority: PRIORITY,
        states_policy: true,
    };
    transaction
        .add_table(TABLE, None)
        .add_base_chain(TABLE, PREROUTING, hook)
        .add_chain(TABLE, &names.port, None)
        .add_chain(TABLE, &names.check, None)
        .flush_chain(TABLE, &names.port)
        .flush_chain(TABLE, &names.check);
}

fn rules(ifname: &str, mac: &[u8], names: &Names) -> [Rule; 4] {
    let rules = [
        Rule::new(TABLE, PREROUTING)
            .incoming_link(ifname)
            .verdict(Verdict::Jump(&names.port)),
        Rule::new(TABLE, &names.port).verdict(Verdict::Jump(&names.check)),
        Rule::new(TABLE, &names.check)
            .sender_mac(mac)
            .verdict(Verdict::Return),
        Rule::new(TABLE, &names.check).verdict(Verdict::Drop),
    ];
    rules.map(|rule| rule.comment(&names.comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_what_nft_sends() {
        let names = Names::of("cid1-eth0");
        let mut transaction = Transaction::new();
        add_chains(&mut transaction, &names);
        for rule in rules(
            "veth070fcff5",
            &[0x96, 0xd2, 0x00, 0x2c, 0xd2, 0x65],
            &names,
        ) {
            transaction.add_rule(&rule);
        }
        assert_eq!(
            transaction.lines(),
            include_str!("../../tests/fixtures/nftables/spoofcheck.txt")
        );
    }
}
