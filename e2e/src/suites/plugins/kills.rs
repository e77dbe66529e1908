//! Killed plugins: the chain bridge with host-local, portmap and firewall is killed at random moments, then deleted. Nothing remains that an
//! undisturbed life does not leave, except rules of firewall, which undisturbed lives with the same addresses take away.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    PluginsFixture,
    cell::{self, Call, Step},
    compare::{self, Difference, Normalizer},
};
use crate::{
    options::Options,
    report::{Report, say},
    suites::faults::random::Random,
};

const KILLS: u32 = 20;
/// How many times as many `--long` has.
const LONG: u32 = 50;
/// Kills of one cell.
const PER_CELL: u32 = 20;
/// The addresses of the ranges, which host-local hands out in turn.
const ADDRESSES: u32 = 5;
const STATE: &str = "state";

pub(super) fn run(fixture: &PluginsFixture<'_>, options: &Options, report: &mut Report) {
    let count = if options.long { KILLS * LONG } else { KILLS };
    let name = format!("kills of a chain, {count} times");
    if !fixture.selects(&name) {
        return;
    }
    let seed = options.seed();
    say(&format!("seed    {seed}"));
    let _ = report.check(&name, || {
        for first in (0..count).step_by(PER_CELL as usize) {
            kill_chains(fixture, seed, first).with_context(|| format!("kills from {first}"))?;
        }
        Ok(())
    });
}

fn kill_chains(fixture: &PluginsFixture<'_>, seed: u64, first: u32) -> anyhow::Result<()> {
    let (add, del) = (calls(fixture, "ADD"), calls(fixture, "DEL"));
    let life = |fraction| {
        [
            Step::Chain(add.clone(), fraction),
            Step::Chain(del.clone(), None),
            Step::Observe(STATE.to_owned()),
        ]
    };
    let mut steps = life(None).to_vec();
    for number in first..first + PER_CELL {
        // Later chains take less time than the first one, so some kills come too late: then DEL follows a whole ADD.
        let fraction = f64::from(Random::new(seed, number).below(900)) / 1000.0;
        steps.extend(life(Some(fraction)));
    }
    for _ in 0..ADDRESSES {
        steps.extend(life(None));
    }
    let literal = serde_json::to_string(&steps)?;
    let mut states = Vec::new();
    let mut killed = 0;
    let lives = cell::run_in_sandbox(&steps)?;
    for (number, life) in lives.chunks(3).enumerate() {
        let [(_, added), (_, deleted), (_, left)] = life else {
            anyhow::bail!("a life has two chains and a state: {life:?}");
        };
        let is_undisturbed = matches!(steps.get(number * 3), Some(Step::Chain(_, None)));
        ensure!(
            !is_undisturbed || added["status"] == 0,
            "an undisturbed ADD failed in life {number}: {added}"
        );
        ensure!(
            deleted["status"] == 0,
            "DEL failed in life {number}: {deleted}"
        );
        killed += u32::from(added["status"].is_null());
        let mut state = Normalizer::new(&literal).normalize(left);
        // The last address differs, as it should.
        if let Some(files) = state["files"].as_object_mut() {
            files.retain(|name, _| !name.contains("/last_reserved_ip."));
        }
        states.push(state);
    }
    let usual = states.first().context("the first life is undisturbed")?;
    for (number, state) in states.iter().enumerate().skip(1) {
        let is_last = number + 1 == states.len();
        let excused = if is_last {
            state.clone()
        } else {
            without_rules_of_addresses(state).with_context(|| format!("life {number}"))?
        };
        let differences = compare::differences(usual, &excused);
        let places: Vec<_> = differences
            .iter()
            .map(
                |Difference {
                     at,
                     values: [usual, left],
                 }| format!("{at}: usually {usual}, now {left}"),
            )
            .collect();
        ensure!(
            places.is_empty(),
            "life {number} left: {}",
            places.join("\n  ")
        );
    }
    ensure!(
        killed >= PER_CELL / 4,
        "only {killed} of {PER_CELL} chains were killed"
    );
    Ok(())
}

/// Removes firewall's rules for addresses, each of which may be there once. DEL gets no result after a killed ADD, so it does not know
/// the addresses; the next container that gets an address deletes its rules.
fn without_rules_of_addresses(state: &Value) -> anyhow::Result<Value> {
    let mut state = state.clone();
    for program in ["iptables", "ip6tables"] {
        let lines = state.pointer_mut(&format!("/host/{program}"));
        let Some(Value::Array(lines)) = lines else {
            continue;
        };
        let mut found = Vec::new();
        lines.retain(|line| {
            let is_of_address = line.as_str().is_some_and(|line| {
                line.starts_with("-A CNI-FORWARD -d ") || line.starts_with("-A CNI-FORWARD -s ")
            });
            if is_of_address {
                found.push(line.clone());
            }
            !is_of_address
        });
        for (index, rule) in found.iter().enumerate() {
            ensure!(
                !found[..index].contains(rule),
                "{program} has a rule twice: {rule}"
            );
        }
    }
    if let Some(Value::Array(entries)) = state.pointer_mut("/host/nftables/nftables") {
        entries.retain(|entry| {
            let rule = &entry["rule"];
            let matches_address = ["saddr", "daddr"].iter().any(|field| {
                let mut parts = rule["expr"].as_array().into_iter().flatten();
                parts.any(|part| part["match"]["left"]["payload"]["field"] == *field)
            });
            rule["chain"] != "CNI-FORWARD" || !matches_address
        });
    }
    Ok(state)
}

/// Returns the calls of one verb in their order.
fn calls(fixture: &PluginsFixture<'_>, verb: &str) -> Vec<Call> {
    let mut configs = vec![
        json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true,
            "ipam": {"type": "host-local", "ranges": [
                [{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.2", "rangeEnd": format!("10.1.2.{}", 1 + ADDRESSES)}],
                [{"subnet": "fd00:1::/64", "rangeStart": "fd00:1::2", "rangeEnd": format!("fd00:1::{}", 1 + ADDRESSES)}],
            ], "routes": [{"dst": "0.0.0.0/0"}]}}),
        json!({"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}),
        json!({"type": "firewall", "backend": "iptables"}),
    ];
    if verb == "DEL" {
        configs.reverse();
    }
    let call = |mut config: Value| {
        config["cniVersion"] = json!("1.0.0");
        Call {
            is_chained: true,
            ..Call::new(&fixture.ours, verb, config)
        }
    };
    configs.into_iter().map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_of_addresses_are_excused_and_each_once() {
        let rule = "-A CNI-FORWARD -s 10.1.2.3/32 -j ACCEPT";
        let address_rule = json!({"rule": {"chain": "CNI-FORWARD", "expr": [{"match": {"left": {"payload": {"field": "saddr"}}}}]}});
        let other =
            json!({"rule": {"chain": "CNI-FORWARD", "expr": [{"jump": {"target": "CNI-ADMIN"}}]}});
        let state = |rules: &[&str]| json!({"host": {"iptables": rules, "nftables": {"nftables": [address_rule, other]}}});
        assert_eq!(
            without_rules_of_addresses(&state(&["-A FORWARD -j X", rule])).unwrap(),
            json!({"host": {"iptables": ["-A FORWARD -j X"], "nftables": {"nftables": [other]}}})
        );
        assert!(without_rules_of_addresses(&state(&[rule, rule])).is_err());
    }
}
