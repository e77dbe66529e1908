//! DEL that comes too late, or never: the network namespace is gone, or GC takes the place of DEL, and nothing but the names of the
//! attachment leads to its rules on the host. They must go as with a DEL in time, and those of another attachment to the same network
//! must stay.
//!
//! The reference leaves them behind and has no GC, so there is nothing to compare with but our own DEL in time, which other suites
//! compare.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    PluginsFixture,
    cell::{self, Call, NETNS, Step},
    compare::Normalizer,
    differential::DELETE_NETNS,
};
use crate::{pool, report::Report};

/// The attachment that ends, and the one that stays.
const GONE: &str = "gone";
const KEPT: &str = "kept";
/// The parts of a host's state that hold rules.
const RULES: [&str; 3] = ["iptables", "ip6tables", "nftables"];

/// A configuration whose ADD makes rules on the host.
struct Row {
    name: &'static str,
    config: Value,
    gc: Gc,
}

/// The work of GC for a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gc {
    /// It deletes the rules of attachments that are not valid.
    Deletes,
    /// The rules do not name their network, so that GC cannot tell whose they are, and deletes none.
    Keeps,
}

fn rows() -> Vec<Row> {
    let leases = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1::/64"}]]});
    let masquerade = |plugin: &str, backend: &str| json!({"type": plugin, "ipMasq": true, "ipMasqBackend": backend, "ipam": leases});
    let ports = |backend: &str| {
        json!({
            "type": "portmap", "backend": backend,
            "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
            "prevResult": {
                "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}],
                "ips": [{"address": "10.1.2.3/24", "interface": 0}, {"address": "fd00::3/64", "interface": 0}],
            },
        })
    };
    let row = |name, config, gc| Row { name, config, gc };
    vec![
        row(
            "bridge masquerade iptables",
            masquerade("bridge", "iptables"),
            Gc::Deletes,
        ),
        row(
            "bridge masquerade nftables",
            masquerade("bridge", "nftables"),
            Gc::Deletes,
        ),
        row(
            "ptp masquerade iptables",
            masquerade("ptp", "iptables"),
            Gc::Deletes,
        ),
        row(
            "ptp masquerade nftables",
            masquerade("ptp", "nftables"),
            Gc::Deletes,
        ),
        row(
            "bridge spoof-check",
            json!({"type": "bridge", "macspoofchk": true}),
            Gc::Keeps,
        ),
        row("portmap iptables", ports("iptables"), Gc::Deletes),
        row("portmap nftables", ports("nftables"), Gc::Keeps),
    ]
}

/// Runs the selected rows; reports one check for each.
pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    let name = |row: &Row| format!("cleanup of {}", row.name);
    let mut rows = rows();
    rows.retain(|row| fixture.selects(&name(row)));
    pool::run(
        rows,
        |row| row.run(fixture),
        |row, outcome, _| {
            let _ = report.check(
                &format!("{}: DEL without a namespace, and GC", name(row)),
                || outcome,
            );
        },
    );
}

impl Row {
    fn run(&self, fixture: &PluginsFixture<'_>) -> anyhow::Result<()> {
        let del = |netns: &str| Step::Call(self.call(fixture, "DEL", GONE, netns));
        let delete_netns = || Step::Shell(DELETE_NETNS.to_owned());
        let attached = self.rules(fixture, Vec::new())?;
        let expected = self.rules(fixture, vec![del(NETNS)]).context("in time")?;
        for (container, before, after) in [(GONE, true, false), (KEPT, true, true)] {
            ensure!(
                names(&attached, container) == before && names(&expected, container) == after,
                "the rules do not name their containers: with both {attached}, with one {expected}"
            );
        }
        for (what, netns) in [("with its path", NETNS), ("without a path", "")] {
            let found = self
                .rules(fixture, vec![delete_netns(), del(netns)])
                .with_context(|| format!("namespace gone, {what}"))?;
            ensure!(
                found == expected,
                "namespace gone, {what}: the rules are {found}, with a DEL in time {expected}"
            );
        }
        let rest = match self.gc {
            Gc::Deletes => &expected,
            Gc::Keeps => &attached,
        };
        for (valid, expected) in [(&[KEPT][..], rest), (&[KEPT, GONE], &attached)] {
            let found = self.rules(fixture, vec![self.gc(fixture, valid)])?;
            ensure!(
                found == *expected,
                "GC with the valid attachments {valid:?}: the rules are {found}, expected {expected}"
            );
        }
        Ok(())
    }

    /// Returns GC with the containers whose attachments are valid.
    fn gc(&self, fixture: &PluginsFixture<'_>, valid: &[&str]) -> Step {
        let mut call = self.call(fixture, "GC", "", "");
        let valid = valid
            .iter()
            .map(|id| json!({"containerID": id, "ifname": "eth0"}));
        call.config["cni.dev/valid-attachments"] = valid.collect();
        Step::Call(call)
    }

    /// Attaches both containers and takes the steps; returns the rules afterwards.
    fn rules(&self, fixture: &PluginsFixture<'_>, then: Vec<Step>) -> anyhow::Result<Value> {
        let kept = Step::Shell(format!("ip netns add {KEPT}"));
        // The last result is the previous one of a DEL.
        let adds = [(KEPT, &*format!("/run/netns/{KEPT}")), (GONE, NETNS)]
            .map(|(id, netns)| Step::Call(self.call(fixture, "ADD", id, netns)));
        let last = Step::Observe("state".to_owned());
        let steps: Vec<_> = std::iter::once(kept)
            .chain(adds)
            .chain(then)
            .chain([last])
            .collect();
        let literal = serde_json::to_string(&steps)?;
        let mut seen = cell::run_in_sandbox(&steps)?;
        let (_, state) = seen.pop().context("a cell prints the last state")?;
        for (verb, outcome) in &seen {
            ensure!(outcome["status"] == 0, "{verb} failed: {outcome}");
        }
        let rules = RULES.map(|part| (part.to_owned(), state["host"][part].clone()));
        let rules = Value::Object(rules.into_iter().collect());
        Ok(Normalizer::new(&literal).normalize(&rules))
    }

    fn call(&self, fixture: &PluginsFixture<'_>, verb: &str, container: &str, netns: &str) -> Call {
        Call {
            is_chained: verb == "DEL",
            container: container.to_owned(),
            netns: netns.to_owned(),
            ..Call::new(&fixture.ours, verb, self.config.clone())
        }
    }
}

/// Returns whether a rule names this container.
fn names(rules: &Value, container: &str) -> bool {
    rules.to_string().contains(container)
}
