//! The ingress policy, always with iptables: packets that come from a bridge and leave it go through two chains, in which every
//! bridge with a policy has a rule. What passes the first one and goes to another such bridge is dropped by the second.

use cni::CniResult;

use crate::config::firewall::Policy;
use crate::error::{Result, bail, failure};
use crate::filter::iptables::{Iptables, Place, Placed, Protocol, rule};
use crate::ip::Cidr;

const TABLE: &str = "filter";
const FORWARD: &str = "FORWARD";
const STAGE_1: &str = "CNI-ISOLATION-STAGE-1";
const STAGE_2: &str = "CNI-ISOLATION-STAGE-2";
/// The comment of rules that both policies share.
const SHARED: &str = "same-bridge|isolated";

/// Applies a policy to the bridge of the result, which is its first interface, for the protocols of the addresses.
pub(super) fn set_up(policy: Policy, result: &CniResult, addresses: &[Cidr]) -> Result<()> {
    if policy == Policy::Open {
        return Ok(());
    }
    let bridge = result.interfaces.first().ok_or_else(|| {
        failure!("interface needs to be set for ingress policy {:?}, make sure to chain \"firewall\" plugin with \"bridge\"",
            policy.name())
    })?;
    if bridge.name.is_empty() {
        bail!("got empty bridge name");
    }
    for protocol in [Protocol::V4, Protocol::V6] {
        if addresses
            .iter()
            .any(|cidr| Protocol::of(cidr.address) == protocol)
        {
            let rules = rules(policy, &bridge.name);
            Iptables::find(protocol)?.ensure_shared(TABLE, &[STAGE_1, STAGE_2], &rules)?;
        }
    }
    Ok(())
}

/// Returns the rules in the order in which they are added. Those that return come last in their chain; `FORWARD` leads to the first
/// stage before it leads to the rules that let addresses through.
fn rules(policy: Policy, bridge: &str) -> Vec<Placed> {
    let placed = |chain, place, policy: &str, words: &[&str]| {
        let comment = format!("CNI firewall plugin rules (ingressPolicy: {policy})");
        let comment = ["-m", "comment", "--comment", &comment];
        Placed {
            chain,
            place,
            rule: rule(words.iter().copied().chain(comment)),
        }
    };
    let name = policy.name();
    let leaves = ["-i", bridge, "!", "-o", bridge, "-j", STAGE_2];
    let mut rules = vec![
        placed(FORWARD, Place::First, SHARED, &["-j", STAGE_1]),
        placed(STAGE_1, Place::First, name, &leaves),
    ];
    if policy == Policy::Isolated {
        let stays = ["-i", bridge, "-o", bridge, "-j", "DROP"];
        rules.push(placed(STAGE_1, Place::First, name, &stays));
    }
    rules.extend([
        placed(STAGE_1, Place::Last, SHARED, &["-j", "RETURN"]),
        placed(STAGE_2, Place::First, SHARED, &["-o", bridge, "-j", "DROP"]),
        placed(STAGE_2, Place::Last, SHARED, &["-j", "RETURN"]),
    ]);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_drops_what_stays_on_the_bridge_as_well() {
        let lines = |policy| {
            let rules = rules(policy, "cni0");
            let lines = rules.iter().map(|placed| {
                let place = if placed.place == Place::First {
                    "-I"
                } else {
                    "-A"
                };
                format!("{place} {} {}", placed.chain, placed.rule.join(" "))
            });
            lines.collect::<Vec<_>>()
        };
        let shared =
            "-m comment --comment CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)";
        let isolated = "-m comment --comment CNI firewall plugin rules (ingressPolicy: isolated)";
        assert_eq!(
            lines(Policy::Isolated),
            [
                format!("-I FORWARD -j CNI-ISOLATION-STAGE-1 {shared}"),
                format!(
                    "-I CNI-ISOLATION-STAGE-1 -i cni0 ! -o cni0 -j CNI-ISOLATION-STAGE-2 {isolated}"
                ),
                format!("-I CNI-ISOLATION-STAGE-1 -i cni0 -o cni0 -j DROP {isolated}"),
                format!("-A CNI-ISOLATION-STAGE-1 -j RETURN {shared}"),
                format!("-I CNI-ISOLATION-STAGE-2 -o cni0 -j DROP {shared}"),
                format!("-A CNI-ISOLATION-STAGE-2 -j RETURN {shared}"),
            ]
        );
        assert_eq!(lines(Policy::SameBridge).len(), 5);
    }

    #[test]
    fn policy_needs_the_bridge() {
        let error = set_up(Policy::Isolated, &CniResult::default(), &[]).unwrap_err();
        assert_eq!(
            error.msg,
            "interface needs to be set for ingress policy \"isolated\", make sure to chain \"firewall\" plugin with \"bridge\""
        );
        assert_eq!(set_up(Policy::Open, &CniResult::default(), &[]), Ok(()));
    }
}
