//! `kubectl multus status` without a pod: the additional networks of the pods of a namespace, or of all, from only the pods' objects.

use std::fmt::Write as _;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;

use super::{Report, cells, report};
use crate::{
    CommandStatus, Output,
    cluster::{Cluster, Options},
    pod_snapshot::PodSnapshot,
    pod_state::PodState,
    table::table,
};

#[derive(Debug, Default, Serialize)]
struct List {
    /// The pods that have or request additional networks.
    pods: Vec<Report>,
    /// Everything that could not be read, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<String>,
}

/// Prints the additional networks of the pods.
pub(crate) async fn run(
    options: &Options,
    has_all_namespaces: bool,
    output: Output,
    now: u64,
) -> anyhow::Result<CommandStatus> {
    let cluster = Cluster::new(options).await?;
    let namespace = (!has_all_namespaces).then_some(cluster.namespace.as_str());
    let pods = cluster.pods(namespace).await;
    let pods = pods.map_err(|reason| anyhow!("cannot list pods: {reason}"))?;
    let list = list(&pods, now)?;
    output.print(&list, || text(&list, namespace))?;
    let is_attached = |report: &Report| report.missing.is_empty() && report.problem.is_none();
    Ok(match (list.pods.iter().all(is_attached), &list.gaps[..]) {
        (false, _) => CommandStatus::ProblemFound,
        (true, [_, ..]) => CommandStatus::Incomplete,
        (true, []) => CommandStatus::Ok,
    })
}

fn list(pods: &[Value], now: u64) -> anyhow::Result<List> {
    let mut list = List::default();
    for object in pods {
        let pod_state = match PodState::read(object) {
            Ok(pod_state) => pod_state,
            Err(reason) => {
                let at = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
                list.gaps
                    .push(format!("{}/{}: {reason}", at("namespace"), at("name")));
                continue;
            }
        };
        let has_ended = ["Succeeded", "Failed"].contains(&pod_state.phase.as_str());
        if has_ended || pod_state.pod.host_network {
            continue;
        }
        let report = report(&PodSnapshot::from_object(pod_state)?, now);
        let has_additional = report.networks.iter().any(|row| !row.default);
        if has_additional || !report.missing.is_empty() || report.problem.is_some() {
            list.pods.push(report);
        }
    }
    list.pods.sort_by(|one, other| one.pod.cmp(&other.pod));
    Ok(list)
}

fn text(list: &List, namespace: Option<&str>) -> String {
    let rows: Vec<_> = list.pods.iter().flat_map(rows).collect();
    let mut text = if rows.is_empty() {
        let of = namespace.map_or_else(String::new, |name| format!(" of namespace {name}"));
        format!("no running pod{of} has additional networks\n")
    } else {
        let titles = ["POD", "NODE", "NETWORK", "INTERFACE", "ADDRESSES", "AGE"];
        table(&titles, &rows)
    };
    // Writing to a string cannot fail.
    for report in &list.pods {
        if let Some(problem) = &report.problem {
            // An error of the daemon names the pod.
            let named = format!("pod {}: ", report.pod);
            let problem = problem.strip_prefix(&named).unwrap_or(problem);
            let _ = writeln!(text, "\nproblem: {}: {problem}", report.pod);
        }
    }
    let is_missing = |report: &&Report| !report.missing.is_empty();
    if let Some(report) = list.pods.iter().find(is_missing) {
        let _ = writeln!(text, "\n`kubectl multus why {}` says why", report.pod);
    }
    for gap in &list.gaps {
        let _ = writeln!(text, "\nnote: {gap}");
    }
    text
}

/// Returns a row for each additional network that the pod has or misses.
fn rows(report: &Report) -> Vec<Vec<String>> {
    let node = if report.node.is_empty() {
        "-"
    } else {
        &report.node
    };
    let row = |network: &[&str]| {
        let row = [&[report.pod.as_str(), node][..], network].concat();
        row.into_iter().map(str::to_owned).collect()
    };
    let additional = report.networks.iter().filter(|row| !row.default);
    let mut rows: Vec<_> = additional
        .map(|one| match &cells(one)[..] {
            [network, interface, addresses, _, _, age] => {
                row(&[network, interface, addresses, age])
            }
            _ => unreachable!("a network has six cells"),
        })
        .collect();
    let missing = report.missing.iter();
    rows.extend(missing.map(|name| row(&[name, "-", "not attached", "-"])));
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, networks: &str, status: &Value) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name, "annotations": {
                "k8s.v1.cni.cncf.io/networks": networks,
                "k8s.v1.cni.cncf.io/network-status": status.to_string(),
            }},
            "spec": {"nodeName": "node-a", "containers": []},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
        })
    }

    const NOW: u64 = 1_767_225_660;

    #[test]
    fn pod_of_a_problem_is_named_once() {
        let list = list(&[pod("cart", "[{", &json!([]))], NOW).unwrap();
        let text = text(&list, None);
        assert!(
            text.contains("\nproblem: shop/cart: annotation k8s.v1"),
            "{text}"
        );
    }

    #[test]
    fn only_running_pods_with_additional_networks_are_listed() {
        let default =
            json!({"name": "cbr0", "interface": "eth0", "ips": ["10.42.0.5"], "default": true});
        let storage = json!({"name": "shop/storage", "interface": "net1", "ips": ["10.20.0.5"]});
        let with = pod("with", "storage", &json!([default, storage]));
        let without = pod("without", "", &json!([default]));
        let missing = pod("a-missing", "storage", &json!([default]));
        let mut ended = pod("ended", "storage", &json!([default]));
        ended["status"]["phase"] = json!("Succeeded");
        let mut on_host = pod("on-host", "storage", &json!([]));
        on_host["spec"]["hostNetwork"] = json!(true);
        let mut unreadable = pod("unreadable", "", &json!([]));
        unreadable["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = json!("{");
        let found = list(&[with, without, missing, ended, on_host, unreadable], NOW).unwrap();
        let text = text(&found, None);
        let expected = "POD              NODE     NETWORK        INTERFACE   ADDRESSES      AGE\n\
            shop/a-missing   node-a   shop/storage   -           not attached   -\n\
            shop/with        node-a   shop/storage   net1        10.20.0.5      <60s\n\n\
            `kubectl multus why shop/a-missing` says why\n\n\
            note: shop/unreadable: the pod's network status cannot be read: ";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn no_pods_are_said_in_a_sentence() {
        let none = List::default();
        let expected = "no running pod of namespace shop has additional networks\n";
        assert_eq!(text(&none, Some("shop")), expected);
        assert_eq!(
            text(&none, None),
            "no running pod has additional networks\n"
        );
    }
}
