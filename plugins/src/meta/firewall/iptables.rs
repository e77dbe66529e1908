//! The rules of firewall for iptables, in the table `filter`: `FORWARD` leads to `CNI-FORWARD`, and that to the administrator's
//! chain first, then through two rules for each address.

use crate::error::{Context, Result, bail, warn};
use crate::filter::iptables::{Chain, Error, Iptables, Place, Placed, Protocol, rule, shown};
use crate::ip::Cidr;

const TABLE: &str = "filter";
const FORWARD: &str = "FORWARD";
const OWN: &str = "CNI-FORWARD";

/// Lets the addresses through, after the rules of the administrator's chain.
pub(super) fn add(admin: &str, addresses: &[Cidr]) -> Result<()> {
    for (iptables, rules) in by_protocol(addresses)? {
        add_rules(&iptables, admin, &rules)?;
    }
    Ok(())
}

fn add_rules(
    iptables: &Iptables,
    admin: &str,
    rules: &[Vec<String>],
) -> std::result::Result<(), Error> {
    let entries = entries(admin).map(|(chain, rule)| Placed {
        chain,
        place: Place::First,
        rule,
    });
    iptables.ensure_shared(TABLE, &[OWN, admin], &entries)?;
    rules
        .iter()
        .try_for_each(|rule| iptables.add(Chain::Existing, Place::Last, TABLE, OWN, rule))
}

pub(super) fn check(admin: &str, addresses: &[Cidr]) -> Result<()> {
    for (iptables, rules) in by_protocol(addresses)? {
        for (chain, rule) in entries(admin) {
            if !has_rule(&iptables, chain, &rule)? {
                bail!("expected {chain} rule {} not found", shown(&rule));
            }
        }
        for rule in &rules {
            if !has_rule(&iptables, OWN, rule)? {
                bail!("expected rule {} not found", shown(rule));
            }
        }
    }
    Ok(())
}

/// Deletes the rules of every protocol, and reports the first failure. Where the table cannot even be read, it has no rules.
pub(super) fn del(addresses: &[Cidr]) -> Result<()> {
    let mut outcome = Ok(());
    for (iptables, rules) in by_protocol(addresses)? {
        for rule in &rules {
            match iptables.delete_if_present(TABLE, OWN, rule) {
                Err(error) if iptables.list(TABLE, FORWARD).is_ok() => {
                    outcome = outcome.and(Err(error.into()));
                }
                Err(error) => warn(&error.to_string()),
                Ok(()) => {}
            }
        }
    }
    outcome
}

/// Returns whether a rule is there; one that leads to a chain that is not there is not.
fn has_rule(iptables: &Iptables, chain: &str, rule: &[String]) -> Result<bool> {
    match iptables.has_rule(TABLE, chain, rule) {
        Err(error) if error.is_not_understood() => Ok(false),
        outcome => Ok(outcome?),
    }
}

/// Returns the rules that lead to the plugin's chain and from there to the administrator's, each with its chain.
fn entries(admin: &str) -> [(&'static str, Vec<String>); 2] {
    let entry = |comment, chain| rule(["-m", "comment", "--comment", comment, "-j", chain]);
    [
        (FORWARD, entry("CNI firewall plugin rules", OWN)),
        (OWN, entry("CNI firewall plugin admin overrides", admin)),
    ]
}

/// Returns the rules for the addresses of each protocol that has some, with its program.
fn by_protocol(addresses: &[Cidr]) -> Result<Vec<(Iptables, Vec<Vec<String>>)>> {
    let mut found = Vec::new();
    for (number, protocol) in [Protocol::V4, Protocol::V6].into_iter().enumerate() {
        let addresses = addresses.iter().copied();
        let rules: Vec<_> = addresses
            .filter(|cidr| Protocol::of(cidr.address) == protocol)
            .flat_map(rules)
            .collect();
        if !rules.is_empty() {
            let iptables = Iptables::find(protocol)
                .context(|| format!("could not initialize iptables protocol {number}"))?;
            found.push((iptables, rules));
        }
    }
    Ok(found)
}

/// Returns the rules for an address: answers to it, and everything from it.
fn rules(address: Cidr) -> [Vec<String>; 2] {
    let address = address.to_string();
    let answers = "RELATED,ESTABLISHED";
    [
        rule([
            "-d",
            &address,
            "-m",
            "conntrack",
            "--ctstate",
            answers,
            "-j",
            "ACCEPT",
        ]),
        rule(["-s", &address, "-j", "ACCEPT"]),
    ]
}
