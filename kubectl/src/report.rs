//! `kubectl multus report`: the networks of a cluster's nodes and pods, and what is wrong with them, at one moment.
//!
//! `gather` reads the cluster into a snapshot, `model` decides over it with the functions of the other commands, `html` and `drawing` write
//! the page.

mod drawing;
mod gather;
mod html;
mod model;
mod secrets;
mod vpn;

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::Context as _;
use cmdline::counted;

use self::model::{Finding, Network, Pod, Report};
use crate::{
    CommandStatus, Output,
    addresses::{Row, grouped},
    cluster::{Cluster, Options},
    diagnostic::Severity,
    table::table,
};

/// The number of objects of one finding that are named.
const NAMES: usize = 3;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pods and definitions of all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Also write a page to this file, which needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Include values of configurations and cni-args, which may be secret
    #[arg(long)]
    full: bool,
    /// The VPN of a node, as `multus-distro vpn status --json` prints it there; may be repeated
    #[arg(long, value_name = "FILE")]
    vpn: Vec<PathBuf>,
    /// Namespace of the daemons' pods [default: all namespaces are searched]
    #[arg(long, value_name = "NAME")]
    daemon_namespace: Option<String>,
}

/// Reads the cluster and prints the report.
pub(crate) async fn run(
    args: &Args,
    options: &Options,
    output: Output,
    now: u64,
) -> anyhow::Result<CommandStatus> {
    let vpn: anyhow::Result<Vec<_>> = args.vpn.iter().map(|path| vpn::read(path)).collect();
    let vpn = vpn?;
    let cluster = Cluster::new(options).await?;
    let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
    let mut snapshot =
        gather::read(&cluster, namespace, args.daemon_namespace.as_deref(), now).await?;
    snapshot.vpn = vpn;
    let report = model::report(&snapshot, args.full)?;
    if let Some(path) = &args.html {
        let page = html::page(&report);
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output.print(&report, || text(&report))?;
    Ok(match &report.gaps[..] {
        _ if report.has_problem() => CommandStatus::ProblemFound,
        [] => CommandStatus::Ok,
        _ => CommandStatus::Incomplete,
    })
}

/// Returns what is wrong, and a short table of networks and of nodes.
fn text(report: &Report<'_>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for one in &report.findings {
        let objects = first_objects(one);
        let _ = writeln!(text, "{:<8} {objects}: {}", one.severity, one.text);
        if !one.hint.is_empty() {
            let _ = writeln!(text, "         {}", one.hint);
        }
        let _ = writeln!(text, "         {}", one.command);
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "note     {gap}");
    }
    let _ = writeln!(text, "{}\n", summary(report));
    let rows = report.networks.iter().map(|one| {
        let shared = ranges_of(report, &one.name).map(|row| {
            let free = row.free.map_or_else(|| "?".to_owned(), grouped);
            format!("{} used, {free} free", grouped(row.used.into()))
        });
        let of_nodes = one.node_ranges.iter().map(|range| {
            let (used, free) = (grouped(range.used), grouped(range.free));
            let node = range.node.iter().map(|node| format!(" on {node}"));
            format!("{used} used, {free} free{}", node.collect::<String>())
        });
        let addresses: Vec<_> = shared.chain(of_nodes).collect();
        vec![
            one.name.clone(),
            one.plugins.join("+"),
            served(one),
            attachments(report, &one.name).to_string(),
            addresses.join("; "),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let titles = ["NETWORK", "PLUGIN", "SERVED BY", "PODS", "ADDRESSES"];
        text.push_str(&table(&titles, &rows));
    }
    text
}

/// Returns a sentence with the numbers of findings and objects.
fn summary(report: &Report<'_>) -> String {
    format!(
        "{}, {}; {}, {}, {} with networks",
        counted(report.count(Severity::Error), "error"),
        counted(report.count(Severity::Warning), "warning"),
        counted(report.nodes.len(), "node"),
        counted(report.networks.len(), "network"),
        counted(report.pods.len(), "pod"),
    )
}

fn first_objects(finding: &Finding) -> String {
    let shown = finding.objects.len().min(NAMES);
    let names = finding.objects[..shown].join(", ");
    match finding.objects.len() - shown {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// Returns how many of the nodes that answered serve a network.
fn served(network: &Network) -> String {
    use api::network_report::Verdict;
    let nodes = network.nodes.iter();
    let serve = nodes.filter(|one| one.verdict == Verdict::Serves).count();
    format!("{serve} of {}", counted(network.nodes.len(), "node"))
}

/// Returns how many interfaces of pods are in a network.
fn attachments(report: &Report<'_>, network: &str) -> usize {
    let rows = report.pods.iter().flat_map(Pod::additional);
    rows.filter(|(_, row)| row.network == network).count()
}

fn ranges_of<'a>(report: &'a Report<'_>, network: &str) -> impl Iterator<Item = &'a Row> {
    let ranges = report.ranges.iter().copied();
    ranges.filter(move |row| row.networks.iter().any(|name| name == network))
}

#[cfg(test)]
mod tests;
