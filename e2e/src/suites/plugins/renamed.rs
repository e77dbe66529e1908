//! DEL of links that the pod has renamed, and whose name it has given to another link, as pods of virtual machines do: what ADD made
//! goes, and the other link stays.
//!
//! The reference deletes or moves whatever has the name, so there is nothing to compare with.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    PluginsFixture,
    cell::{self, Call, Step},
};
use crate::report::Report;

/// The stand-in has an address of its own, so that nothing but its name is the former link's.
const RENAME: &str = "\
ip -n pod link set eth0 down
ip -n pod link set eth0 name renamed0 address 02:00:00:00:00:99
ip -n pod link add eth0 type veth peer name inner0
";
/// What is left: the stand-in, and nothing of ours.
const STAND_IN_IS_ALONE: &str = "\
test \"$(ip -n pod -o link show type veth | wc -l)\" = 2
ip -n pod link show eth0
! ip -n pod link show renamed0
";

/// A configuration, what it needs on the host, and how the host looks afterwards.
struct Row {
    name: &'static str,
    setup: &'static str,
    config: Value,
    host: &'static str,
}

fn rows() -> Vec<Row> {
    let leases = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}]]});
    let no_pair = "test -z \"$(ip -o link show type veth)\"";
    let device = "ip link add nic0 type veth peer name up0";
    vec![
        Row {
            name: "bridge",
            setup: "",
            config: json!({"type": "bridge", "ipam": leases}),
            host: no_pair,
        },
        Row {
            name: "bridge masquerade",
            setup: "",
            config: json!({"type": "bridge", "ipMasq": true, "ipam": leases}),
            host: no_pair,
        },
        Row {
            name: "ptp",
            setup: "",
            config: json!({"type": "ptp", "ipam": leases}),
            host: no_pair,
        },
        Row {
            name: "host-device",
            setup: device,
            config: json!({"type": "host-device", "device": "nic0"}),
            host: "ip link show nic0",
        },
        Row {
            name: "host-device, after the device lost a container",
            setup: "ip link add nic0 type veth peer name up0; ip link set nic0 alias nic0; ip link set nic0 name dev7",
            config: json!({"type": "host-device", "device": "nic0"}),
            host: "ip link show nic0",
        },
        Row {
            name: "host-device by an alternative name",
            setup: "ip link add nic0 type veth peer name up0; ip link property add dev nic0 altname enp0s31f6longname0",
            config: json!({"type": "host-device", "device": "enp0s31f6longname0"}),
            host: "ip link show nic0",
        },
        Row {
            name: "macvlan",
            setup: device,
            config: json!({"type": "macvlan", "master": "nic0", "ipam": leases}),
            host: "ip link show nic0",
        },
    ]
}

/// Runs the selected rows; reports one check for each.
pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    for row in rows() {
        let name = format!("renamed link of {}: DEL takes it, not its name", row.name);
        if fixture.selects(&name) {
            let _ = report.check(&name, || row.run(fixture));
        }
    }
}

impl Row {
    fn run(&self, fixture: &PluginsFixture<'_>) -> anyhow::Result<()> {
        let shell = |script: &str| Step::Shell(script.to_owned());
        let steps = [
            shell(self.setup),
            self.call(fixture, "ADD"),
            shell(RENAME),
            self.call(fixture, "DEL"),
            shell(STAND_IN_IS_ALONE),
            shell(self.host),
            // A DEL that is repeated leaves the stand-in alone, too.
            self.call(fixture, "DEL"),
            shell(STAND_IN_IS_ALONE),
        ];
        for (verb, outcome) in cell::run_in_sandbox(&steps).context("what is left is wrong")? {
            ensure!(outcome["status"] == 0, "{verb} failed: {outcome}");
        }
        Ok(())
    }

    fn call(&self, fixture: &PluginsFixture<'_>, verb: &str) -> Step {
        Step::Call(Call {
            is_chained: verb == "DEL",
            ..Call::new(&fixture.ours, verb, self.config.clone())
        })
    }
}
