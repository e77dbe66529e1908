//! The reference's own suites, run on the programs under test.
//!
//! A spec that fails runs again with the reference's programs: a spec that passes with those must pass. What fails with both has a reason in
//! `known`.

mod ginkgo;
mod known;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Stdio,
};

use anyhow::{Context as _, bail, ensure};

use self::{ginkgo::Spec, known::Rows, source::Suites};
use super::{PluginsFixture, sandbox};
use crate::{
    pool,
    report::{Checked, Report},
};

/// Suites that take longest, in the order in which they start; the others follow.
const SLOWEST: [&str; 6] = ["dhcp", "portmap", "bridge", "ptp", "firewall", "bandwidth"];

/// Specs of dhcp that wait up to 13 seconds each, for older versions of the specification: the newest version's wait for the same.
const LONG_WAITS: &str = r"DHCP .*\[(0\.\d\.\d|1\.0\.0)\]";

/// How many specs each suite runs at least, without the long waits. A spec that skips itself does not run.
const LEAST: &[(&str, usize)] = &[
    ("bandwidth", 45),
    ("bridge", 317),
    ("dhcp", 4),
    ("dummy", 28),
    ("firewall", 36),
    ("host-device", 44),
    ("host-local", 80),
    ("ipvlan", 10),
    ("loopback", 14),
    ("macvlan", 168),
    ("portmap", 72),
    ("ptp", 56),
    ("sbr", 5),
    ("static", 91),
    ("tap", 14),
    ("tuning", 72),
    ("vlan", 70),
    ("vrf", 20),
];

/// Runs the selected suites, without long waits unless `is_long`. A failed one does not keep the others from running.
pub(super) fn run(fixture: &PluginsFixture<'_>, is_long: bool, report: &mut Report) -> Checked {
    let name = |plugin: &str| format!("suite of {plugin}");
    let suites = report.check("the reference's suites are built", || {
        Suites::build(&fixture.features)
    })?;
    let mut plugins: Vec<_> = suites
        .plugins()
        .filter(|plugin| fixture.selects(&name(plugin)))
        // An emulated program takes too long for all of them; dhcp has no other test of its life.
        .filter(|plugin| !fixture.env.is_foreign() || *plugin == "dhcp")
        .collect();
    plugins.sort_by_key(|plugin| {
        let place = SLOWEST.iter().position(|slow| slow == plugin);
        place.unwrap_or(SLOWEST.len())
    });
    pool::run(
        plugins,
        |plugin| suite(fixture, &suites, plugin, is_long),
        |plugin, outcome, time| {
            let count = outcome
                .as_ref()
                .map_or_else(|_| "specs".to_owned(), ToString::to_string);
            let name = format!("{}: {count} in {:.1} s", name(plugin), time.as_secs_f64());
            let _ = report.check(&name, || outcome);
        },
    );
    Ok(())
}

/// Runs one suite; returns the number of specs that passed and ran.
fn suite(
    fixture: &PluginsFixture<'_>,
    suites: &Suites,
    plugin: &str,
    is_long: bool,
) -> anyhow::Result<String> {
    let choice = if is_long {
        None
    } else {
        Some(format!("-ginkgo.skip={LONG_WAITS}"))
    };
    let ours = specs(fixture, suites, plugin, &fixture.ours, choice)?;
    ensure_enough(plugin, ours.len())?;
    let failures: BTreeMap<_, _> = ours
        .iter()
        .filter_map(|(name, spec)| Some((name.as_str(), spec.failure.as_deref()?)))
        .collect();
    let texts: BTreeSet<_> = failures
        .keys()
        .map(|name| ours[*name].text.as_str())
        .collect();
    let theirs = if texts.is_empty() {
        BTreeMap::new()
    } else {
        let choice = format!("-ginkgo.focus={}", ginkgo::focus(texts));
        specs(fixture, suites, plugin, &fixture.reference, Some(choice))?
    };
    let passes = |name: &str| theirs.get(name).is_some_and(|spec| spec.failure.is_none());
    let (worse, equal): (Vec<_>, Vec<_>) = failures.iter().partition(|(name, _)| passes(name));
    let mut wrong: Vec<_> = worse
        .into_iter()
        .map(|(name, failure)| format!("the reference's program passes {name}: {failure}"))
        .collect();
    let equal: Vec<_> = equal
        .into_iter()
        .map(|(name, failure)| (*name, *failure))
        .collect();
    wrong.extend(Rows::of(plugin, &fixture.features).mismatches(&equal));
    if !wrong.is_empty() {
        let count = wrong.len();
        bail!("{count} wrong\n  {}", wrong.join("\n  "));
    }
    Ok(format!(
        "{} of {} specs",
        ours.len() - failures.len(),
        ours.len()
    ))
}

/// Fails when a suite runs fewer specs than it has to, or when it is not known how many these are.
fn ensure_enough(plugin: &str, count: usize) -> anyhow::Result<()> {
    let row = LEAST.iter().find(|(suite, _)| *suite == plugin);
    let (_, least) = row.with_context(|| {
        format!("reference.rs does not say how many specs the suite of {plugin} runs: {count}?")
    })?;
    ensure!(
        count >= *least,
        "only {count} of {least} specs ran: others skip themselves, or the suite has lost them; \
         correct the machine, or reference.rs after a change of the module"
    );
    Ok(())
}

/// Runs a suite on the programs of a directory; `choice` is the option that selects specs.
fn specs(
    fixture: &PluginsFixture<'_>,
    suites: &Suites,
    plugin: &str,
    programs: &Path,
    choice: Option<String>,
) -> anyhow::Result<BTreeMap<String, Spec>> {
    let (program, directory) = suites.program(plugin)?;
    let side = programs.file_name().unwrap_or_default().to_string_lossy();
    let file = |suffix: &str| {
        fixture
            .env
            .dir
            .join(format!("log/{plugin}-{side}.{suffix}"))
    };
    let (log, report) = (file("log"), file("json"));
    let mut command = sandbox::command(program);
    command
        .current_dir(directory)
        .env("PATH", super::path(programs))
        .env("PROGRAM_UNDER_TEST", programs.join(plugin))
        .args("-test.timeout=15m -ginkgo.timeout=14m -ginkgo.no-color -ginkgo.succinct".split(' '))
        .arg(format!("-ginkgo.json-report={}", report.display()))
        .args(choice);
    let output = fs::File::create(&log)?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let status = command
        .status()
        .with_context(|| format!("cannot start the suite of {plugin}"))?;
    let specs = fs::read(&report)
        .map_err(anyhow::Error::from)
        .and_then(|report| ginkgo::specs(&report))
        .with_context(|| format!("the suite ended with {status}; see {}", log.display()))?;
    ensure!(!specs.is_empty(), "no spec ran; see {}", log.display());
    Ok(specs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_with_fewer_specs_fail() {
        let (suite, least) = LEAST[0];
        assert!(ensure_enough(suite, least).is_ok());
        assert!(ensure_enough(suite, least + 1).is_ok());
        let error = ensure_enough(suite, least - 1).unwrap_err().to_string();
        assert!(error.starts_with(&format!("only {} of {least} specs", least - 1)));
        assert!(ensure_enough("none", 1000).is_err());
    }

    #[test]
    fn each_suite_has_its_number_of_specs() {
        let suites: Vec<_> = LEAST.iter().map(|(suite, _)| *suite).collect();
        let mut plugins = source::names().unwrap();
        plugins.sort();
        assert_eq!(suites, plugins);
    }
}
