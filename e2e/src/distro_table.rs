//! The table of what passed on which release of K3s and of RKE2: their suites write it, and pages name no release that it lacks.

use crate::{
    options::Options,
    page_table,
    report::{Checked, Report},
    test_env::TestEnv,
};

/// The page with the table, in the checkout.
const PAGE: &str = "docs/contributing/distros.md";

/// A release of a distro.
pub(crate) struct DistroRelease {
    /// Its name on pages.
    pub(crate) distro: &'static str,
    pub(crate) version: String,
}

impl DistroRelease {
    /// Runs cases one after the other; with `--record` each that passes gets a row.
    pub(crate) fn run<C>(
        &self,
        env: &TestEnv,
        options: &Options,
        cases: &[&(&str, C)],
        report: &mut Report,
        run: impl Fn(&C, &mut Report) -> Checked,
    ) -> Checked {
        for (name, case) in cases {
            let before = report.passed();
            run(case, report)?;
            let checks = report.passed() - before;
            if options.record {
                report.check(&format!("{PAGE} has what passed of {name}"), || {
                    self.record(env, name, checks)
                })?;
            }
        }
        Ok(())
    }

    fn record(&self, env: &TestEnv, case: &str, checks: u32) -> anyhow::Result<()> {
        let key = format!("| {} | {} | `{case}` |", self.distro, self.version);
        page_table::write_row(env, PAGE, &key, &checks.to_string())
    }
}
