//! `vpn status [--json]`: the VPN of this node, what is wrong with it, and what helps.

use std::path::PathBuf;

use anyhow::bail;
use cmdline::absolute;
use node::root::Root;
use serde::Serialize;
use vpn::{
    state::State,
    status::{Finding, Report, findings},
};

use super::print;
use crate::node_vpn::report;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  multus-distro vpn status\n  multus-distro vpn status --json")]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

/// The JSON output.
#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// The state that `vpn run` wrote last.
    run: Option<&'a State>,
    findings: &'a [Finding],
}

/// Prints the report; fails when something is wrong.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (report, state) = report::report(&Root::open(&args.root)?)?;
    let findings = findings(&report, state.as_ref());
    if args.json {
        let output = Output {
            report: &report,
            run: state.as_ref(),
            findings: &findings,
        };
        print(&format!("{}\n", serde_json::to_string_pretty(&output)?))?;
    } else {
        print(&report.to_string())?;
        for finding in &findings {
            let word = if finding.is_problem {
                "problem"
            } else {
                "note"
            };
            print(&format!("{word:<14} {}\n", finding.text))?;
        }
    }
    let problems: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.is_problem)
        .collect();
    match problems[..] {
        [] => Ok(()),
        [problem] => bail!("{}", problem.text),
        [first, ..] => bail!("{} problems, the first: {}", problems.len(), first.text),
    }
}
