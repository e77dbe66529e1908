//! The rules of portmap for iptables, all in the table `nat`.
//!
//! `PREROUTING` and `OUTPUT` lead packets to addresses of the host to `CNI-HOSTPORT-DNAT`, and that leads each container's ports to
//! a chain of the container. Packets whose source must change, since the answer would bypass the host otherwise, get a mark there,
//! and `POSTROUTING` masquerades what has it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Binding, Config, Target};
use crate::error::{Context, Result, bail, failure, join_failures};
use crate::filter::chain_name;
use crate::filter::iptables::{Error, Iptables, ListedRule, Place, Placed, Protocol, rule, shown};
use crate::ip::Cidr;

const TABLE: &str = "nat";
const DNAT: &str = "CNI-HOSTPORT-DNAT";
const SET_MARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQUERADE: &str = "CNI-HOSTPORT-MASQ";
/// Where versions before 0.7 had a chain for each container.
const OLD_SNAT: &str = "CNI-HOSTPORT-SNAT";

/// How many ports one match of `multiport` takes.
const PORTS_OF_MATCH: usize = 15;
/// How long a comment may be.
const COMMENT_LENGTH: usize = 255;

/// The chain of a container.
struct Chain {
    name: String,
    rules: Vec<Vec<String>>,
    /// Which packets `DNAT` leads here.
    entries: Vec<Vec<String>>,
}

impl Chain {
    fn set_up(&self, iptables: &Iptables) -> std::result::Result<(), Error> {
        let own = self.rules.iter().map(|rule| (&*self.name, rule.clone()));
        let entries = self.entries.iter();
        let entries = entries.map(|entry| (DNAT, jump(entry, &self.name)));
        iptables.add_chain(TABLE, &self.name, &own.chain(entries).collect::<Vec<_>>())
    }

    fn check(&self, iptables: &Iptables) -> Result<()> {
        if !iptables.has_chain(TABLE, &self.name)? {
            bail!("chain {} not found in iptables table {TABLE}", self.name);
        }
        let is_missing = |chain: &str, rule: &[String]| {
            let is_there = iptables.has_rule(TABLE, chain, rule);
            !is_there.unwrap_or(false)
        };
        let missing = |chain: &str, all: &[Vec<String>]| {
            let all: Vec<_> = all.iter().map(|rule| shown(rule)).collect();
            failure!(
                "rule [{}] in chain {chain} not found in table {TABLE}",
                all.join(" ")
            )
        };
        if self.rules.iter().any(|rule| is_missing(&self.name, rule)) {
            return Err(missing(&self.name, &self.rules));
        }
        let mut entries = self.entries.iter().map(|entry| jump(entry, &self.name));
        if entries.any(|rule| is_missing(DNAT, &rule)) {
            return Err(missing(DNAT, &self.entries));
        }
        Ok(())
    }
}

/// Returns the rule that leads some packets to a chain.
fn jump(entry: &[String], chain: &str) -> Vec<String> {
    entry.iter().cloned().chain(rule(["-j", chain])).collect()
}

/// A chain that all containers share.
struct Shared {
    name: &'static str,
    /// Its rules, and those that lead there.
    rules: Vec<Placed>,
    /// The error's text when it cannot be made.
    failure: &'static str,
}

/// Forwards the ports to one address of the container.
pub(super) fn forward(target: &Target<'_>, container: Cidr) -> Result<()> {
    let iptables = Iptables::find(Protocol::of(container.address))
        .context(|| "failed to open iptables".to_owned())?;
    let config = target.config;
    for shared in shared_chains(config) {
        iptables
            .ensure_shared(TABLE, &[shared.name], &shared.rules)
            .context(|| shared.failure.to_owned())?;
    }
    container_chain(target, container)?
        .set_up(&iptables)
        .context(|| "unable to setup DNAT".to_owned())
}

/// Fails unless the rules for one address of the container are there.
pub(super) fn check(target: &Target<'_>, container: Cidr) -> Result<()> {
    let (protocol, program, family) = if container.address.is_ipv4() {
        (Protocol::V4, "iptables", "ipv4")
    } else {
        (Protocol::V6, "ip6tables", "ipv6")
    };
    let iptables = Iptables::find(protocol).map_err(|error| {
        failure!(
            "neither iptables nor ip6tables is usable, ({program}) {}",
            error.msg
        )
    })?;
    container_chain(target, container)?
        .check(&iptables)
        .context(|| format!("could not check {family} dnat"))
}

/// Deletes the rules of the attachment with these addresses for both protocols, of which at least one must be usable. The container's chains
/// go with the last attachment in this network, and all of them without addresses.
pub(super) fn stop(target: &Target<'_>, addresses: Option<&[IpAddr]>) -> Result<()> {
    let mut unusable = Vec::new();
    let mut errors = Vec::new();
    for (protocol, program, family) in [
        (Protocol::V4, "iptables", "ipv4"),
        (Protocol::V6, "ip6tables", "ipv6"),
    ] {
        let usable = Iptables::find(protocol).and_then(|iptables| {
            let chains = chains(&iptables, target)?;
            Ok((iptables, chains))
        });
        match usable {
            Ok((iptables, chains)) => {
                if let Err(error) = delete_rules(&iptables, &chains, addresses) {
                    errors.push(format!("could not teardown {family} dnat: {error}"));
                }
            }
            Err(error) => unusable.push(format!("({program}) {}", error.msg)),
        }
    }
    if unusable.len() == 2 {
        errors.push(format!(
            "neither iptables nor ip6tables is usable, {}",
            unusable.join(", ")
        ));
    }
    join_failures(&errors, "\n")
}

/// Deletes the chains of a network's containers, but those of the `valid` ones.
pub(super) fn gc(network: &str, valid: &[&str]) -> Result<()> {
    let prefix = format!("dnat name: \"{network}\" id: ");
    let valid = valid.iter().map(|id| comment(network, id)).collect();
    for protocol in [Protocol::V4, Protocol::V6] {
        // What cannot be found or used here has no chains.
        let iptables = Iptables::find(protocol).ok();
        let usable = iptables.filter(|iptables| iptables.has_chain(TABLE, DNAT).unwrap_or(false));
        if let Some(iptables) = usable {
            iptables
                .delete_stale_chains(TABLE, DNAT, &prefix, &valid)
                .context(|| "could not delete stale port mappings".to_owned())?;
        }
    }
    Ok(())
}

/// Returns the chains of the container that are there, each with the one that leads there. A node may have so many rules of others
/// that nothing but these chains is listed.
fn chains(
    iptables: &Iptables,
    target: &Target<'_>,
) -> std::result::Result<Vec<(&'static str, String)>, Error> {
    let mut found = Vec::new();
    for (parent, prefix) in [(DNAT, "DN-"), (OLD_SNAT, "SN-")] {
        let name = chain_name(prefix, target.network, target.container_id);
        if iptables.has_chain(TABLE, &name)? {
            found.push((parent, name));
        }
    }
    Ok(found)
}

fn delete_rules(
    iptables: &Iptables,
    chains: &[(&str, String)],
    addresses: Option<&[IpAddr]>,
) -> std::result::Result<(), Error> {
    let own = chains.iter().find(|(parent, _)| *parent == DNAT);
    if let (Some((parent, name)), Some(addresses)) = (own, addresses) {
        let rules = iptables.list(TABLE, name)?;
        let kept = ports_of_others(&rules, addresses);
        if !kept.is_empty() {
            let jumps = iptables.list(TABLE, parent)?;
            let jumps = jumps.iter().filter(|rule| rule.target() == Some(name));
            let unused = rules.iter().map(|rule| (name.as_str(), rule));
            let unused = unused.chain(jumps.map(|rule| (*parent, rule)));
            let unused = unused.filter(|(_, rule)| is_unused(rule, addresses, &kept));
            let unused: Vec<_> = unused
                .map(|(chain, rule)| (chain, rule.words.clone()))
                .collect();
            return iptables.delete(TABLE, &unused, None);
        }
    }
    chains
        .iter()
        .try_for_each(|(parent, name)| iptables.delete_chain(TABLE, parent, name))
}

/// Returns protocol and port of the rules of a container's chain that forward to other addresses: those of other attachments.
fn ports_of_others(rules: &[ListedRule], addresses: &[IpAddr]) -> Vec<(String, String)> {
    let others = rules.iter().filter(|rule| {
        destination(rule).is_some_and(|destination| !addresses.contains(&destination))
    });
    others.flat_map(ports).collect()
}

/// Returns whether a rule forwards to one of these addresses, or marks or selects no port that other attachments keep.
fn is_unused(rule: &ListedRule, addresses: &[IpAddr], kept: &[(String, String)]) -> bool {
    match destination(rule) {
        Some(destination) => addresses.contains(&destination),
        None => !ports(rule).iter().any(|port| kept.contains(port)),
    }
}

/// Returns the address to which a rule forwards.
fn destination(rule: &ListedRule) -> Option<IpAddr> {
    let (address, _) = rule.after("--to-destination")?.rsplit_once(':')?;
    address.trim_matches(['[', ']']).parse().ok()
}

/// Returns the ports that a rule matches, each with its protocol.
fn ports(rule: &ListedRule) -> Vec<(String, String)> {
    let protocol = rule.after("-p").unwrap_or_default();
    let ports = rule.after("--dport").or_else(|| rule.after("--dports"));
    let ports = ports.unwrap_or_default().split(',');
    ports
        .map(|port| (protocol.to_owned(), port.to_owned()))
        .collect()
}

/// Returns the chains that the container's rules need, those that mark first, since the container's rules jump there.
fn shared_chains(config: &Config) -> Vec<Shared> {
    let placed = |chain, place, words: &[&str]| Placed {
        chain,
        place,
        rule: rule(words.iter().copied()),
    };
    let mut chains = Vec::new();
    if config.snat() && config.external_set_mark_chain.is_none() {
        let value = 1u64 << config.mark_bit();
        let mark = format!("{value:#x}/{value:#x}");
        let comment = ["-m", "comment", "--comment", "CNI portfwd masquerade mark"];
        let target = ["-j", "MARK", "--set-xmark", &mark];
        let set_mark = [comment, target].concat();
        chains.push(Shared {
            name: SET_MARK,
            rules: vec![placed(SET_MARK, Place::Last, &set_mark)],
            failure: "unable to create chain CNI-HOSTPORT-SETMARK",
        });
        let masquerade = ["-m", "mark", "--mark", &mark, "-j", "MASQUERADE"];
        let comment = "CNI portfwd requiring masquerade";
        let entry = ["-m", "comment", "--comment", comment, "-j", MASQUERADE];
        chains.push(Shared {
            name: MASQUERADE,
            rules: vec![
                placed(MASQUERADE, Place::Last, &masquerade),
                // The chains of bridge and ptp accept what stays in their network.
                placed("POSTROUTING", Place::First, &entry),
            ],
            failure: "unable to create chain CNI-HOSTPORT-MASQ",
        });
    }
    let entry = ["-m", "addrtype", "--dst-type", "LOCAL", "-j", DNAT];
    chains.push(Shared {
        name: DNAT,
        rules: ["PREROUTING", "OUTPUT"]
            .map(|chain| placed(chain, Place::Last, &entry))
            .to_vec(),
        failure: "failed to create top-level DNAT chain",
    });
    chains
}

/// Returns the chain of the container for one of its addresses.
fn container_chain(target: &Target<'_>, container: Cidr) -> Result<Chain> {
    Ok(Chain {
        name: chain_name("DN-", target.network, target.container_id),
        rules: forward_rules(target.config, container)?,
        entries: entry_rules(target, container),
    })
}

/// Returns the rules that select the packets to the ports: one for each protocol and as many ports as a match takes.
fn entry_rules(target: &Target<'_>, container: Cidr) -> Vec<Vec<String>> {
    let comment = comment(target.network, target.container_id);
    let mut ports: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for mapping in target.config.mappings() {
        let same_protocol = ports.entry(&mapping.protocol).or_default();
        same_protocol.push(mapping.host_port.to_string());
    }
    let conditions = target.config.conditions(container.address);
    let mut rules = Vec::new();
    for (protocol, ports) in ports {
        for ports in ports.chunks(PORTS_OF_MATCH) {
            let ports = ports.join(",");
            let mut words = rule([
                "-m",
                "comment",
                "--comment",
                &comment,
                "-m",
                "multiport",
                "-p",
                protocol,
                "--destination-ports",
                &ports,
            ]);
            words.extend_from_slice(conditions);
            rules.push(words);
        }
    }
    rules
}

/// Returns the rules that mark and forward; those that mark come before the one that ends the packet's way through the chain.
fn forward_rules(config: &Config, container: Cidr) -> Result<Vec<Vec<String>>> {
    let is_v4 = container.address.is_ipv4();
    let set_mark = config.external_set_mark_chain.as_deref();
    let set_mark = set_mark.unwrap_or(SET_MARK);
    let sources = match (config.snat(), config.masq_all, is_v4) {
        (false, ..) => Vec::new(),
        (true, true, true) => vec!["0.0.0.0/0".to_owned()],
        (true, true, false) => vec!["::/0".to_owned()],
        (true, false, true) => vec![container.to_string(), "127.0.0.1".to_owned()],
        (true, false, false) => vec![container.to_string()],
    };
    let mut rules = Vec::new();
    for mapping in config.mappings() {
        let port = mapping.host_port.to_string();
        let mut base = rule(["-p", &mapping.protocol, "--dport", &port]);
        match mapping.binding(container.address)? {
            Binding::OtherFamily => continue,
            Binding::Any => {}
            Binding::Address(_) => base.extend(rule(["-d", &mapping.host_ip])),
        }
        let with = |words: [&str; 4]| base.iter().cloned().chain(rule(words)).collect();
        for source in &sources {
            rules.push(with(["-s", source, "-j", set_mark]));
        }
        let destination = if is_v4 {
            format!("{}:{}", container.address, mapping.container_port)
        } else {
            format!("[{}]:{}", container.address, mapping.container_port)
        };
        rules.push(with(["-j", "DNAT", "--to-destination", &destination]));
    }
    Ok(rules)
}

fn comment(network: &str, container_id: &str) -> String {
    let mut comment = format!("dnat name: \"{network}\" id: \"{container_id}\"");
    if comment.len() > COMMENT_LENGTH {
        comment.truncate(comment.floor_char_boundary(COMMENT_LENGTH - 2));
        comment.push_str("...");
    }
    comment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: serde_json::Value) -> Config {
        serde_json::from_value(json).unwrap()
    }

    fn lines(rules: &[Vec<String>]) -> Vec<String> {
        rules.iter().map(|rule| rule.join(" ")).collect()
    }

    #[test]
    fn ports_are_selected_by_protocol_and_fifteen_at_a_time() {
        let mappings: Vec<_> = (0..17)
            .map(|port| serde_json::json!({"hostport": port + 1, "protocol": if port == 9 { "udp" } else { "tcp" }}))
            .collect();
        let config = config(
            serde_json::json!({"conditionsv4": ["-s", "1.2.3.4"], "runtimeconfig": {"portmappings": mappings}}),
        );
        let target = Target::for_test(&config);
        let rules = lines(&entry_rules(&target, "10.0.0.5/24".parse().unwrap()));
        let rule = |protocol: &str, ports: &str| {
            format!(
                "-m comment --comment dnat name: \"net1\" id: \"cid1\" -m multiport -p {protocol} --destination-ports {ports} -s 1.2.3.4"
            )
        };
        assert_eq!(
            rules,
            [
                rule("tcp", "1,2,3,4,5,6,7,8,9,11,12,13,14,15,16"),
                rule("tcp", "17"),
                rule("udp", "10")
            ]
        );
    }

    #[test]
    fn what_needs_another_source_is_marked_before_it_is_forwarded() {
        let mappings = serde_json::json!({"portmappings": [
            {"hostport": 8080, "containerport": 80, "protocol": "tcp", "hostip": "10.4.0.1"},
            {"hostport": 8081, "containerport": 81, "protocol": "tcp", "hostip": "fd00::1"},
        ]});
        let check = |json: serde_json::Value, container: &str, expected: &[&str]| {
            let mut json = json;
            json["runtimeconfig"] = mappings.clone();
            let rules = forward_rules(&config(json), container.parse().unwrap()).unwrap();
            assert_eq!(lines(&rules), expected);
        };
        check(
            serde_json::json!({}),
            "10.0.0.5/24",
            &[
                "-p tcp --dport 8080 -d 10.4.0.1 -s 10.0.0.5/24 -j CNI-HOSTPORT-SETMARK",
                "-p tcp --dport 8080 -d 10.4.0.1 -s 127.0.0.1 -j CNI-HOSTPORT-SETMARK",
                "-p tcp --dport 8080 -d 10.4.0.1 -j DNAT --to-destination 10.0.0.5:80",
            ],
        );
        check(
            serde_json::json!({"masqall": true, "externalsetmarkchain": "MARK"}),
            "fd00::5/64",
            &[
                "-p tcp --dport 8081 -d fd00::1 -s ::/0 -j MARK",
                "-p tcp --dport 8081 -d fd00::1 -j DNAT --to-destination [fd00::5]:81",
            ],
        );
        check(
            serde_json::json!({"snat": false}),
            "10.0.0.5/24",
            &["-p tcp --dport 8080 -d 10.4.0.1 -j DNAT --to-destination 10.0.0.5:80"],
        );
    }

    #[test]
    fn long_comment_is_cut() {
        let comment = comment("net1", &"a".repeat(300));
        assert_eq!(comment.len(), 256);
        assert!(comment.ends_with("a..."));
    }
}
