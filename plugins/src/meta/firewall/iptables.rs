//! The rules of firewall for iptables, in the table `filter`: `FORWARD` leads to `CNI-FORWARD`, and that to the administrator's
//! chain first, then through two rules for each address.

use crate::error::{Context, Result, bail, warn};
use crate::filter::iptables::{Chain, Error, Iptables, Place, Placed, Protocol, rule, shown};
use crate::ip::Cidr;

const TABLE: &str = "filter";
const FORWARD: &str = "FORWARD";
const OWN: &str = "CNI-FORWARD";

pub(super) struct Chains<'a> {
    admin: &'a str,
}

impl<'a> Chains<'a> {
    /// Makes the backend with the administrator's chain of this name.
    pub(super) const fn new(admin: &'a str) -> Self {
        Self { admin }
    }

    pub(super) fn add(&self, addresses: &[Cidr]) -> Result<()> {
        for (iptables, rules) in by_protocol(addresses)? {
            self.add_rules(&iptables, &rules)?;
        }
        Ok(())
    }

    fn add_rules(
        &self,
        iptables: &Iptables,
        rules: &[Vec<String>],
    ) -> std::result::Result<(), Error> {
        let entry = |chain, rule| Placed {
            chain,
            place: Place::First,
            rule,
        };
        let entries = [entry(FORWARD, own_entry()), entry(OWN, self.admin_entry())];
        iptables.ensure_shared(TABLE, &[OWN, self.admin], &entries)?;
        rules
            .iter()
            .try_for_each(|rule| iptables.add(Chain::Existing, Place::Last, TABLE, OWN, rule))
    }

    pub(super) fn check(&self, addresses: &[Cidr]) -> Result<()> {
        for (iptables, rules) in by_protocol(addresses)? {
            for (chain, rule) in [(FORWARD, own_entry()), (OWN, self.admin_entry())] {
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

    /// Returns the rule that leads to the administrator's chain.
    fn admin_entry(&self) -> Vec<String> {
        rule([
            "-m",
            "comment",
            "--comment",
            "CNI firewall plugin admin overrides",
            "-j",
            self.admin,
        ])
    }
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

/// Returns the rule that leads to the plugin's chain.
fn own_entry() -> Vec<String> {
    rule([
        "-m",
        "comment",
        "--comment",
        "CNI firewall plugin rules",
        "-j",
        OWN,
    ])
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
