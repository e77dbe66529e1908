//! `vpn status [--probe] [--json]`: the VPN of this node, what is wrong with it, and what helps.

use std::path::PathBuf;

use anyhow::bail;
use cmdline::absolute;
use node::root::Root;
use serde::Serialize;
use vpn::{
    probe::{self, Probe},
    state::State,
    status::{Finding, Report, findings},
};

use super::print;
use crate::node_vpn::{files::VpnFiles, report};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro vpn status\n  multus-distro vpn status --probe\n  multus-distro vpn status --json"
)]
pub(crate) struct Args {
    /// Ask the other nodes of the cluster, too: the tunnel, the API server's port and the kubelet's
    #[arg(long)]
    probe: bool,
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
    /// The answers of the other nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<&'a [Probe]>,
    findings: &'a [Finding],
}

/// Prints the report; fails when something is wrong.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let (report, state) = report::report(&root)?;
    let mut findings = findings(&report, state.as_ref());
    let probes = (args.probe && report.phase == "running").then(|| {
        let files = VpnFiles::new(&root);
        let provider = files.record()?.selection.on_this_node(&files.run_dir());
        anyhow::Ok(probe::probe(provider.as_ref(), &report))
    });
    let probes = probes.transpose()?;
    if let Some(probes) = &probes {
        findings.extend(probe::findings(
            report.provider,
            probes,
            probe::has_api(&report),
        ));
    }
    if args.json {
        let output = Output {
            report: &report,
            run: state.as_ref(),
            probes: probes.as_deref(),
            findings: &findings,
        };
        print(&format!("{}\n", serde_json::to_string_pretty(&output)?))?;
    } else {
        print(&report.to_string())?;
        for probe in probes.iter().flatten() {
            print(&format!("{:<14} {probe}\n", "probe"))?;
        }
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
