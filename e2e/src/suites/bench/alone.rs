//! The daemon without runtime and kubelet: a plugin that answers immediately, an API server that uses next to no CPU.

use std::path::Path;

use anyhow::Context as _;

use super::{
    driver::Times,
    plugins,
    row::{
        Bound::{AtLeast, AtMost},
        Column, Measured, RowKind,
        Subject::{FloorRatio, Ours, OverFloor, PeerRatio},
        Target,
    },
    side::{Network, Side},
    statistics::{mean, median},
};
use crate::{
    node::network::NodeNetwork,
    options::BenchOptions,
    report::{Checked, Report},
    rules::Programs,
    test_env::TestEnv,
};

/// The rows with their targets. An ADD may take 2.5 ms more than its plugin, and 0.8 ms more for each further network. The daemon's CPU by
/// the plugins' own needs no peer: it is about a fifth of upstream's v4.3.0 on the machine on which this plugin takes 0.14 ms.
const ROWS: &[RowKind] = &[
    RowKind::new("daemon's CPU per ADD, 1 network", "ms").with(BY_PEER),
    RowKind::new("daemon's CPU per ADD, 1 network, by the plugins' own", "ms").with(by_floor(6.0)),
    RowKind::new("daemon's CPU per ADD, 3 networks", "ms").with(BY_PEER),
    RowKind::new(
        "daemon's CPU per ADD, 3 networks, by the plugins' own",
        "ms",
    )
    .with(by_floor(3.0)),
    RowKind::new("wall of one ADD, 1 network", "ms").with(over_floor(2.5)),
    RowKind::new("wall of one ADD, 3 networks", "ms").with(over_floor(4.1)),
    RowKind::new("bridge with host-local, wall of one ADD", "ms").with(by_floor(1.2)),
    RowKind::new("bridge with host-local, own plugins: whole ADD, wall", "ms").with(BY_PEER),
    RowKind::new("bridge with host-local, own plugins: whole ADD, CPU", "ms").with(BY_PEER),
    RowKind::new(SHARED_BRIDGE, "ms").with(over_floor(1.0)),
    RowKind::new("ADDs, 8 at once", "/s").with(at_least(600.0)),
    RowKind::new("ADDs, 64 at once", "/s").with(at_least(600.0)),
    RowKind::new("DELs, 8 at once", "/s").with(at_least(1000.0)),
    RowKind::new("DELs, 64 at once", "/s").with(at_least(1000.0)),
    RowKind::new("shim's CPU per ADD", "ms"),
    RowKind::new("shim's CPU per VERSION", "ms"),
    RowKind::new("shim's memory", "MB"),
    RowKind::new("daemon's memory, idle", "MB"),
];

/// The floor is the same with `host-local`.
const SHARED_BRIDGE: &str = "bridge with multus-ipam, own plugins: wall of one ADD";

/// The daemon's CPU, and a whole ADD with our plugins, compared with Go Multus and the reference's plugins.
const BY_PEER: Target = Target::portable(PeerRatio, AtMost, 0.2);

const fn by_floor(limit: f64) -> Target {
    Target::portable(FloorRatio, AtMost, limit)
}

const fn over_floor(limit: f64) -> Target {
    Target::absolute(OverFloor, AtMost, limit)
}

const fn at_least(limit: f64) -> Target {
    Target::absolute(Ours, AtLeast, limit)
}

/// Numbers of calls in a round.
struct Counts {
    rounds: u32,
    /// Calls one after the other.
    calls: u32,
    /// Calls in a burst.
    burst: u32,
    bridges: u32,
}

pub(super) fn measure(
    env: &TestEnv,
    options: &BenchOptions,
    peer: Option<&Path>,
    report: &mut Report,
) -> Checked<(Measured, &'static [RowKind])> {
    let counts = if options.short {
        Counts {
            rounds: options.rounds_or(3),
            calls: 20,
            burst: 128,
            bridges: 8,
        }
    } else {
        Counts {
            rounds: options.rounds_or(7),
            calls: 40,
            burst: 320,
            bridges: 15,
        }
    };
    let mut measured = Measured::default();
    let (_network, mut sides) = report.check("nodes for the daemons alone", || {
        let network = NodeNetwork::new()?;
        let plugin = plugins::build(env, "instant.rs")?;
        let mut programs = vec![(Column::Ours, Programs::ours(env)?)];
        if let Some(peer) = peer {
            programs.push((Column::Peer, Programs::peer(peer)?));
        }
        let sides = programs
            .into_iter()
            .map(|(column, programs)| Side::new(env, &network, column, programs, &plugin));
        let sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
        Ok((network, sides))
    })?;
    report.check("ready and idle daemons", || {
        for side in &mut sides {
            let started = side.start();
            started.with_context(|| side.log().display().to_string())?;
            let memory = megabytes(side.memory()?);
            measured.push("daemon's memory, idle", side.column, memory);
            for bytes in side.shim_memory(5)? {
                measured.push("shim's memory", side.column, megabytes(bytes));
            }
        }
        Ok(())
    })?;
    for round in 0..=counts.rounds {
        let name = match round {
            0 => "a round to fill caches, which does not count".to_owned(),
            round => format!("round {round} of {}", counts.rounds),
        };
        report.check(&name, || {
            let mut values = Measured::default();
            instant(&mut sides, &counts, &mut values)?;
            bridge(env, &mut sides, &counts, &mut values)?;
            if round > 0 {
                measured.extend(values);
            }
            // No side always finds the other's data in the caches.
            sides.reverse();
            Ok(())
        })?;
    }
    report.check("the daemons end", || {
        sides.iter_mut().try_for_each(Side::stop)
    })?;
    Ok((measured, ROWS))
}

/// Measures each side with the plugin that answers immediately; the floor is the plugin alone, times the number of runs in an ADD.
fn instant(sides: &mut [Side], counts: &Counts, values: &mut Measured) -> anyhow::Result<()> {
    for (networks, name) in [(1, "1 network"), (3, "3 networks")] {
        let network = Network::Instant(networks);
        let cpu_row = format!("daemon's CPU per ADD, {name}");
        let own_row = format!("{cpu_row}, by the plugins' own");
        let wall_row = format!("wall of one ADD, {name}");
        let containers = sides[0].batch(counts.calls, network);
        let plugin = sides[0].direct("ADD", containers)?;
        let plugin_cpu = milliseconds(f64::from(networks) * mean(&plugin.cpus()));
        values.push(
            &wall_row,
            Column::Floor,
            f64::from(networks) * wall(&plugin),
        );
        values.push(&cpu_row, Column::Floor, plugin_cpu);
        values.push(&own_row, Column::Floor, plugin_cpu);
        for side in sides.iter_mut() {
            let column = side.column;
            let containers = side.batch(counts.calls, network);
            let before = side.cpu()?;
            let times = side.verb("ADD", containers, 1)?;
            let cpu = milliseconds((side.cpu()? - before) / f64::from(counts.calls)) - plugin_cpu;
            side.verb("DEL", containers, 1)?;
            values.push(&cpu_row, column, cpu);
            if column == Column::Ours {
                values.push(&own_row, column, cpu);
            }
            values.push(&wall_row, column, wall(&times));
            if networks == 1 {
                let version = side.verb("VERSION", containers, 1)?;
                for (verb, times) in [("ADD", times), ("VERSION", version)] {
                    let cpu = milliseconds(mean(&times.cpus()));
                    values.push(format!("shim's CPU per {verb}"), column, cpu);
                }
            }
        }
    }
    for side in sides {
        for concurrency in [8, 64] {
            let containers = side.batch(counts.burst, Network::Instant(1));
            for verb in ["ADD", "DEL"] {
                let rate = side.verb(verb, containers, concurrency)?.rate();
                values.push(format!("{verb}s, {concurrency} at once"), side.column, rate);
            }
        }
    }
    Ok(())
}

/// Measures the bridge plugin directly and through each side, and then everything that an ADD of the bridge network starts, from the shim
/// to the plugins: ours on our side, the reference's on the peer's.
fn bridge(
    env: &TestEnv,
    sides: &mut [Side],
    counts: &Counts,
    values: &mut Measured,
) -> anyhow::Result<()> {
    let row = "bridge with host-local, wall of one ADD";
    let containers = sides[0].batch(counts.bridges, Network::Bridge);
    let times = sides[0].direct("ADD", containers)?;
    sides[0].direct("DEL", containers)?;
    values.push(row, Column::Floor, wall(&times));
    for own_plugins in [false, true] {
        for side in sides.iter_mut() {
            let column = side.column;
            let replaces = own_plugins && column == Column::Ours;
            if replaces {
                side.use_ours(&env.program("multus-cni-plugins"))?;
            }
            let containers = side.batch(counts.bridges, Network::Bridge);
            let before = side.cpu()?;
            let times = side.verb("ADD", containers, 1)?;
            let daemon = (side.cpu()? - before) / f64::from(counts.bridges);
            side.verb("DEL", containers, 1)?;
            if own_plugins {
                let row = "bridge with host-local, own plugins: whole ADD";
                let cpu = milliseconds(daemon + mean(&times.cpus()));
                values.push(format!("{row}, CPU"), column, cpu);
                values.push(format!("{row}, wall"), column, wall(&times));
            } else {
                values.push(row, column, wall(&times));
            }
            if replaces {
                values.push(SHARED_BRIDGE, Column::Floor, wall(&times));
                let containers = side.batch(counts.bridges, Network::SharedBridge);
                let times = side.verb("ADD", containers, 1)?;
                side.verb("DEL", containers, 1)?;
                values.push(SHARED_BRIDGE, column, wall(&times));
                side.use_reference()?;
            }
        }
    }
    Ok(())
}

/// Returns the median wall time of a call in milliseconds.
fn wall(times: &Times) -> f64 {
    milliseconds(median(times.walls()))
}

fn milliseconds(seconds: f64) -> f64 {
    1e3 * seconds
}

#[expect(clippy::cast_precision_loss, reason = "no program here has 2^52 bytes")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
