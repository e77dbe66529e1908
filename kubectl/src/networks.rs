//! `kubectl multus networks`: which nodes can serve which definition, as each node's daemon finds out, and what the others lack.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{anyhow, ensure};
use api::network_report::Verdict;
use serde::Serialize;

use crate::{
    CommandStatus, Output,
    cluster::{Cluster, Options},
    node_daemon::{AllReplies, not_listed, query_all},
    table::table,
};

/// Arguments of `networks`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The definition: NAME or NAMESPACE/NAME [default: all]
    network: Option<String>,
    /// Only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Namespace of the daemons' pods [default: all namespaces are searched]
    #[arg(long, value_name = "NAME")]
    daemon_namespace: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    networks: Vec<Network<'a>>,
    /// Why nodes did not answer.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    gaps: &'a [String],
}

/// One definition on the nodes that answered.
#[derive(Debug, Serialize)]
struct Network<'a> {
    network: &'a str,
    nodes: Vec<OnNode<'a>>,
}

#[derive(Debug, Serialize)]
struct OnNode<'a> {
    node: &'a str,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

/// Prints definitions and nodes.
pub(crate) async fn run(
    args: &Args,
    options: &Options,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let cluster = Cluster::new(options).await?;
    let (node, namespace) = (args.node.as_deref(), args.daemon_namespace.as_deref());
    let replies = query_all(&cluster, node, namespace).await;
    let replies = replies
        .map_err(|reason| anyhow!("cannot list the daemons' pods: {}", not_listed(&reason)))?;
    let place = node.map_or_else(
        || "in this cluster".to_owned(),
        |node| format!("on node {node}"),
    );
    ensure!(
        !replies.answers.is_empty() || !replies.gaps.is_empty(),
        "there is no daemon of this Multus {place}: check `kubectl get pods -A -l tier=node -o wide`"
    );
    let name = args
        .network
        .as_ref()
        .map(|name| match name.split_once('/') {
            Some(_) => name.clone(),
            None => format!("{}/{name}", cluster.namespace),
        });
    let is_shown = |network: &str| match (&name, &options.namespace) {
        (Some(name), _) => network == name,
        (None, Some(namespace)) => network.split('/').next() == Some(namespace),
        (None, None) => true,
    };
    let networks = by_network(&replies, is_shown);
    if let Some(name) = name {
        ensure!(
            !networks.is_empty() || replies.answers.is_empty(),
            "no node knows a network-attachment-definition {name}: name another namespace with -n"
        );
    }
    let report = Report {
        networks,
        gaps: &replies.gaps,
    };
    output.print(&report, || text(&report))?;
    let is_nowhere = |one: &Network<'_>| served_nowhere(&replies, one.network).is_some();
    Ok(match report.gaps {
        _ if report.networks.iter().any(is_nowhere) => CommandStatus::ProblemFound,
        [] => CommandStatus::Ok,
        _ => CommandStatus::Incomplete,
    })
}

/// Returns the first node that answered about a definition, with what it lacks, if no node can serve the definition.
pub(crate) fn served_nowhere<'a>(
    replies: &'a AllReplies,
    network: &str,
) -> Option<(&'a str, &'a Verdict)> {
    let all: Vec<_> = verdicts(replies, network).collect();
    let is_nowhere = |all: &[(_, &Verdict)]| {
        let mut all = all.iter();
        all.all(|(_, verdict)| matches!(verdict, Verdict::Cannot(_)))
    };
    all.first().copied().filter(|_| is_nowhere(&all))
}

/// Returns the node and the verdict of each answer about a definition, in the order of the nodes.
pub(crate) fn verdicts<'a>(
    replies: &'a AllReplies,
    network: &str,
) -> impl Iterator<Item = (&'a str, &'a Verdict)> {
    replies.answers.iter().filter_map(move |(node, answer)| {
        let mut networks = answer.networks.iter();
        let found = networks.find(|one| one.network == network)?;
        Some((node.as_str(), &found.verdict))
    })
}

/// Returns the nodes that can serve all of these definitions.
pub(crate) fn serving(replies: &AllReplies, networks: &[String]) -> Vec<String> {
    let nodes = replies.answers.keys().filter(|node| {
        networks.iter().all(|network| {
            let mut verdicts = verdicts(replies, network);
            verdicts.any(|(other, verdict)| other == *node && *verdict == Verdict::Serves)
        })
    });
    nodes.cloned().collect()
}

fn by_network(replies: &AllReplies, is_shown: impl Fn(&str) -> bool) -> Vec<Network<'_>> {
    let mut networks = BTreeMap::<&str, Vec<OnNode<'_>>>::new();
    for (node, answer) in &replies.answers {
        for one in answer.networks.iter().filter(|one| is_shown(&one.network)) {
            let verdict = &one.verdict;
            let nodes = networks.entry(&one.network).or_default();
            nodes.push(OnNode { node, verdict });
        }
    }
    let networks = networks.into_iter();
    networks
        .map(|(network, nodes)| Network { network, nodes })
        .collect()
}

fn text(report: &Report<'_>) -> String {
    let rows = report.networks.iter().flat_map(|one| {
        one.nodes.iter().map(|on| {
            let cells = [one.network, on.node, on.verdict.word(), on.verdict.reason()];
            cells.map(str::to_owned).to_vec()
        })
    });
    let rows: Vec<_> = rows.collect();
    let mut text = if rows.is_empty() {
        "no node that answered knows a network-attachment-definition here\n".to_owned()
    } else {
        table(&["NETWORK", "NODE", "STATE", "REASON"], &rows)
    };
    for gap in report.gaps {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nnote: {gap}");
    }
    text
}

#[cfg(test)]
mod tests {
    use api::network_report::NetworksReport;
    use serde_json::json;

    use super::*;

    /// A cluster of which one node serves both networks, one serves one of them, and one does not answer.
    fn replies() -> AllReplies {
        let report = |lan: serde_json::Value| -> NetworksReport {
            let mut lan = lan;
            lan["network"] = "shop/lan".into();
            let other = json!({"network": "infra/other", "state": "cannot", "reason": "no plugin"});
            let report = json!({"schema": 1, "version": "5.0.0", "networks": [other, lan]});
            serde_json::from_value(report).unwrap()
        };
        let missing = json!({"state": "cannot", "reason": "no link ens5"});
        AllReplies {
            answers: BTreeMap::from([
                ("node-a".to_owned(), report(json!({"state": "serves"}))),
                ("node-b".to_owned(), report(missing)),
            ]),
            gaps: vec!["node node-c: there is no daemon on the node".to_owned()],
        }
    }

    #[test]
    fn networks_are_listed_by_node_with_what_is_missing() {
        let replies = replies();
        let report = |shown: &str| Report {
            networks: by_network(&replies, |name| name.starts_with(shown)),
            gaps: &replies.gaps,
        };
        let expected = "NETWORK       NODE     STATE    REASON\n\
            infra/other   node-a   cannot   no plugin\n\
            infra/other   node-b   cannot   no plugin\n\
            shop/lan      node-a   serves\n\
            shop/lan      node-b   cannot   no link ens5\n\n\
            note: node node-c: there is no daemon on the node\n";
        assert_eq!(text(&report("")), expected);
        let json = serde_json::to_value(report("shop/")).unwrap();
        let expected = json!([{"network": "shop/lan", "nodes": [
            {"node": "node-a", "state": "serves"},
            {"node": "node-b", "state": "cannot", "reason": "no link ens5"},
        ]}]);
        assert_eq!(json["networks"], expected);
    }

    #[test]
    fn nodes_serve_all_networks_or_none() {
        let replies = replies();
        let serving = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            serving(&replies, &names)
        };
        assert_eq!(serving(&["shop/lan"]), ["node-a"]);
        assert!(serving(&["shop/lan", "infra/other"]).is_empty());
        assert!(serving(&["shop/absent"]).is_empty());
        let (node, verdict) = served_nowhere(&replies, "infra/other").unwrap();
        assert_eq!((node, verdict.reason()), ("node-a", "no plugin"));
        for name in ["shop/lan", "shop/absent"] {
            assert_eq!(served_nowhere(&replies, name), None);
        }
    }
}
