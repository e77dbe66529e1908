//! `kubectl multus ipam who`: the pods and the claim that have an address, or where it would come from.

use std::{fmt::Write as _, net::IpAddr};

use ipam::{Block, Mode, claim::Reference, object::SlotPod};
use serde::Serialize;

use super::{
    gather,
    snapshot::{Snapshot, StoredBlock, Use},
};
use crate::{CommandStatus, Output, cluster::Cluster};

/// A pod or claim that has the address.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Holder {
    /// Namespace and name; empty for a claim without a pod.
    pod: String,
    /// Empty when it is not known, as for a pod whose network status is not written yet.
    interface: String,
    network: String,
    node: String,
    /// Namespace and name of the claim that has the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    /// Empty for the space that all definitions share.
    space: String,
    /// False for a pod that a block names and that no longer exists.
    exists: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    address: IpAddr,
    holders: Vec<Holder>,
    /// For an address that no pod has: its ranges and blocks, one sentence for each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    places: Vec<String>,
    /// Everything that could not be read, with the reasons.
    gaps: Vec<String>,
}

/// Prints who has the address.
pub(super) async fn run(
    cluster: &Cluster,
    address: IpAddr,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let report = report(&gather::all(cluster).await?, address);
    output.print(&report, || text(&report))?;
    Ok(CommandStatus::of(!report.holders.is_empty()))
}

fn report(snapshot: &Snapshot, address: IpAddr) -> Report {
    let holders = holders(snapshot, address);
    let places = if holders.is_empty() {
        places(snapshot, address)
    } else {
        Vec::new()
    };
    Report {
        address,
        holders,
        places,
        gaps: snapshot.gaps.clone(),
    }
}

/// Returns those that slots name, then pods that have the address by their network status alone.
fn holders(snapshot: &Snapshot, address: IpAddr) -> Vec<Holder> {
    let uses: Vec<_> = snapshot
        .uses()
        .filter(|one| one.address == address)
        .collect();
    let mut holders = Vec::new();
    for block in &snapshot.blocks {
        let Some(slot) = block.slot(address).and_then(|slot| block.slots().get(slot)) else {
            continue;
        };
        let space = &block.content.space;
        let claim = Reference::parse(&slot.owner).map(|claim| claim.to_string());
        if slot.pods.is_empty() && !slot.owner.is_empty() {
            holders.push(Holder {
                claim: Some(claim.clone().unwrap_or_else(|| slot.owner.clone())),
                space: space.clone(),
                exists: true,
                ..Holder::default()
            });
        }
        holders.extend(slot.pods.iter().map(|named| {
            let mut holder = of_slot(snapshot, named, &slot.owner, &uses);
            space.clone_into(&mut holder.space);
            claim.clone_into(&mut holder.claim);
            holder
        }));
    }
    for one in uses {
        let pod = one.pod.name();
        if !holders.iter().any(|holder| holder.pod == pod) {
            let mut networks = snapshot.networks_of(&one.network.name);
            let space = networks.next().map(|network| network.space.clone());
            holders.push(Holder {
                pod,
                interface: one.network.interface.clone(),
                network: one.network.name.clone(),
                node: one.pod.node.clone(),
                claim: None,
                space: space.unwrap_or_default(),
                exists: true,
            });
        }
    }
    holders
}

/// Returns a pod that a slot names, with the network of its status and the interface of the slot's owner or the status.
fn of_slot(snapshot: &Snapshot, named: &SlotPod, owner: &str, uses: &[Use<'_>]) -> Holder {
    let pod = snapshot.pod(named);
    let name = format!("{}/{}", named.namespace, named.name);
    let mut status = uses.iter().filter(|one| one.pod.name() == name);
    let status = status.next().map(|one| one.network);
    let interface = match owner.strip_prefix("pod/") {
        Some(owner) => owner.rsplit('/').next(),
        None => status.map(|status| status.interface.as_str()),
    };
    Holder {
        pod: name,
        interface: interface.unwrap_or_default().to_owned(),
        network: status.map(|status| status.name.clone()).unwrap_or_default(),
        node: named.node.clone(),
        exists: pod.is_some(),
        ..Holder::default()
    }
}

/// Returns where an address without a pod would come from.
fn places(snapshot: &Snapshot, address: IpAddr) -> Vec<String> {
    let mut places = Vec::new();
    for network in &snapshot.networks {
        let ranges = network.ranges.iter();
        for range in ranges.filter(|range| range.subnet().contains(address)) {
            let (subnet, name, space) = (range.subnet(), &network.name, in_space(&network.space));
            places.push(if range.contains(address) {
                format!("range {subnet} of network {name}{space} has it")
            } else {
                format!(
                    "range {subnet} of network {name}{space} does not give it: it is outside the limits, excluded, or the network's, broadcast or gateway address"
                )
            });
        }
    }
    let blocks = snapshot.blocks.iter();
    let blocks = blocks.filter(|block| block.slot(address).is_some());
    let before = places.len();
    places.extend(blocks.map(|block| of_block(block, address)));
    match before {
        0 => places.insert(0, "no definition has it in a range".to_owned()),
        _ if places.len() == before => {
            let block = Block::of(address).first();
            places.push(format!("no node has asked for its block {block} yet"));
        }
        _ => {}
    }
    places
}

fn of_block(block: &StoredBlock, address: IpAddr) -> String {
    let space = in_space(&block.content.space);
    let name = format!("block {}{space}", block.name);
    match &block.content.mode {
        Mode::Node(holder) => {
            let slot = block.slot(address).unwrap_or_default();
            let count = match block.content.used {
                None => "does not report which addresses it has given",
                Some(used) if used >> slot & 1 == 1 => "reports that a pod has it",
                Some(_) => "reports that it is free",
            };
            format!("{name} is held by node {}, which {count}", holder.node)
        }
        Mode::Shared(_) => format!("{name} is shared, and its slot is free"),
        Mode::Closed(_) => format!("{name} is closed, since its pool goes back to whereabouts"),
    }
}

fn in_space(space: &str) -> String {
    match space {
        "" => String::new(),
        space => format!(" in space {space}"),
    }
}

fn text(report: &Report) -> String {
    let address = report.address;
    let mut text = String::new();
    // Writing to a string cannot fail.
    for holder in &report.holders {
        let _ = writeln!(text, "{address}  {}", line(holder));
    }
    if report.holders.is_empty() {
        let places = report.places.join("; ");
        let _ = writeln!(text, "{address}  no pod has it: {places}");
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "\nnote: {gap}");
    }
    text
}

fn line(holder: &Holder) -> String {
    let space = in_space(&holder.space);
    let claim = match &holder.claim {
        // The claim of a pod is in its namespace.
        Some(claim) => {
            let own = holder.pod.split_once('/').map(|(namespace, _)| namespace);
            let name = claim.split_once('/');
            let name = name.filter(|(namespace, _)| Some(*namespace) == own);
            Some(name.map_or(claim.as_str(), |(_, name)| name))
        }
        None => None,
    };
    if holder.pod.is_empty() {
        return format!("claim {}, no pod{space}", claim.unwrap_or_default());
    }
    let mut line = holder.pod.clone();
    if !holder.interface.is_empty() {
        let _ = write!(line, " {}", holder.interface);
    }
    if !holder.network.is_empty() {
        let _ = write!(line, " (network {})", holder.network);
    }
    let _ = write!(line, " on {}", holder.node);
    if let Some(claim) = claim {
        let _ = write!(line, ", claim {claim}");
    }
    line.push_str(&space);
    if !holder.exists {
        line.push_str(", which no longer exists: kubectl multus ipam check");
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshot::tests::Fixture;
    use super::*;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.define("shop/storage", &json!({"subnet": "10.20.0.0/16"}));
        fixture
    }

    #[track_caller]
    fn check(fixture: &Fixture, address: &str, expected: &str) {
        let report = report(&fixture.snapshot(), address.parse().unwrap());
        assert_eq!(text(&report), format!("{address}  {expected}\n"));
    }

    #[test]
    fn pod_of_a_nodes_block_comes_from_its_network_status() {
        let mut fixture = fixture();
        fixture.node_block("10.20.3.0", "b", "00000080");
        fixture.pod("other", "b", "shop/storage", "10.20.3.8");
        fixture.pod("web-0", "b", "shop/storage", "10.20.3.7");
        check(
            &fixture,
            "10.20.3.7",
            "shop/web-0 net1 (network shop/storage) on b",
        );
        fixture.pods[1]["status"]["phase"] = json!("Succeeded");
        check(
            &fixture,
            "10.20.3.7",
            "no pod has it: range 10.20.0.0/16 of network shop/storage has it; block 10.20.3.0 is held by node b, which reports that a pod has it",
        );
    }

    #[test]
    fn pod_of_a_shared_block_comes_from_its_slot() {
        let mut fixture = fixture();
        fixture.shared_block("10.20.3.0", &[(7, "web-0", "b")]);
        check(
            &fixture,
            "10.20.3.7",
            "shop/web-0 net1 on b, which no longer exists: kubectl multus ipam check",
        );
        fixture.pod("web-0", "b", "shop/storage", "10.20.3.7");
        check(
            &fixture,
            "10.20.3.7",
            "shop/web-0 net1 (network shop/storage) on b",
        );
        fixture.pod("web-1", "c", "shop/storage", "10.20.3.7");
        check(
            &fixture,
            "10.20.3.7",
            "shop/web-0 net1 (network shop/storage) on b\n\
             10.20.3.7  shop/web-1 net1 (network shop/storage) on c",
        );
    }

    #[test]
    fn claims_are_named_with_and_without_pods() {
        let mut fixture = fixture();
        fixture.shared_block("10.20.3.0", &[]);
        fixture.claim_slot(7, "c-1", &[("vm-a", "a"), ("vm-b", "b")]);
        fixture.claim_slot(8, "c-2", &[]);
        fixture.pod("vm-a", "a", "shop/storage", "10.20.3.7");
        fixture.pod("vm-b", "b", "shop/storage", "10.20.3.7");
        check(
            &fixture,
            "10.20.3.7",
            "shop/vm-a net1 (network shop/storage) on a, claim c-1\n\
             10.20.3.7  shop/vm-b net1 (network shop/storage) on b, claim c-1",
        );
        check(&fixture, "10.20.3.8", "claim shop/c-2, no pod");
    }

    #[test]
    fn an_address_without_a_pod_has_its_range_and_block() {
        let mut fixture = fixture();
        fixture.node_block("10.20.3.0", "b", "00000080");
        fixture.shared_block("10.20.4.0", &[]);
        let range = "no pod has it: range 10.20.0.0/16 of network shop/storage";
        for (address, expected) in [
            (
                "10.20.3.6",
                "has it; block 10.20.3.0 is held by node b, which reports that it is free",
            ),
            (
                "10.20.4.6",
                "has it; block 10.20.4.0 is shared, and its slot is free",
            ),
            (
                "10.20.5.6",
                "has it; no node has asked for its block 10.20.5.0 yet",
            ),
            (
                "10.20.0.1",
                "does not give it: it is outside the limits, excluded, or the network's, broadcast or gateway address; no node has asked for its block 10.20.0.0 yet",
            ),
        ] {
            check(&fixture, address, &format!("{range} {expected}"));
        }
        check(
            &fixture,
            "10.9.0.1",
            "no pod has it: no definition has it in a range",
        );
    }
}
