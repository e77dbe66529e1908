//! The calls that QEMU refuses before the kernel sees it, when the programs under test are for another architecture.
//!
//! A case stands here when one of its calls fails by such a refusal; one that fails no more is stale.

use serde_json::Value;

/// A reason why emulated plugins fail.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Part of the plugin's error.
    text: &'static str,
    pub(super) reason: &'static str,
    /// Names of cases, by plugin.
    cases: &'static [(&'static str, &'static [&'static str])],
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        text: "operation not supported",
        // `target_to_host_data_route` in QEMU's linux-user/fd-trans.c returns the error for every other kind of message.
        reason: "QEMU passes on netlink messages about links, addresses and routes, and none about queues and rules",
        cases: &[
            (
                "bandwidth",
                &[
                    "both",
                    "both-lists",
                    "bad-subnet",
                    "egress",
                    "ingress",
                    "lost-namespace",
                    "runtime",
                    "shaped-subnets",
                    "subnets",
                ],
            ),
            (
                "sbr",
                &[
                    "addSourceHints",
                    "gateway",
                    "interface-is-absent",
                    "lost-namespace",
                    "no-previous-result",
                    "table",
                    "table-is-taken",
                    "two-families",
                    "without-gateway",
                ],
            ),
        ],
    },
    Refusal {
        text: "protocol not supported",
        // `do_socket` in QEMU's linux-user/syscall.c has a list of the protocols of netlink.
        reason: "QEMU opens no netlink socket of netfilter",
        cases: &[
            (
                "bridge",
                &[
                    "masquerade-nftables",
                    "spoof-check",
                    "spoof-check-lost-namespace",
                ],
            ),
            (
                "portmap",
                &["nftables", "nftables-conditions", "nftables-masqAll"],
            ),
            ("ptp", &["masquerade-nftables"]),
        ],
    },
];

/// Returns the refusal that a case meets.
pub(super) fn refusal(plugin: &str, case: &str) -> Option<&'static Refusal> {
    REFUSALS.iter().find(|row| {
        let mut plugins = row.cases.iter();
        plugins.any(|(name, cases)| *name == plugin && cases.contains(&case))
    })
}

impl Refusal {
    /// Returns whether a call of ours failed by the refusal that succeeded with the reference's plugin. The values are what happened on
    /// each side, by number and name.
    pub(super) fn is_met(&self, reference: &Value, ours: &Value) -> bool {
        let mut calls = reference.as_object().into_iter().flatten();
        calls.any(|(name, call)| {
            let message = ours[name]["answer"]["msg"].as_str();
            call["status"] == 0 && message.is_some_and(|message| message.contains(self.text))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::suites::plugins::differential;

    #[test]
    fn only_failures_of_calls_that_succeed_with_the_reference_are_refusals() {
        let outcome =
            |status: u8, text: &str| json!({"0 ADD": {"status": status, "answer": {"msg": text}}});
        let is_met = |reference: &Value, ours: &Value| {
            refusal("sbr", "gateway").is_some_and(|row| row.is_met(reference, ours))
        };
        let refused = outcome(1, "failed to add the rule: operation not supported");
        let succeeds = json!({"0 ADD": {"status": 0, "answer": {}}});
        assert!(is_met(&succeeds, &refused));
        assert!(!is_met(&refused, &refused));
        assert!(!is_met(&succeeds, &succeeds));
        assert!(!is_met(&succeeds, &outcome(1, "no such device")));
    }

    #[test]
    fn every_row_names_cases_that_exist() {
        let files = differential::all().unwrap();
        for (plugin, names) in REFUSALS.iter().flat_map(|row| row.cases) {
            let (_, cases) = files.iter().find(|(name, _)| name == plugin).unwrap();
            for name in *names {
                let mut cases = cases.cases.iter();
                assert!(cases.any(|case| case.name == *name), "{plugin} {name}");
            }
        }
    }
}
