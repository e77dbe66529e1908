//! Suite `bench`: measures our programs, upstream's programs and the floor, which is the plugins without a multiplexer, in turn.
//!
//! A row has one number per side; rows with a target have a verdict. `docs/contributing/performance.md` explains the numbers.

mod alone;
mod api_server;
mod cluster;
pub(crate) mod cni_plugins;
mod cnitool;
pub(crate) mod driver;
mod plugins;
mod pods;
mod row;
mod side;
mod statistics;
mod table;
mod usage;

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::row::{Form, Row, Verdict};
use crate::{
    options::BenchOptions,
    programs::Needs,
    report::{Checked, Report, say},
    test_env::{self, TestEnv},
};

/// The plugin that answers immediately.
const PLUGIN: &str = "bench-plugin";

impl BenchOptions {
    fn form(&self) -> Form {
        if self.short { Form::Short } else { Form::Full }
    }

    fn rounds_or(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(usual)
    }

    /// Returns the programs that the suite runs.
    pub(crate) fn needs(&self) -> &'static Needs {
        if self.cni_plugins {
            &crate::suites::plugins::NEEDS
        } else if self.cluster {
            &crate::suites::cluster::NEEDS
        } else {
            &crate::single_node::NEEDS
        }
    }
}

/// Measures and prints the table; the short form fails when a row is more than twice its target.
pub(crate) fn run(
    env: &TestEnv,
    options: &BenchOptions,
    peer: Option<&Path>,
    report: &mut Report,
) -> Checked {
    let measure = if options.cni_plugins {
        cni_plugins::measure
    } else if options.cluster {
        cluster::measure
    } else {
        alone::measure
    };
    let (measured, table) = measure(env, options, peer, report)?;
    let rows = report.check("every measurement has a row", || measured.rows(table))?;
    let form = options.form();
    say(&table::render(&rows, form));
    report.check("the rows are written", || {
        if let Some(path) = &options.json {
            let document = document(&rows, form);
            fs::write(path, format!("{document:#}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    })?;
    report.check("every row with a target was measured", || {
        ensure_no(&rows, form, Verdict::Missing)
    })?;
    if options.short {
        report.check("no row is more than twice its target", || {
            ensure_no(&rows, form, Verdict::FarOver)
        })?;
    }
    Ok(())
}

/// Fails when a row has this verdict.
fn ensure_no(rows: &[Row], form: Form, verdict: Verdict) -> anyhow::Result<()> {
    let with = rows.iter().filter(|row| row.verdict(form) == verdict);
    let names: Vec<_> = with.map(|row| row.kind.name).collect();
    ensure!(names.is_empty(), "{}", names.join(", "));
    Ok(())
}

/// Returns the rows and the machine as JSON.
fn document(rows: &[Row], form: Form) -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let rows: Vec<_> = rows.iter().map(|row| row.json(form)).collect();
    json!({
        "schema": 1,
        "form": match form { Form::Full => "full", Form::Short => "short" },
        "machine": {
            "arch": test_env::arch(), "processors": processors, "kernel": read("/proc/sys/kernel/osrelease").trim(),
            "load": read("/proc/loadavg").trim(),
        },
        "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::bench::row::{Bound, RowKind, Subject, Target};

    fn rows() -> [Row; 2] {
        let target = Target::portable(Subject::FloorRatio, Bound::AtMost, 1.0);
        [("near", 1.5), ("far", 2.5)].map(|(name, ours)| Row {
            kind: RowKind::new(name, "ms").with(target),
            columns: [vec![ours], vec![], vec![1.0]],
        })
    }

    #[test]
    fn rows_far_over_their_target_are_named() {
        assert!(ensure_no(&rows()[..1], Form::Short, Verdict::FarOver).is_ok());
        let error = ensure_no(&rows(), Form::Short, Verdict::FarOver).unwrap_err();
        assert_eq!(error.to_string(), "far");
    }

    #[test]
    fn document_has_form_machine_and_rows() {
        let document = document(&rows(), Form::Short);
        assert_eq!(document["schema"], 1);
        assert_eq!(document["form"], "short");
        assert!(
            document["machine"]["processors"]
                .as_u64()
                .is_some_and(|count| count > 0)
        );
        assert_eq!(document["rows"][1]["verdict"], "over (more than twice)");
    }
}
