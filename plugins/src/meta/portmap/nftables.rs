//! The rules of portmap for nftables: a table for each family, with one rule for each port. Its comment is the container's ID, by which the
//! reference finds all rules of a container; ours say of which attachment they are, too.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use super::{Binding, Config, Target};
use crate::config::portmap::port_number;
use crate::error::{Context, Result, bail, failure};
use crate::filter::{hash, supports_nftables};
use crate::ip::Cidr;
use crate::kernel::nftables::{
    Compare, DESTINATION_NAT, Family, Hook, HookPoint, ListedRule, Rule, SOURCE_NAT, Side, Table,
    Transaction, Verdict,
};
use crate::kernel::{Errno, Netlink};

const TABLE: &str = "cni_hostport";
const TABLE_COMMENT: &str = "CNI portmap plugin";
/// Leads to the next two.
const ALL: &str = "hostports_all";
/// Had the rules with a host's address, in versions before 1.6.
const WITH_ADDRESS: &str = "hostip_hostports";
const HOST_PORTS: &str = "hostports";
const MASQUERADING: &str = "masquerading";
/// The base chains that lead to `ALL`.
const ENTRIES: [(&str, HookPoint); 2] = [
    ("prerouting", HookPoint::Prerouting),
    ("output", HookPoint::Output),
];
/// How long comments may be for `nft`.
const COMMENT_LENGTH: usize = 128;
/// How long owners are; the kernel takes 256 bytes of comment and owner.
const OWNER_LENGTH: usize = 32;

impl Target<'_> {
    /// Returns what tells the rules of the container's attachments apart.
    fn owner(&self) -> String {
        let mut owner = hash(&format!("{}:{}", self.network, self.ifname));
        owner.truncate(OWNER_LENGTH);
        owner
    }

    /// Returns whether a rule is of the attachment with these addresses; without any, the container is gone, and with it all of its
    /// attachments. A rule without an owner is of the reference.
    fn has(&self, rule: &ListedRule, addresses: Option<&[IpAddr]>) -> bool {
        let is_ours = match (addresses, &rule.owner) {
            (None, _) => true,
            (Some(_), Some(owner)) => *owner == self.owner(),
            (Some(addresses), None) => addresses.iter().any(|address| rule.has_address(*address)),
        };
        is_ours && rule.comment.as_deref() == Some(self.container_id)
    }
}

const fn table(family: Family) -> Table {
    Table {
        family,
        name: TABLE,
    }
}

/// Forwards the ports to one address of the container.
pub(super) fn forward(target: &Target<'_>, container: Cidr) -> Result<()> {
    let what = || "unable to set up nftables rules for port mappings".to_owned();
    if target.container_id.len() > COMMENT_LENGTH {
        bail!(
            "{}: the container's ID has more than {COMMENT_LENGTH} characters",
            what()
        );
    }
    let address = container.address;
    let conditions = target.config.conditions(address);
    let mut transaction = Transaction::new();
    add_chains(&mut transaction, target.config, address);
    for rule in rules(target, address)? {
        transaction.add_rule(&rule.owner(&target.owner()));
    }
    let mut netlink = Netlink::open_netfilter().context(what)?;
    netlink.commit(transaction).context(what)?;
    if conditions.is_empty() {
        Ok(())
    } else {
        run_nft(&entry_script(Family::of(address), conditions)).context(what)
    }
}

/// Adds the table and the chains; those that every container shares get their rules anew, since another version may have written
/// others.
fn add_chains(transaction: &mut Transaction, config: &Config, address: IpAddr) {
    let table = table(Family::of(address));
    let nat = |point, priority| Hook {
        kind: "nat",
        point,
        priority,
        states_policy: false,
    };
    transaction
        .add_table(table, Some(TABLE_COMMENT))
        .add_chain(table, HOST_PORTS, None)
        .add_chain(table, WITH_ADDRESS, None)
        .add_chain(table, ALL, None)
        .flush_chain(table, ALL);
    for chain in [WITH_ADDRESS, HOST_PORTS] {
        transaction.add_rule(&Rule::new(table, ALL).verdict(Verdict::Jump(chain)));
    }
    for (chain, point) in ENTRIES {
        transaction.add_base_chain(table, chain, nat(point, DESTINATION_NAT));
        // Conditions are in nft's own words, and only nft can read them. It replaces the rule at once, so that the ports of all
        // other containers stay open whatever becomes of it.
        if config.conditions(address).is_empty() {
            let rule = Rule::new(table, chain)
                .local_destination()
                .verdict(Verdict::Jump(ALL));
            transaction.flush_chain(table, chain).add_rule(&rule);
        }
    }
    if config.snat() {
        let hook = nat(HookPoint::Postrouting, SOURCE_NAT);
        transaction.add_base_chain(table, MASQUERADING, hook);
    }
}

/// Returns the rules of the container.
fn rules(target: &Target<'_>, address: IpAddr) -> Result<Vec<Rule>> {
    let table = table(Family::of(address));
    let mut rules = Vec::new();
    for mapping in target.config.mappings() {
        let rule = Rule::new(table, HOST_PORTS);
        let rule = match mapping.binding(address)? {
            Binding::OtherFamily => continue,
            Binding::Any => rule,
            Binding::Address(host) => {
                rule.address(Side::Destination, Compare::Equal, Cidr::host(host))
            }
        };
        let rule = rule
            .destination_port(
                protocol_number(&mapping.protocol)?,
                port_number(mapping.host_port),
            )
            .dnat(address, port_number(mapping.container_port));
        rules.push(rule.comment(target.container_id));
    }
    if target.config.snat() && target.config.masq_all {
        let rule = Rule::new(table, MASQUERADING)
            .address(Side::Destination, Compare::Equal, Cidr::host(address))
            .replaced_destination()
            .masquerade();
        rules.push(rule.comment(target.container_id));
    } else if target.config.snat() {
        // The answers to these would bypass the host: to the container itself, and to the host's loopback address.
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let sources = [Some(address), address.is_ipv4().then_some(loopback)];
        for source in sources.into_iter().flatten() {
            let rule = Rule::new(table, MASQUERADING)
                .address(Side::Source, Compare::Equal, Cidr::host(source))
                .address(Side::Destination, Compare::Equal, Cidr::host(address))
                .masquerade();
            rules.push(rule.comment(target.container_id));
        }
    }
    Ok(rules)
}

fn protocol_number(name: &str) -> Result<u8> {
    match name {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "dccp" => Ok(33),
        "sctp" => Ok(132),
        "udplite" => Ok(136),
        _ => Err(failure!(
            "unable to set up nftables rules for port mappings: unknown protocol {name:?}"
        )),
    }
}

/// Returns the rules of the base chains with the conditions in front, for `nft`.
fn entry_script(family: Family, conditions: &[String]) -> String {
    let table = match family {
        Family::Ipv6 => format!("ip6 {TABLE}"),
        _ => format!("ip {TABLE}"),
    };
    let conditions = conditions.join(" ");
    let entries = ENTRIES.map(|(chain, _)| {
        format!(
            "flush chain {table} {chain}\n\
             add rule {table} {chain} {conditions} fib daddr type local jump {ALL}\n"
        )
    });
    entries.concat()
}

fn run_nft(script: &str) -> Result<()> {
    let failed = |error: std::io::Error| failure!("cannot run nft: {error}");
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // A program that ends before it has read everything says why on stderr.
    let _ = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        Ok(())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(failure!("nft: {}", stderr.trim_end()))
    }
}

/// Fails unless there are as many rules of the container as ADD made.
pub(super) fn check(target: &Target<'_>, container: Cidr) -> Result<()> {
    let address = container.address;
    let mut host_ports = 0;
    for mapping in target.config.mappings() {
        if mapping.binding(address)? != Binding::OtherFamily {
            host_ports += 1;
        }
    }
    let masquerading = match (target.config.snat(), address.is_ipv4()) {
        (false, _) => 0,
        (true, true) if !target.config.masq_all => 2,
        (true, _) => 1,
    };
    let mut netlink =
        Netlink::open_netfilter().context(|| "failed to open a netlink socket".to_owned())?;
    for (chain, expected) in [(HOST_PORTS, host_ports), (MASQUERADING, masquerading)] {
        let rules = netlink
            .rules(table(Family::of(address)), chain)
            .context(|| format!("could not list rules in table {TABLE}"))?;
        let found = rules
            .iter()
            .filter(|rule| rule.comment.as_deref() == Some(target.container_id))
            .count();
        if found < expected {
            bail!("missing hostport rules in {chain:?} chain");
        }
    }
    Ok(())
}

/// Deletes the rules of the attachment in both families. A kernel without nftables has none.
pub(super) fn stop(target: &Target<'_>, addresses: Option<&[IpAddr]>) -> Result<()> {
    match delete_in_both_families(|rule| target.has(rule, addresses)) {
        Err(error) if supports_nftables() => {
            Err(error).context(|| "error deleting nftables rules".to_owned())
        }
        _ => Ok(()),
    }
}

fn delete_in_both_families(
    is_selected: impl Fn(&ListedRule) -> bool,
) -> std::result::Result<(), Errno> {
    let mut netlink = Netlink::open_netfilter()?;
    let outcomes = [Family::Ipv4, Family::Ipv6].map(|family| {
        netlink.commit_over_rules(|netlink, transaction| {
            let mut chains = [HOST_PORTS, WITH_ADDRESS, MASQUERADING].into_iter();
            chains.try_for_each(|chain| {
                netlink.delete_rules(transaction, table(family), chain, &is_selected)
            })
        })
    });
    // One family is cleared even when the other fails.
    outcomes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_what_nft_sends() {
        let config: Config = serde_json::from_value(serde_json::json!({
            "runtimeconfig": {"portmappings": [
                {"hostport": 8080, "containerport": 80, "protocol": "tcp"},
                {"hostport": 8081, "containerport": 81, "protocol": "udp", "hostip": "10.4.0.1"},
                {"hostport": 8082, "containerport": 82, "protocol": "sctp", "hostip": "fd00:4::1"},
                {"hostport": 8083, "containerport": 83, "protocol": "tcp", "hostip": "::"},
            ]}
        }))
        .unwrap();
        let target = Target::for_test(&config);
        let lines = ["10.4.0.5", "fd00:4::5"].map(|address| {
            let address = address.parse().unwrap();
            let mut transaction = Transaction::new();
            add_chains(&mut transaction, &config, address);
            for rule in rules(&target, address).unwrap() {
                transaction.add_rule(&rule);
            }
            transaction.lines()
        });
        assert_eq!(
            lines.concat(),
            include_str!("../../../tests/fixtures/nftables/portmap.txt")
        );
    }

    #[test]
    fn entry_rules_stay_until_nft_has_read_the_conditions() {
        let changes_of_entries = |json| {
            let config: Config = serde_json::from_value(json).unwrap();
            let mut transaction = Transaction::new();
            add_chains(&mut transaction, &config, [10, 4, 0, 5].into());
            let changes = transaction.lines();
            let is_of_entry = |line: &&str| {
                let kind = line.split(' ').next().unwrap();
                ["0a06", "0a08"].contains(&kind)
                    && ENTRIES
                        .iter()
                        .any(|(chain, _)| line.contains(&crate::filter::hex(chain.as_bytes())))
            };
            changes.lines().filter(is_of_entry).count()
        };
        let with = serde_json::json!({"conditionsv4": ["ip", "saddr", "1.2.3.4"]});
        assert_eq!(changes_of_entries(with), 0);
        assert_eq!(changes_of_entries(serde_json::json!({})), 4);
    }

    #[test]
    fn all_forwarded_connections_are_masqueraded_on_request() {
        let masquerading = |json| {
            let config: Config = serde_json::from_value(json).unwrap();
            let target = Target::for_test(&config);
            let mut transaction = Transaction::new();
            for rule in rules(&target, [10, 4, 0, 5].into()).unwrap() {
                transaction.add_rule(&rule);
            }
            transaction.lines()
        };
        // `ct`, and the key of the status with the register.
        let forwarded = "07000100637400001400028008000200000000020800010000000001";
        let all = masquerading(serde_json::json!({"masqall": true}));
        assert_eq!(all.lines().count(), 1, "{all}");
        assert!(all.contains(forwarded), "{all}");
        let some = masquerading(serde_json::json!({}));
        assert_eq!(some.lines().count(), 2, "{some}");
        assert!(!some.contains(forwarded), "{some}");
        let none = masquerading(serde_json::json!({"masqall": true, "snat": false}));
        assert_eq!(none, "");
    }

    #[test]
    fn conditions_come_first() {
        let conditions = ["ip", "saddr", "1.2.3.4"].map(str::to_owned);
        assert_eq!(
            entry_script(Family::Ipv4, &conditions),
            "flush chain ip cni_hostport prerouting\n\
             add rule ip cni_hostport prerouting ip saddr 1.2.3.4 fib daddr type local jump hostports_all\n\
             flush chain ip cni_hostport output\n\
             add rule ip cni_hostport output ip saddr 1.2.3.4 fib daddr type local jump hostports_all\n"
        );
    }
}
