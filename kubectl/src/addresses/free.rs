//! `kubectl multus ipam free`: an operator says that a node's machine is off for good, so its addresses may be given again.
//!
//! Each request tests what it was decided on, so one that lands late, or after a daemon's own, changes nothing.

use std::fmt::Write as _;

use anyhow::Context as _;
use cmdline::counted;
use ipam::{
    Mode, Slot,
    claim::Reference,
    guest::mover::Write,
    object::{self, NODE_LABEL},
    range::BLOCK_SIZE,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    gather,
    snapshot::{Node, Readiness, Snapshot, StoredBlock},
};
use crate::{
    CommandStatus, Output,
    cluster::{Cluster, PatchError},
};

/// Arguments of `ipam free`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The node
    #[arg(long, value_name = "NAME")]
    node: String,
    /// Free them; without it nothing is changed
    #[arg(long)]
    yes: bool,
}

/// A block or address to free, and the request that does it.
#[derive(Debug, PartialEq, Serialize)]
struct Step {
    /// The name of the block's object.
    block: String,
    /// What is freed.
    text: String,
    #[serde(skip)]
    operations: Value,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    /// Nothing was asked of the API server.
    Planned,
    Freed,
    /// The block has changed since it was read.
    Changed(String),
    Failed(String),
}

#[derive(Debug, Serialize)]
struct Report {
    node: String,
    /// Why nothing is freed, although the node has addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    steps: Vec<Step>,
    /// Blocks that cannot be read, so that it is not known whether the node holds them.
    problems: Vec<String>,
    /// Everything else that could not be read, with the reasons.
    gaps: Vec<String>,
}

/// Prints what the node has, and frees it when the operator has confirmed it.
pub(super) async fn run(
    args: &Args,
    cluster: &Cluster,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let snapshot = gather::blocks(cluster).await?;
    // The node is read last, since it may have come back.
    let node = gather::node(cluster, &args.node).await;
    let node = node.context("nothing was freed")?;
    let mut report = report(&snapshot, &args.node, node.as_ref());
    if args.yes && report.refusal.is_none() {
        for step in &mut report.steps {
            let freed = Write::Patch(object::PATH, &step.block, &step.operations);
            step.outcome = match cluster.write(freed).await {
                Ok(_) => Outcome::Freed,
                Err(PatchError::Changed(reason)) => Outcome::Changed(reason),
                Err(PatchError::Failed(reason)) => Outcome::Failed(reason),
            };
        }
    }
    output.print(&report, || text(&report))?;
    let is_done = report
        .steps
        .iter()
        .all(|step| step.outcome == Outcome::Freed);
    Ok(
        match (is_done && report.problems.is_empty(), &report.gaps[..]) {
            (false, _) => CommandStatus::ProblemFound,
            (true, [_, ..]) => CommandStatus::Incomplete,
            (true, []) => CommandStatus::Ok,
        },
    )
}

fn report(snapshot: &Snapshot, name: &str, node: Option<&Node>) -> Report {
    let steps: Vec<_> = snapshot
        .blocks
        .iter()
        .flat_map(|block| steps(block, name))
        .collect();
    let refusal = node.and_then(|node| refusal(name, node.readiness));
    let unusable = snapshot.unusable.iter();
    Report {
        node: name.to_owned(),
        refusal: refusal.filter(|_| !steps.is_empty()),
        steps,
        problems: unusable
            .map(|one| format!("{}: {}", one.object, one.reason))
            .collect(),
        gaps: snapshot.gaps.clone(),
    }
}

/// Returns why the addresses of a node must not be freed: its kubelet reports, so its pods run and its daemon gives addresses of its blocks
/// without asking anyone.
fn refusal(name: &str, readiness: Readiness) -> Option<String> {
    let state = match readiness {
        Readiness::Ready => "is Ready",
        Readiness::NotReady => "is NotReady, but its kubelet reports",
        Readiness::Silent => return None,
    };
    Some(format!(
        "node {name} {state}, so its machine is on and its pods use these addresses: shut it down first, and wait until the Node is NotReady"
    ))
}

/// Returns what a node has of a block.
fn steps(block: &StoredBlock, node: &str) -> Vec<Step> {
    let step = |text: String, operations: Vec<Value>| Step {
        block: block.name.clone(),
        text,
        operations: Value::from(operations),
        outcome: Outcome::Planned,
    };
    match &block.content.mode {
        Mode::Node(holder) if *holder.node == *node => {
            let used = match block.content.used {
                Some(used) => format!("{} of {BLOCK_SIZE} in use", used.count_ones()),
                None => "use unknown".to_owned(),
            };
            vec![step(
                format!("block {}, {used}{}", block.name, deleted(block)),
                release(block),
            )]
        }
        Mode::Node(_) | Mode::Closed(_) => Vec::new(),
        Mode::Shared(slots) => {
            let taken = slots.iter().filter(|slot| !slot.owner.is_empty()).count();
            let claimed = slots
                .iter()
                .any(|slot| Reference::parse(&slot.owner).is_some());
            let numbered = (0..BLOCK_SIZE).zip(slots);
            let freed = numbered.filter_map(|(index, slot)| {
                let operations = empty(block, index, slot, node)?;
                let pods = slot.pods.iter().filter(|pod| pod.node == node);
                let pods: Vec<_> = pods
                    .map(|pod| format!("{}/{}", pod.namespace, pod.name))
                    .collect();
                let address = block.content.block.address(index);
                let kept = match Reference::parse(&slot.owner) {
                    Some(claim) => format!(", which stays that of claim {claim}"),
                    None => String::new(),
                };
                let text = format!("{address} of pod {}{kept}", pods.join(" and "));
                Some(step(text, operations))
            });
            let mut freed: Vec<_> = freed.collect();
            // The node that frees the last address of a deleted block lets it go. Where others remain, one of their nodes does.
            if block.content.is_deleted && !claimed && taken > 0 && freed.len() == taken {
                let text = format!("block {}{}", block.name, deleted(block));
                freed.push(step(text, let_go(block)));
            }
            freed
        }
    }
}

fn deleted(block: &StoredBlock) -> &'static str {
    if block.content.is_deleted {
        ", which was deleted"
    } else {
        ""
    }
}

/// Returns the request that lets a deleted block go that is shared, once no address of it has an owner.
fn let_go(block: &StoredBlock) -> Vec<Value> {
    let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
    let mut operations = vec![
        test("/metadata/uid", &block.content.uid),
        test("/spec/mode", "shared"),
    ];
    let slots = 0..BLOCK_SIZE;
    operations.extend(slots.map(|slot| test(&format!("/spec/slots/{slot}/owner"), "")));
    operations.push(json!({"op": "remove", "path": "/metadata/finalizers"}));
    operations
}

/// Returns the request that makes a node's block a shared one without owners, or lets it go where it was deleted.
fn release(block: &StoredBlock) -> Vec<Value> {
    let free = json!({"owner": "", "pods": []});
    let turn = block.content.turn;
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": *block.content.uid}),
        json!({"op": "test", "path": "/spec/mode", "value": "node"}),
        json!({"op": "test", "path": "/spec/turn", "value": turn}),
        json!({"op": "test", "path": "/spec/holder", "value": block.object["spec"]["holder"]}),
    ];
    if block.content.is_deleted {
        operations.push(json!({"op": "remove", "path": "/metadata/finalizers"}));
        return operations;
    }
    operations.extend([
        json!({"op": "replace", "path": "/spec/mode", "value": "shared"}),
        json!({"op": "replace", "path": "/spec/turn", "value": turn + 1}),
        json!({"op": "add", "path": "/spec/slots", "value": vec![free; BLOCK_SIZE as usize]}),
        json!({"op": "remove", "path": "/spec/holder"}),
        // A removal fails where there is nothing, and the holder may just have written it.
        json!({"op": "add", "path": "/spec/used", "value": ""}),
        json!({"op": "remove", "path": "/spec/used"}),
    ]);
    if !block.object["metadata"]["labels"].is_object() {
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": {}}));
    }
    let label = NODE_LABEL.replace('/', "~1");
    let path = format!("/metadata/labels/{label}");
    operations.push(json!({"op": "add", "path": path, "value": ""}));
    operations
}

/// Returns the request that takes a node's pods out of a slot; `None` when the slot has none, or also pods of other nodes and no claim.
/// The slot of a claim stays that of the claim, whose status has the address.
fn empty(block: &StoredBlock, index: u32, slot: &Slot, node: &str) -> Option<Vec<Value>> {
    let is_of_node = |pod: &&Value| pod["node"] == node;
    let path = format!("/spec/slots/{index}");
    let written = block.object.pointer(&path)?;
    let pods = written["pods"].as_array()?;
    let of_node = pods.iter().filter(is_of_node).count();
    let is_of_claim = Reference::parse(&slot.owner).is_some();
    if of_node == 0 || (of_node < pods.len() && !is_of_claim) {
        return None;
    }
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": *block.content.uid}),
        json!({"op": "test", "path": "/spec/mode", "value": "shared"}),
        json!({"op": "test", "path": format!("{path}/owner"), "value": slot.owner}),
    ];
    if is_of_claim {
        let kept: Vec<_> = pods.iter().filter(|pod| !is_of_node(pod)).collect();
        let path = format!("{path}/pods");
        operations.push(json!({"op": "test", "path": path, "value": pods}));
        operations.push(json!({"op": "replace", "path": path, "value": kept}));
    } else {
        let free = json!({"owner": "", "pods": []});
        operations.push(json!({"op": "replace", "path": path, "value": free}));
    }
    Some(operations)
}

fn text(report: &Report) -> String {
    let node = &report.node;
    let mut text = String::new();
    // Writing to a string cannot fail.
    for step in &report.steps {
        let _ = match &step.outcome {
            Outcome::Planned => writeln!(text, "has        {}", step.text),
            Outcome::Freed => writeln!(text, "freed      {}", step.text),
            Outcome::Changed(reason) => writeln!(
                text,
                "not freed  {}: it has changed meanwhile ({reason}); run the command again",
                step.text
            ),
            Outcome::Failed(reason) => writeln!(text, "not freed  {}: {reason}", step.text),
        };
    }
    let count = |outcome: fn(&Outcome) -> bool| {
        let steps = report.steps.iter();
        steps.filter(|step| outcome(&step.outcome)).count()
    };
    let planned = count(|outcome| *outcome == Outcome::Planned);
    let _ = match &report.refusal {
        _ if report.steps.is_empty() => {
            writeln!(
                text,
                "node {node} holds no block and no address of a shared one"
            )
        }
        Some(refusal) => writeln!(text, "\nnothing was freed: {refusal}"),
        None if planned > 0 => writeln!(
            text,
            "\nnothing was freed: pods that still run on {node} would share these addresses with others; when its machine is off for good, add --yes"
        ),
        None => {
            let freed = count(|outcome| *outcome == Outcome::Freed);
            let of = counted(report.steps.len(), "entry");
            writeln!(text, "\n{freed} of {of} of node {node} freed")
        }
    };
    for problem in &report.problems {
        let _ = writeln!(text, "\nproblem: {problem}");
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "\nnote: {gap}");
    }
    text
}

#[cfg(test)]
mod tests;
