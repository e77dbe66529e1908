//! A life on both sides: ADD by the reference's plugin and DEL by ours, and the reverse. What remains must be no more than what remains
//! after a life with the reference's alone.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    PluginsFixture,
    cell::{self, Step},
    compare::{self, Difference, Normalizer},
    differential::{self, Case, Event},
    emulator,
};
use crate::{pool, report::Report};

/// Cases of plugins that leave state on the host or in the container.
const CASES: &[(&str, &[&str])] = &[
    ("bandwidth", &["both", "egress", "lost-namespace"]),
    (
        "bridge",
        &[
            "gateway",
            "masquerade",
            "masquerade-nftables",
            "spoof-check",
        ],
    ),
    ("firewall", &["iptables", "admin-chain", "ingress-policy"]),
    (
        "host-device",
        &["device", "ipam", "name-is-taken-on-the-host"],
    ),
    ("host-local", &["ranges", "dataDir", "two-containers"]),
    ("loopback", &["plain"]),
    ("macvlan", &["host-local", "passthru"]),
    (
        "portmap",
        &["three-protocols", "hostIP", "two-families", "nftables"],
    ),
    ("ptp", &["masquerade", "masquerade-nftables"]),
    ("sbr", &["gateway", "two-families", "table"]),
    ("tap", &["plain", "bridge"]),
    ("tuning", &["sysctl", "everything", "dataDir"]),
];
const BEFORE: &str = "state before";

/// Runs the selected lives; reports one check per plugin.
pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    let name = |plugin: &str| format!("mixed lives of {plugin}");
    let jobs = report.check("the cases of mixed lives are read", || {
        let mut jobs = Vec::new();
        for (plugin, cases) in differential::all()? {
            let Some((_, wanted)) = CASES.iter().find(|(name, _)| *name == plugin) else {
                continue;
            };
            let found: Vec<_> = cases
                .cases
                .into_iter()
                .filter(|case| wanted.contains(&case.name.as_str()))
                .collect();
            ensure!(
                found.len() == wanted.len(),
                "{plugin} lacks a case of {wanted:?}"
            );
            // The emulator keeps our plugin from its half of these lives.
            let is_refused = |case: &Case| {
                fixture.env.is_foreign() && emulator::refusal(plugin, &case.name).is_some()
            };
            let found: Vec<_> = found.into_iter().filter(|case| !is_refused(case)).collect();
            if fixture.selects(&name(plugin)) && !found.is_empty() {
                jobs.push((plugin, cases.setup, found));
            }
        }
        Ok(jobs)
    });
    let Ok(jobs) = jobs else { return };
    pool::run(
        jobs,
        |(plugin, setup, cases)| -> anyhow::Result<()> {
            for case in cases {
                run_case(fixture, plugin, setup, case).with_context(|| case.name.clone())?;
            }
            Ok(())
        },
        |(plugin, ..), outcome, time| {
            let _ = report.check(
                &format!("{} in {:.1} s", name(plugin), time.as_secs_f64()),
                || outcome,
            );
        },
    );
}

fn run_case(
    fixture: &PluginsFixture<'_>,
    plugin: &str,
    setup: &[String],
    case: &Case,
) -> anyhow::Result<()> {
    let life = [Event::Add, Event::Del];
    let remains =
        |is_added_by_ours: bool, is_deleted_by_ours: bool| -> anyhow::Result<Vec<Difference>> {
            let side = |is_ours| {
                if is_ours {
                    &fixture.ours
                } else {
                    &fixture.reference
                }
            };
            let mut steps = case.steps(plugin, setup, &life, |event| {
                side(if event == Event::Add {
                    is_added_by_ours
                } else {
                    is_deleted_by_ours
                })
            });
            let first_call = steps.iter().position(|step| matches!(step, Step::Call(_)));
            steps.insert(
                first_call.unwrap_or_default(),
                Step::Observe(BEFORE.to_owned()),
            );
            let literal = serde_json::to_string(&steps)?;
            let seen = cell::run_in_sandbox(&steps)?;
            for (verb, outcome) in seen.iter().filter(|(name, _)| !name.starts_with("state")) {
                ensure!(outcome["status"] == 0, "{verb} failed: {outcome}");
            }
            let state = |wanted: &str| -> anyhow::Result<Value> {
                let found = seen.iter().find(|(name, _)| name == wanted);
                let (_, state) = found.with_context(|| format!("there is no {wanted}"))?;
                Ok(Normalizer::new(&literal).normalize(state))
            };
            Ok(compare::differences(
                &state(BEFORE)?,
                &state("state after DEL")?,
            ))
        };
    let usual = remains(false, false).context("with the reference's alone")?;
    for (is_added_by_ours, is_deleted_by_ours, name) in [
        (false, true, "added by the reference, deleted by us"),
        (true, false, "added by us, deleted by the reference"),
        (true, true, "added and deleted by us"),
    ] {
        let more: Vec<_> = remains(is_added_by_ours, is_deleted_by_ours)
            .context(name)?
            .into_iter()
            .filter(|remain| !usual.contains(remain))
            .map(
                |Difference {
                     at,
                     values: [before, after],
                 }| format!("{at}: before {before}, after {after}"),
            )
            .collect();
        ensure!(more.is_empty(), "{name}: more remains: {}", more.join("; "));
    }
    Ok(())
}
