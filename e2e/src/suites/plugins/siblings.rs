//! A second attachment of a pod: its ADD, failed or not, and its DEL leave the first one as it was, and DEL of the first one leaves nothing.
//!
//! The reference's plugins take rules and devices of the first one away, so there is nothing to compare with.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    PluginsFixture,
    cell::{self, Call, NETNS, Seen, Step},
    compare::{self, Normalizer},
};
use crate::report::Report;

const STATE: &str = "state";
/// Two configurations, and what the host needs.
struct Row {
    name: &'static str,
    setup: &'static str,
    /// Whether each attachment needs a pair that the plugin before this one made, and that goes with the attachment.
    has_pairs: bool,
    first: Value,
    second: Value,
    /// Whether the second ADD fails, so that its DEL gets no result.
    fails: bool,
    /// Text that is in the state as long as the first one is attached, and in no other state.
    mark: &'static str,
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    let nic = json!({"type": "host-device", "device": "nic0"});
    let limits = json!({"type": "bandwidth", "egressRate": 1_000_000, "egressBurst": 1_000_000});
    let limited = |number: u32| with(&limits, previous(number));
    // A rate that the previous result has no interface for.
    let not_limited = with(&limits, json!({"cniVersion": "1.1.0", "interfaces": []}));
    let forwards = |name: &str, backend: &str, number: u32, more: &Value| {
        let ports = json!([{"hostPort": 9090 + number, "containerPort": 80, "protocol": "tcp"}]);
        let mut config = json!({"type": "portmap", "name": name, "backend": backend, "runtimeConfig": {"portMappings": ports}});
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        with(&config, previous(number))
    };
    let wrong = json!({"conditionsV4": ["nonsense!"]});
    let no_match = json!({"conditionsV4": ["-m", "nonsense"]});
    let none = json!({});
    // Of two addresses, or of one, which the first attachment gets.
    let bridge = |end: &str| {
        let range = json!([{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.8", "rangeEnd": end}]);
        json!({"type": "bridge", "ipMasq": true, "ipMasqBackend": "iptables", "ipam": {"type": "host-local", "ranges": [range]}})
    };
    vec![
        Row {
            name: "host-device, a device twice",
            setup: "ip link add nic0 type veth peer name up0",
            has_pairs: false,
            first: nic.clone(),
            second: nic,
            fails: true,
            mark: "\"ifalias\":\"nic0\"",
        },
        Row {
            name: "bandwidth, a network twice",
            setup: "",
            has_pairs: true,
            first: limited(1),
            second: limited(2),
            fails: false,
            mark: "\"bwp",
        },
        Row {
            name: "bandwidth, failed",
            setup: "",
            has_pairs: true,
            first: limited(1),
            second: not_limited,
            fails: true,
            mark: "\"bwp",
        },
        Row {
            name: "portmap nftables, another network",
            setup: "",
            has_pairs: true,
            first: forwards("default", "nftables", 1, &none),
            second: forwards("second", "nftables", 2, &none),
            fails: false,
            mark: "\"dnat\"",
        },
        Row {
            name: "portmap nftables, failed",
            setup: "",
            has_pairs: true,
            first: forwards("default", "nftables", 1, &none),
            second: forwards("second", "nftables", 2, &wrong),
            fails: true,
            mark: "\"dnat\"",
        },
        Row {
            name: "portmap iptables, a network twice",
            setup: "",
            has_pairs: true,
            first: forwards("net", "iptables", 1, &none),
            second: forwards("net", "iptables", 2, &none),
            fails: false,
            mark: "--to-destination",
        },
        Row {
            name: "portmap iptables, failed",
            setup: "",
            has_pairs: true,
            first: forwards("net", "iptables", 1, &none),
            second: forwards("net", "iptables", 2, &no_match),
            fails: true,
            mark: "--to-destination",
        },
        Row {
            name: "masquerade iptables, a network twice",
            setup: "",
            has_pairs: false,
            first: bridge("10.1.2.9"),
            second: bridge("10.1.2.9"),
            fails: false,
            mark: "-A POSTROUTING -s 10.1.2.8/32",
        },
        Row {
            name: "masquerade iptables, failed",
            setup: "",
            has_pairs: false,
            first: bridge("10.1.2.8"),
            second: bridge("10.1.2.8"),
            fails: true,
            mark: "-A POSTROUTING -s 10.1.2.8/32",
        },
    ]
}

/// Returns the script that makes the pair of an attachment between host and container.
fn pair(number: u32) -> String {
    format!(
        "ip link add host{number} type veth peer name net{number} netns pod
        ip link set host{number} up
        ip -n pod addr add 10.1.2.{number}/24 dev net{number}
        ip -n pod link set net{number} up"
    )
}

/// Returns the result of the plugin that made a pair.
fn previous(number: u32) -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": format!("host{number}")}, {"name": format!("net{number}"), "sandbox": NETNS}],
        "ips": [{"interface": 1, "address": format!("10.1.2.{number}/24")}],
    })
}

fn with(config: &Value, previous: Value) -> Value {
    let mut config = config.clone();
    config["prevResult"] = previous;
    config
}

/// Runs the selected rows; reports one check for each.
pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    for row in rows() {
        let name = format!("second attachment of {}: the first one stays", row.name);
        if fixture.selects(&name) {
            let _ = report.check(&name, || row.run(fixture));
        }
    }
}

impl Row {
    fn run(&self, fixture: &PluginsFixture<'_>) -> anyhow::Result<()> {
        let mut failed = self.second.clone();
        if let Some(config) = failed.as_object_mut() {
            config.remove("prevResult");
        }
        let observe = || Step::Observe(STATE.to_owned());
        let pair_step = |script: String| {
            let script = if self.has_pairs {
                script
            } else {
                String::new()
            };
            Step::Shell(script)
        };
        let steps = [
            Step::Shell(self.setup.to_owned()),
            pair_step(pair(1)),
            call(fixture, "ADD", "net1", &self.first, false),
            observe(),
            pair_step(pair(2)),
            call(fixture, "ADD", "net2", &self.second, false),
            if self.fails {
                call(fixture, "DEL", "net2", &failed, false)
            } else {
                call(fixture, "DEL", "net2", &self.second, true)
            },
            pair_step("ip link del host2".to_owned()),
            observe(),
            call(fixture, "DEL", "net1", &self.first, false),
            observe(),
        ];
        let seen: Seen = cell::run_in_sandbox(&steps)?;
        let [
            (_, first),
            (_, before),
            (_, second),
            (_, deleted),
            (_, after),
            (_, last),
            (_, left),
        ] = &seen[..]
        else {
            anyhow::bail!("a cell prints calls and states: {seen:?}");
        };
        ensure!(first["status"] == 0, "the first ADD failed: {first}");
        let has_failed = second["status"] != 0;
        ensure!(has_failed == self.fails, "the second ADD: {second}");
        for deleted in [deleted, last] {
            ensure!(deleted["status"] == 0, "a DEL failed: {deleted}");
        }
        let [before, after] = [before, after].map(|state| {
            let mut state = Normalizer::new("").normalize(state);
            // The last address differs, as it should.
            if let Some(files) = state["files"].as_object_mut() {
                files.retain(|name, _| !name.contains("/last_reserved_ip."));
            }
            state
        });
        let has_mark = |state: &Value| state.to_string().contains(self.mark);
        ensure!(has_mark(&before), "{:?} is not in {before}", self.mark);
        let first = compare::differences(&before, &after).into_iter().next();
        ensure!(first.is_none(), "the first attachment changed: {first:?}");
        ensure!(!has_mark(left), "{:?} is left: {left}", self.mark);
        Ok(())
    }
}

fn call(
    fixture: &PluginsFixture<'_>,
    verb: &str,
    ifname: &str,
    config: &Value,
    is_chained: bool,
) -> Step {
    Step::Call(Call {
        is_chained,
        ifname: ifname.to_owned(),
        ..Call::new(&fixture.ours, verb, config.clone())
    })
}
