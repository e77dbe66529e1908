//! portmap where a fault shows in the ports of others, or with more ports than a test of both sides has.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    PluginsFixture,
    cell::{self, Call, NETNS, Seen, Step},
    compare::Normalizer,
};
use crate::report::Report;

/// More than a netlink message takes in a buffer of the usual length.
const PORTS: u16 = 1000;

type Check = fn(&PluginsFixture<'_>) -> anyhow::Result<()>;

/// Runs the selected checks.
pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    let checks: [(&str, Check); 3] = [
        (
            "portmap nftables: ADD with a wrong condition leaves the ports of another container",
            wrong_condition,
        ),
        ("portmap nftables: 1000 ports", |fixture| {
            many_ports(fixture, "nftables", "dnat")
        }),
        ("portmap iptables: 1000 ports", |fixture| {
            many_ports(fixture, "iptables", "--to-destination")
        }),
    ];
    for (name, check) in checks {
        if fixture.selects(name) {
            let _ = report.check(name, || check(fixture));
        }
    }
}

fn wrong_condition(fixture: &PluginsFixture<'_>) -> anyhow::Result<()> {
    let wrong = json!({"conditionsV4": ["ip", "saddr", "nonsense!"]});
    let add = |container: &str, keys| call(fixture, "ADD", container, "nftables", 1, keys);
    let seen = cell::run_in_sandbox(&[
        add("kept", &json!({})),
        observe(),
        add("refused", &wrong),
        observe(),
    ])?;
    let [(_, kept), (_, before), (_, refused), (_, after)] = &seen[..] else {
        anyhow::bail!("a cell prints calls and states: {seen:?}");
    };
    ensure!(kept["status"] == 0, "ADD failed: {kept}");
    ensure!(
        refused["status"] != 0,
        "a wrong condition is accepted: {refused}"
    );
    let rules = |state: &Value| Normalizer::new("").normalize(&state["host"]["nftables"]);
    ensure!(
        rules(before) == rules(after),
        "the rules were {}, now {}",
        rules(before),
        rules(after)
    );
    Ok(())
}

/// `word` is in every rule that forwards a port.
fn many_ports(fixture: &PluginsFixture<'_>, backend: &str, word: &str) -> anyhow::Result<()> {
    let step = |verb| call(fixture, verb, "container", backend, PORTS, &json!({}));
    let seen: Seen = cell::run_in_sandbox(&[step("ADD"), observe(), step("DEL"), observe()])?;
    let mut counts = Vec::new();
    for (name, value) in &seen {
        if name == STATE {
            counts.push(value["host"][backend].to_string().matches(word).count());
        } else {
            ensure!(value["status"] == 0, "{name} failed: {value}");
        }
    }
    ensure!(
        counts == [usize::from(PORTS), 0],
        "{counts:?} rules after ADD and DEL"
    );
    Ok(())
}

const STATE: &str = "state";

fn observe() -> Step {
    Step::Observe(STATE.to_owned())
}

/// Returns a verb for a container with this many ports.
fn call(
    fixture: &PluginsFixture<'_>,
    verb: &str,
    container: &str,
    backend: &str,
    ports: u16,
    keys: &Value,
) -> Step {
    let ports =
        (1..=ports).map(|port| json!({"hostPort": port, "containerPort": 80, "protocol": "tcp"}));
    let mut config = json!({
        "type": "portmap", "backend": backend,
        "runtimeConfig": {"portMappings": ports.collect::<Vec<_>>()},
        "prevResult": {
            "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0}],
        },
    });
    for (key, value) in keys.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    Step::Call(Call {
        container: container.to_owned(),
        ..Call::new(&fixture.ours, verb, config)
    })
}
