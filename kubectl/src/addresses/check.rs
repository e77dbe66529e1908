//! `kubectl multus ipam check`: what is wrong between blocks, definitions, claims and the network status of pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    net::IpAddr,
    time::Duration,
};

use cmdline::counted;
use ipam::{
    Block, Mode,
    claim::{MOST_PODS, Reference},
    object::{POOL_OWNER, SlotPod},
};
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;

use super::{
    gather,
    snapshot::{Snapshot, StoredBlock, Use, is_running},
};
use crate::{CommandStatus, Output, cluster::Cluster};

/// Arguments of `ipam check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Read again after this time and report only what is still so, since pods come and go; 0 reads once
    #[arg(long, value_name = "SECONDS", default_value_t = super::RECHECK, value_parser = clap::value_parser!(u64).range(..=3600))]
    recheck: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// Two running pods have one address.
    Twice,
    /// A pod has an address that is not taken in its block.
    Unrecorded,
    /// An address is taken for a pod or claim that no longer exists.
    Leaked,
    /// A block is held by a node that no longer exists.
    Orphaned,
    /// Nothing is given from a block or definition, since it cannot be read.
    Unusable,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Twice => "twice",
            Self::Unrecorded => "unrecorded",
            Self::Leaked => "leaked",
            Self::Orphaned => "orphaned",
            Self::Unusable => "unusable",
        })
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    /// The address, block or definition that it is about.
    pub(crate) object: String,
    /// Empty for the space that all definitions share.
    pub(crate) space: String,
    /// What is wrong, and the cure.
    pub(crate) text: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    blocks: usize,
    /// The number of addresses that blocks report as taken.
    addresses: u32,
    /// The number of running pods with an address of a block's range.
    pods: usize,
    pub(super) findings: Vec<Finding>,
    /// Everything that could not be read, with the reasons.
    gaps: Vec<String>,
}

/// Compares everything and prints the findings.
pub(super) async fn run(
    args: &Args,
    cluster: &Cluster,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let mut report = report(&gather::all(cluster).await?);
    if !report.findings.is_empty() && args.recheck > 0 {
        sleep(Duration::from_secs(args.recheck)).await;
        let before = report.findings;
        report = self::report(&gather::all(cluster).await?);
        report.findings = confirmed(&before, report.findings);
    }
    output.print(&report, || text(&report))?;
    Ok(match (&report.findings[..], &report.gaps[..]) {
        ([_, ..], _) => CommandStatus::ProblemFound,
        ([], [_, ..]) => CommandStatus::Incomplete,
        ([], []) => CommandStatus::Ok,
    })
}

/// Returns those of the later findings that were there before: a pod that starts or ends meanwhile is none, and what a node reports is up
/// to 5 s old.
pub(super) fn confirmed(before: &[Finding], mut now: Vec<Finding>) -> Vec<Finding> {
    let key = |one: &Finding| (one.kind, one.space.clone(), one.object.clone());
    let before: BTreeSet<_> = before.iter().map(key).collect();
    now.retain(|one| before.contains(&key(one)));
    now
}

pub(super) fn report(snapshot: &Snapshot) -> Report {
    let twice = twice(snapshot);
    let mut findings: Vec<_> = unrecorded(snapshot, &twice).collect();
    findings.extend(twice.into_values());
    findings.extend(snapshot.blocks.iter().flat_map(|one| leaked(snapshot, one)));
    let blocks = snapshot.blocks.iter();
    findings.extend(blocks.filter_map(|one| orphaned(snapshot, one)));
    findings.extend(snapshot.unusable.iter().map(|one| Finding {
        kind: Kind::Unusable,
        object: one.object.clone(),
        space: String::new(),
        text: one.reason.clone(),
    }));
    findings.sort();
    let pods: BTreeSet<_> = uses(snapshot).map(|(_, one)| one.pod.name()).collect();
    Report {
        blocks: snapshot.blocks.len(),
        addresses: snapshot
            .blocks
            .iter()
            .map(|one| one.used().count_ones())
            .sum(),
        pods: pods.len(),
        findings,
        gaps: snapshot.gaps.clone(),
    }
}

/// Returns the addresses of running pods whose network's addresses come from blocks, each with the space.
fn uses(snapshot: &Snapshot) -> impl Iterator<Item = (&str, Use<'_>)> {
    snapshot.uses().filter_map(|one| {
        let mut networks = snapshot.networks_of(&one.network.name);
        Some((networks.next()?.space.as_str(), one))
    })
}

/// A running pod with an address.
#[derive(Debug)]
struct User {
    pod: String,
    /// Pod, interface and node.
    title: String,
    node: String,
}

/// Returns the findings about addresses that several pods have, by space and address.
fn twice(snapshot: &Snapshot) -> BTreeMap<(String, IpAddr), Finding> {
    let mut users = BTreeMap::<(String, IpAddr), Vec<User>>::new();
    for (space, one) in uses(snapshot) {
        let of_address = users.entry((space.to_owned(), one.address)).or_default();
        of_address.push(User {
            pod: one.pod.name(),
            title: one.title(),
            node: one.pod.node.clone(),
        });
    }
    // A pod that has just started has a slot, and no network status yet.
    for block in &snapshot.blocks {
        for (slot, address) in block.slots().iter().zip(addresses(block)) {
            let key = (block.content.space.clone(), address);
            for named in slot
                .pods
                .iter()
                .filter(|named| snapshot.pod(named).is_some_and(is_running))
            {
                let (pod, node) = (pod_name(named), named.node.clone());
                let of_address = users.entry(key.clone()).or_default();
                if !of_address.iter().any(|user| user.pod == pod) {
                    let title = format!("{pod} on {node}");
                    of_address.push(User { pod, title, node });
                }
            }
        }
    }
    users
        .into_iter()
        .filter(|(_, users)| users.len() > 1)
        .filter_map(|((space, address), users)| {
            let block = snapshot.block(&space, address);
            let rightful: Vec<_> = users
                .iter()
                .filter(|user| block.is_some_and(|block| is_recorded(block, user)))
                .collect();
            let is_of_claim = block.is_some_and(|(block, slot)| {
                let slot = block.slots().get(slot);
                slot.is_some_and(|slot| Reference::parse(&slot.owner).is_some())
            });
            if is_of_claim && rightful.len() == users.len() && users.len() <= MOST_PODS {
                return None;
            }
            let titles: Vec<_> = users.iter().map(|user| user.title.as_str()).collect();
            let cure = match rightful[..] {
                [one] => format!(
                    "only {} has it by its block, so delete the others for new addresses",
                    one.pod
                ),
                _ => "delete all of them but one for new addresses".to_owned(),
            };
            let finding = Finding {
                kind: Kind::Twice,
                object: address.to_string(),
                space: space.clone(),
                text: format!("{} have it: {cure}", titles.join(" and ")),
            };
            Some(((space, address), finding))
        })
        .collect()
}

/// Returns true for a pod that the slot names, or whose node holds the block.
fn is_recorded((block, slot): (&StoredBlock, usize), user: &User) -> bool {
    if let Mode::Node(holder) = &block.content.mode {
        return *holder.node == user.node;
    }
    let slot = block.slots().get(slot);
    slot.is_some_and(|slot| slot.pods.iter().any(|named| pod_name(named) == user.pod))
}

/// Returns the addresses of pods that are not taken in their block, so that another pod may get them.
fn unrecorded<'a>(
    snapshot: &'a Snapshot,
    twice: &BTreeMap<(String, IpAddr), Finding>,
) -> impl Iterator<Item = Finding> + use<'a> {
    let twice: BTreeSet<_> = twice.keys().cloned().collect();
    snapshot.uses().filter_map(move |one| {
        let mut networks = snapshot.networks_of(&one.network.name);
        let network = networks.find(|network| {
            let mut ranges = network.ranges.iter();
            ranges.any(|range| range.contains(one.address))
        })?;
        let (space, address) = (&network.space, one.address);
        let block = snapshot.block(space, address);
        if twice.contains(&(space.clone(), address)) || (!network.is_own && block.is_none()) {
            return None;
        }
        let reason = not_taken(block, &one, address)?;
        Some(Finding {
            kind: Kind::Unrecorded,
            object: address.to_string(),
            space: space.clone(),
            text: format!(
                "{} has it, and {reason}: delete the pod, so that it gets another address",
                one.title()
            ),
        })
    })
}

/// Returns why a pod's address is not taken in its block; `None` when it is, or when that is not known.
fn not_taken(
    block: Option<(&StoredBlock, usize)>,
    one: &Use<'_>,
    address: IpAddr,
) -> Option<String> {
    let Some((block, slot)) = block else {
        let block = Block::of(address).first();
        return Some(format!("no node holds its block {block}"));
    };
    let name = &block.name;
    match &block.content.mode {
        Mode::Closed(_) => None,
        Mode::Node(holder) if *holder.node != one.pod.node => {
            Some(format!("node {} holds its block {name}", holder.node))
        }
        Mode::Node(holder) => {
            let is_taken = block.content.used? >> slot & 1 == 1;
            let node = &holder.node;
            (!is_taken).then(|| format!("node {node} reports it as free in its block {name}"))
        }
        Mode::Shared(slots) => {
            let slot = slots.get(slot)?;
            let pod = one.pod.name();
            if slot.pods.iter().any(|named| pod_name(named) == pod) {
                return None;
            }
            Some(match slot.owner.as_str() {
                "" => format!("its slot in block {name} is free"),
                owner => {
                    let pods: Vec<_> = slot.pods.iter().map(pod_name).collect();
                    let owner = match &pods[..] {
                        [] => owner.to_owned(),
                        pods => pods.join(" and "),
                    };
                    format!("its slot in block {name} is that of {owner}")
                }
            })
        }
    }
}

/// Returns the slots of a shared block whose pod or claim no longer exists.
fn leaked<'a>(
    snapshot: &'a Snapshot,
    block: &'a StoredBlock,
) -> impl Iterator<Item = Finding> + use<'a> {
    let slots = match &block.content.mode {
        Mode::Shared(slots) => &slots[..],
        Mode::Node(_) | Mode::Closed(_) => &[],
    };
    let taken = slots.iter().zip(addresses(block));
    taken.zip(0..).filter_map(move |((slot, address), number)| {
        let finding = |text: String| Finding {
            kind: Kind::Leaked,
            object: address.to_string(),
            space: block.content.space.clone(),
            text,
        };
        let claim = Reference::parse(&slot.owner);
        if let (Some(claim), Some(claims)) = (claim, &snapshot.claims)
            && !claims.contains(&claim.uid)
        {
            return Some(finding(format!(
                "claim {claim} no longer exists, and block {} has it for the claim: the daemon of its last pod's node frees it, or the first that finds its range full",
                block.name
            )));
        }
        if slot.owner.starts_with(POOL_OWNER) && slot.pods.is_empty() {
            let (name, owner) = (&block.name, &slot.owner);
            let place = format!("/spec/slots/{number}");
            let patch = json!([{"op": "test", "path": format!("{place}/owner"), "value": owner},
                {"op": "replace", "path": place, "value": {"owner": "", "pods": []}}]);
            return Some(finding(format!(
                "{owner} came with a pool of whereabouts for a pod that did not exist: the daemon of its node frees it; if no container has it any more, kubectl patch addressblock {name} --type=json --patch='{patch}'"
            )));
        }
        let gone = slot.pods.iter().find(|named| snapshot.pod(named).is_none())?;
        let node = &gone.node;
        Some(finding(format!(
            "pod {} no longer exists, and block {} has it for the pod: the daemon of node {node} frees it; if the machine is off for good, kubectl multus ipam free --node {node}",
            pod_name(gone),
            block.name
        )))
    })
}

/// Returns a block whose Node no longer exists, or was made anew for another machine.
fn orphaned(snapshot: &Snapshot, block: &StoredBlock) -> Option<Finding> {
    let Mode::Node(holder) = &block.content.mode else {
        return None;
    };
    if snapshot
        .readiness(&holder.node, Some(&holder.uid))
        .is_some()
    {
        return None;
    }
    let node = &holder.node;
    let cure = format!("kubectl multus ipam free --node {node}");
    let text = match snapshot.readiness(node, None) {
        None => format!(
            "its node {node} no longer exists: it is freed ten minutes after no pod is bound to that name, or at once by {cure}"
        ),
        Some(_) => format!(
            "its node {node} was deleted, and a new Node has the name: while the machine is off, {cure}"
        ),
    };
    Some(Finding {
        kind: Kind::Orphaned,
        object: format!("block {}", block.name),
        space: block.content.space.clone(),
        text,
    })
}

/// Returns the addresses of a block, in the order of its slots.
fn addresses(block: &StoredBlock) -> impl Iterator<Item = IpAddr> + use<> {
    let block = block.content.block;
    (0..ipam::range::BLOCK_SIZE).map(move |slot| block.address(slot))
}

fn pod_name(named: &SlotPod) -> String {
    format!("{}/{}", named.namespace, named.name)
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for one in &report.findings {
        let space = match one.space.as_str() {
            "" => String::new(),
            space => format!(" in space {space}"),
        };
        let _ = writeln!(text, "{}: {}{space}: {}", one.kind, one.object, one.text);
    }
    if report.findings.is_empty() {
        let _ = writeln!(
            text,
            "nothing is wrong: {} with {} in use, {} with an address",
            counted(report.blocks, "block"),
            counted(report.addresses, "address"),
            counted(report.pods, "running pod"),
        );
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "\nnote: {gap}");
    }
    text
}

#[cfg(test)]
mod tests;
