//! ADD and DEL of bridge with host-local, by our plugins and by the reference's (the peer of these rows), without any multiplexer.
//!
//! Each side runs as a process of its own in a sandbox, so that its CPU time is that of its plugins alone.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    row::{Bound, Column, Measured, RowKind, Subject, Target},
    statistics::median,
};
use crate::{
    options::BenchOptions,
    report::{Checked, Report},
    sh,
    suites::plugins::sandbox,
    test_env::TestEnv,
};

/// The argument that makes this program a side.
pub(crate) const NAME: &str = "bench-cni-plugins";
/// Containers per side and round.
const CONTAINERS: u32 = 100;
/// Rounds of the full form, and of the short one.
const ROUNDS: [u32; 2] = [5, 3];
/// The kernel's clock ticks in a second (`sysconf(_SC_CLK_TCK)`), the unit of `/proc/self/stat`; it is 100 on every architecture.
const TICKS: f64 = 100.0;

const ROWS: &[RowKind] = &[
    RowKind::new("bridge + host-local: ADD, wall", "ms").with(Target::portable(
        Subject::PeerRatio,
        Bound::AtMost,
        0.5,
    )),
    RowKind::new("bridge + host-local: ADD, CPU", "ms").with(Target::portable(
        Subject::PeerRatio,
        Bound::AtMost,
        0.2,
    )),
    RowKind::new("bridge + host-local: DEL, wall", "ms"),
    RowKind::new("bridge + host-local: DEL, CPU", "ms"),
];

/// The measurements of one side, in milliseconds: the median wall time and the mean CPU time of an ADD, and of a DEL.
#[derive(Debug, Serialize, Deserialize)]
struct Times([f64; 4]);

/// Measures both sides in turn.
pub(super) fn measure(
    env: &TestEnv,
    options: &BenchOptions,
    _peer: Option<&Path>,
    report: &mut Report,
) -> Checked<(Measured, &'static [RowKind])> {
    let mut measured = Measured::default();
    report.check("bridge with host-local: both sides are measured", || {
        let own = env.dir.join("ours");
        fs::create_dir(&own)?;
        sh::run(
            Command::new(env.program("multus-cni-plugins"))
                .arg("install")
                .arg(&own),
        )?;
        for round in 0..options.rounds_or(ROUNDS[usize::from(options.short)]) {
            let mut sides = [(&own, Column::Ours), (&env.plugins, Column::Peer)];
            if round % 2 == 1 {
                sides.reverse();
            }
            for (plugins, column) in sides {
                for (row, value) in ROWS.iter().zip(side(plugins)?.0) {
                    measured.push(row.name, column, value);
                }
            }
        }
        Ok(())
    })?;
    Ok((measured, ROWS))
}

fn side(plugins: &Path) -> anyhow::Result<Times> {
    let mut command = sandbox::command(std::env::current_exe()?);
    let printed = sh::feed(command.arg(NAME), &serde_json::to_vec(plugins)?)?;
    serde_json::from_str(&printed).context("a side printed something else than its numbers")
}

/// Runs as a side: the directory of its plugins comes on stdin.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let plugins: PathBuf = serde_json::from_slice(&input)?;
    let config = json!({
        "cniVersion": "1.0.0", "name": "bench", "type": "bridge", "bridge": "br-bench", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/20"}]]},
    })
    .to_string();
    for number in 0..=CONTAINERS {
        let name = format!("pod-{number}");
        sh::run(Command::new("ip").args(["netns", "add", &name]))?;
    }
    let call = |verb: &str, number: u32| -> anyhow::Result<f64> {
        let start = Instant::now();
        let mut command = Command::new(plugins.join("bridge"));
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", format!("bench-{number}"))
            .env("CNI_NETNS", format!("/run/netns/pod-{number}"))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &plugins);
        let output = sh::output(&mut command, config.as_bytes())?;
        let took = start.elapsed();
        let answer = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{verb}: {answer}");
        Ok(took.as_secs_f64() * 1e3)
    };
    // The first container creates the bridge, and keeps it.
    call("ADD", 0)?;
    let mut times = Vec::new();
    for verb in ["ADD", "DEL"] {
        let before = cpu_of_children()?;
        let all: Vec<_> = (1..=CONTAINERS)
            .map(|number| call(verb, number))
            .collect::<anyhow::Result<_>>()?;
        let cpu = (cpu_of_children()? - before) * 1e3 / f64::from(CONTAINERS);
        times.extend([median(all), cpu]);
    }
    let mut stdout = std::io::stdout();
    stdout.write_all(&serde_json::to_vec(&times)?)?;
    Ok(stdout.flush()?)
}

/// Returns the CPU seconds of all children that have ended, in steps of 10 ms: fields 16 and 17 of `/proc/self/stat` (proc(5)).
fn cpu_of_children() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The second field is the program's name, which may hold spaces.
    let (_, rest) = stat
        .rsplit_once(')')
        .context("no name in /proc/self/stat")?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    let ticks = |number: usize| -> anyhow::Result<f64> {
        Ok(fields
            .get(number - 3)
            .context("a short /proc/self/stat")?
            .parse()?)
    };
    Ok((ticks(16)? + ticks(17)?) / TICKS)
}
