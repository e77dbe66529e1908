//! `kubectl multus ipam`: the ranges of all definitions, with the numbers of used and free addresses and the nodes that hold them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::IpAddr,
};

use cmdline::counted;
use ipam::{Mode, Range};
use serde::Serialize;

use super::{
    gather,
    snapshot::{Readiness, Snapshot, StoredBlock, bits},
};
use crate::{CommandStatus, Output, cluster::Cluster, table::table};

/// The number of blocks or definitions that a note names.
const NAMES: usize = 3;

/// One range of a space, a row of the table; without a range, the blocks that belong to none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// Empty for the space that all definitions share.
    pub(crate) space: String,
    /// The subnet, or first and last address where several ranges are of one subnet.
    pub(crate) range: Option<String>,
    pub(crate) first: Option<IpAddr>,
    pub(crate) last: Option<IpAddr>,
    /// The definitions with this range.
    pub(crate) networks: Vec<String>,
    pub(crate) used: u32,
    pub(crate) free: Option<u128>,
    /// The number of blocks that each node holds.
    node_blocks: BTreeMap<String, usize>,
    shared_blocks: usize,
    /// Blocks whose addresses go back to whereabouts.
    closed_blocks: usize,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    ranges: Vec<Row>,
    /// Blocks and definitions from which nothing is given, with the reasons.
    problems: Vec<String>,
    /// Everything that could not be read, with the reasons.
    gaps: Vec<String>,
}

/// Prints all ranges.
pub(super) async fn run(cluster: &Cluster, output: Output) -> anyhow::Result<CommandStatus> {
    let report = report(&gather::ranges(cluster).await?);
    output.print(&report, || text(&report))?;
    Ok(match (&report.problems[..], &report.gaps[..]) {
        ([_, ..], _) => CommandStatus::ProblemFound,
        ([], [_, ..]) => CommandStatus::Incomplete,
        ([], []) => CommandStatus::Ok,
    })
}

fn report(snapshot: &Snapshot) -> Report {
    let unusable = snapshot.unusable.iter();
    Report {
        ranges: rows(snapshot),
        problems: unusable
            .map(|one| format!("{}: {}", one.object, one.reason))
            .collect(),
        gaps: snapshot.gaps.clone(),
    }
}

/// Returns a row for each range, and one for each space with blocks of no range.
pub(super) fn rows(snapshot: &Snapshot) -> Vec<Row> {
    let mut ranges = Vec::<(&str, &Range, BTreeSet<&str>)>::new();
    for network in &snapshot.networks {
        for range in &network.ranges {
            let space = network.space.as_str();
            let known = ranges
                .iter_mut()
                .find(|known| (known.0, known.1) == (space, range));
            match known {
                Some((.., names)) => drop(names.insert(&network.name)),
                None => ranges.push((space, range, [network.name.as_str()].into())),
            }
        }
    }
    ranges.sort_by_key(|(space, range, _)| (*space, range.first(), range.last()));
    let mut rows: Vec<_> = ranges
        .iter()
        .map(|(space, range, names)| {
            let is_other = |other: &&(&str, &Range, _)| {
                other.0 == *space && other.1.subnet() == range.subnet()
            };
            let label = match ranges.iter().filter(is_other).count() {
                1 => range.subnet().to_string(),
                _ => format!(
                    "{}-{}/{}",
                    range.first(),
                    range.last(),
                    range.subnet().length()
                ),
            };
            let mut row = of_range(snapshot, space, range);
            row.range = Some(label);
            row.networks = names.iter().map(|&name| name.to_owned()).collect();
            row
        })
        .collect();
    rows.extend(without_range(snapshot));
    rows
}

/// Returns the row of a range, still without its names.
fn of_range(snapshot: &Snapshot, space: &str, range: &Range) -> Row {
    let blocks = snapshot.blocks.iter();
    let blocks = blocks.filter(|block| block.content.space == space);
    let blocks: Vec<_> = blocks
        .map(|block| (block, range.slots(block.content.block)))
        .filter(|(_, slots)| *slots != 0)
        .collect();
    let mut row = row(space, &blocks);
    row.first = Some(range.first());
    row.last = Some(range.last());
    let free = range.count().saturating_sub(row.used.into());
    row.free = Some(free);
    let stuck = stuck(snapshot, &blocks);
    let waiting: u32 = stuck.values().map(|stuck| stuck.free).sum();
    let is_full = free <= waiting.into();
    if is_full {
        let full = match free {
            0 => "full".to_owned(),
            _ => format!(
                "only nodes that are not ready could give the last {}",
                counted(grouped(free), "address")
            ),
        };
        row.notes.insert(0, full);
        let notes = stuck.iter().map(|(node, stuck)| stuck.note(node));
        row.notes.splice(1..1, notes);
    }
    row
}

/// Returns one row for each space with blocks of which no range has an address.
fn without_range(snapshot: &Snapshot) -> Vec<Row> {
    let mut spaces = BTreeMap::<&str, Vec<(&StoredBlock, u32)>>::new();
    for block in &snapshot.blocks {
        let space = block.content.space.as_str();
        let networks = snapshot.networks.iter().filter(|one| one.space == space);
        let mut ranges = networks.flat_map(|network| &network.ranges);
        if !ranges.any(|range| range.slots(block.content.block) != 0) {
            spaces.entry(space).or_default().push((block, u32::MAX));
        }
    }
    let row = |(space, blocks): (&str, Vec<(&StoredBlock, u32)>)| {
        let mut row = row(space, &blocks);
        let names = blocks.iter().map(|(block, _)| block.name.as_str());
        let note = format!("no definition has these addresses: {}", first_names(names));
        row.notes.insert(0, note);
        if !snapshot.on_nodes.is_empty() {
            let names = snapshot.on_nodes.iter().map(String::as_str);
            let note = format!(
                "the ranges of {} are in files of the nodes",
                first_names(names)
            );
            row.notes.insert(1, note);
        }
        row
    };
    spaces.into_iter().map(row).collect()
}

/// Returns what the blocks say about those of their slots that count.
fn row(space: &str, blocks: &[(&StoredBlock, u32)]) -> Row {
    let mut row = Row {
        space: space.to_owned(),
        range: None,
        first: None,
        last: None,
        networks: Vec::new(),
        used: 0,
        free: None,
        node_blocks: BTreeMap::new(),
        shared_blocks: 0,
        closed_blocks: 0,
        notes: Vec::new(),
    };
    let (mut deleted, mut uncounted) = (Vec::new(), Vec::new());
    for (block, slots) in blocks {
        row.used += (block.used() & slots).count_ones();
        match &block.content.mode {
            Mode::Node(holder) => {
                *row.node_blocks.entry(holder.node.to_string()).or_default() += 1;
                if block.content.used.is_none() {
                    uncounted.push(block.name.as_str());
                }
            }
            Mode::Shared(_) => row.shared_blocks += 1,
            Mode::Closed(_) => row.closed_blocks += 1,
        }
        if block.content.is_deleted {
            deleted.push(block.name.as_str());
        }
    }
    for (names, what) in [
        (deleted, "being deleted, so nothing is given from"),
        (uncounted, "without a count of its node, so not counted:"),
    ] {
        if !names.is_empty() {
            let blocks = counted(names.len(), "block");
            let names = first_names(names.iter().copied());
            row.notes.push(format!("{blocks} {what} {names}"));
        }
    }
    if row.closed_blocks > 0 {
        let blocks = counted(row.closed_blocks, "block");
        let note = format!("{blocks} closed while pools go back to whereabouts");
        row.notes.push(note);
    }
    row
}

/// What a node that is not ready keeps from the others.
#[derive(Debug, Default)]
struct Stuck {
    /// Addresses of its blocks, and those of its pods in shared blocks.
    addresses: u32,
    /// Those of them that no pod has.
    free: u32,
    /// `None` when the Node that holds them no longer exists.
    readiness: Option<Readiness>,
}

impl Stuck {
    fn note(&self, node: &str) -> String {
        let (state, is_off) = match self.readiness {
            None => ("which no longer exists", true),
            Some(Readiness::Silent) => ("which is NotReady", true),
            Some(_) => ("which is NotReady while its kubelet reports", false),
        };
        let cure = if is_off {
            format!(": kubectl multus ipam free --node {node}")
        } else {
            String::new()
        };
        format!("{} on node {node}, {state}{cure}", self.addresses)
    }
}

fn stuck(snapshot: &Snapshot, blocks: &[(&StoredBlock, u32)]) -> BTreeMap<String, Stuck> {
    let mut found = BTreeMap::<String, Stuck>::new();
    let mut add = |node: &str, uid: Option<&str>, addresses: u32, used: u32| {
        let readiness = snapshot.readiness(node, uid);
        if addresses != 0 && readiness != Some(Readiness::Ready) {
            let stuck = found.entry(node.to_owned()).or_default();
            stuck.addresses += addresses.count_ones();
            stuck.free += (addresses & !used).count_ones();
            stuck.readiness = readiness;
        }
    };
    for (block, slots) in blocks {
        match &block.content.mode {
            Mode::Node(holder) => add(&holder.node, Some(&holder.uid), *slots, block.used()),
            Mode::Closed(_) => {}
            Mode::Shared(owners) => {
                let pods = owners.iter().flat_map(|slot| &slot.pods);
                let nodes: BTreeSet<_> = pods.map(|pod| pod.node.as_str()).collect();
                for node in nodes {
                    let of_node = bits(owners, |slot| {
                        // A claim keeps its address without the pod.
                        slot.owner.starts_with("pod/")
                            && slot.pods.iter().all(|pod| pod.node == node)
                    });
                    add(node, None, of_node & slots, u32::MAX);
                }
            }
        }
    }
    found
}

fn text(report: &Report) -> String {
    let rows: Vec<_> = report.ranges.iter().map(cells).collect();
    let mut text = if rows.is_empty() {
        "no definition has ipam of type multus-ipam, and there is no block\n".to_owned()
    } else {
        let titles = ["SPACE", "RANGE", "USED", "FREE", "HELD BY", "NOTE"];
        table(&titles, &rows)
    };
    // Writing to a string cannot fail.
    for problem in &report.problems {
        let _ = writeln!(text, "\nproblem: {problem}");
    }
    for gap in &report.gaps {
        let _ = writeln!(text, "\nnote: {gap}");
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let free = row.free.map(grouped);
    vec![
        or_dash(&row.space),
        or_dash(row.range.as_deref().unwrap_or_default()),
        grouped(row.used.into()),
        or_dash(free.as_deref().unwrap_or_default()),
        or_dash(&holders(row)),
        row.notes.join("; "),
    ]
}

/// Returns how many blocks of which nodes there are, and whether others are shared or closed.
pub(crate) fn holders(row: &Row) -> String {
    let mut texts = Vec::new();
    let blocks = counted(row.node_blocks.values().sum::<usize>(), "block");
    match row.node_blocks.first_key_value() {
        None => {}
        Some((node, _)) if row.node_blocks.len() == 1 => {
            texts.push(format!("{blocks} of node {node}"));
        }
        Some(_) => texts.push(format!("{blocks} of {} nodes", row.node_blocks.len())),
    }
    let others = [(row.shared_blocks, "shared"), (row.closed_blocks, "closed")];
    let others = others.iter().filter(|(count, _)| *count > 0);
    texts.extend(others.map(|(_, text)| (*text).to_owned()));
    texts.join(", ")
}

/// Returns the first names, and the number of the others.
fn first_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let shown = names[..names.len().min(NAMES)].join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => shown,
        others => format!("{shown} and {others} more"),
    }
}

/// Writes a number with a comma between each three digits.
pub(crate) fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups = groups.map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshot::tests::Fixture;
    use super::*;

    #[track_caller]
    fn check(fixture: &Fixture, expected: &str) {
        assert_eq!(text(&report(&fixture.snapshot())), expected);
    }

    #[test]
    fn ranges_are_counted_over_blocks_of_nodes_and_shared_ones() {
        let mut fixture = Fixture::new();
        fixture.define("shop/storage", &json!({"subnet": "10.20.0.0/16"}));
        fixture.define("shop/other", &json!({"subnet": "10.20.0.0/16"}));
        fixture.define("shop/few", &json!({"subnet": "10.30.0.0/28"}));
        fixture.node("a", "True");
        fixture.node("b", "True");
        // The network's address and the gateway's are not of the range.
        fixture.node_block("10.20.0.0", "a", "0000001f");
        fixture.node_block("10.20.0.32", "b", "ffffffff");
        fixture.node_block("10.20.0.64", "b", "00000000");
        fixture.shared_block("10.30.0.0", &[(2, "web-0", "a"), (31, "outside", "a")]);
        check(
            &fixture,
            "SPACE   RANGE          USED   FREE     HELD BY               NOTE\n\
             -       10.20.0.0/16   35     65,498   3 blocks of 2 nodes\n\
             -       10.30.0.0/28   1      12       shared\n",
        );
    }

    #[test]
    fn a_full_range_names_nodes_that_are_not_ready() {
        let mut fixture = Fixture::new();
        fixture.define("shop/few", &json!({"subnet": "10.30.0.0/29"}));
        fixture.node("a", "True");
        fixture.node("b", "False");
        fixture.node("c", "Unknown");
        let slots = [
            (2, "p", "a"),
            (3, "q", "c"),
            (4, "r", "c"),
            (5, "s", "b"),
            (6, "t", "gone"),
        ];
        fixture.shared_block("10.30.0.0", &slots);
        check(
            &fixture,
            "SPACE   RANGE          USED   FREE   HELD BY   NOTE\n\
             -       10.30.0.0/29   5      0      shared    full; \
             1 on node b, which is NotReady while its kubelet reports; \
             2 on node c, which is NotReady: kubectl multus ipam free --node c; \
             1 on node gone, which no longer exists: kubectl multus ipam free --node gone\n",
        );
    }

    #[test]
    fn addresses_of_claims_are_not_freed_with_a_node() {
        let mut fixture = Fixture::new();
        fixture.define("shop/one", &json!({"subnet": "10.30.0.0/30"}));
        fixture.node("c", "Unknown");
        fixture.shared_block("10.30.0.0", &[]);
        fixture.claim_slot(2, "c-1", &[("vm", "c")]);
        assert_eq!(rows(&fixture.snapshot())[0].notes, ["full"]);
    }

    #[test]
    fn addresses_that_only_lost_nodes_could_give_are_named() {
        let mut fixture = Fixture::new();
        fixture.define(
            "shop/one",
            &json!({"subnet": "10.20.0.0/24", "rangeStart": "10.20.0.32", "rangeEnd": "10.20.0.63"}),
        );
        fixture.node("c", "True");
        fixture.node_block("10.20.0.32", "c", "7fffffff");
        let snapshot = fixture.snapshot();
        assert_eq!(rows(&snapshot)[0].notes, [""; 0]);
        // The Node was deleted and made anew: it is not the one that holds the block.
        fixture.nodes[0]["metadata"]["uid"] = json!("another");
        assert_eq!(
            rows(&fixture.snapshot())[0].notes,
            [
                "only nodes that are not ready could give the last 1 address",
                "32 on node c, which no longer exists: kubectl multus ipam free --node c"
            ]
        );
    }

    #[test]
    fn spaces_and_ranges_of_one_subnet_are_told_apart() {
        let mut fixture = Fixture::new();
        let part = |first: &str, last: &str| json!({"subnet": "10.20.0.0/24", "rangeStart": first, "rangeEnd": last});
        fixture.define("shop/low", &part("10.20.0.10", "10.20.0.19"));
        fixture.define("shop/high", &part("10.20.0.20", "10.20.0.29"));
        fixture.define(
            "shop/apart",
            &json!({"subnet": "10.20.0.0/24", "space": "lab"}),
        );
        fixture.shared_block(
            "10.20.0.0",
            &[(15, "p", "a"), (25, "q", "a"), (26, "r", "a")],
        );
        check(
            &fixture,
            "SPACE   RANGE                      USED   FREE   HELD BY   NOTE\n\
             -       10.20.0.10-10.20.0.19/24   1      9      shared\n\
             -       10.20.0.20-10.20.0.29/24   2      8      shared\n\
             lab     10.20.0.0/24               0      253    -\n",
        );
    }

    #[test]
    fn blocks_without_a_definition_share_one_row() {
        let mut fixture = Fixture::new();
        for block in ["10.9.0.0", "10.9.0.32", "10.9.0.64", "10.9.0.96"] {
            fixture.node_block(block, "a", "00000003");
        }
        fixture.blocks[1]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        fixture.blocks[2]["spec"]["used"] = json!("");
        let snapshot = fixture.snapshot();
        let found = rows(&snapshot);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].used, found[0].free), (6, None));
        assert_eq!(
            found[0].notes,
            [
                "no definition has these addresses: 10.9.0.0, 10.9.0.32, 10.9.0.64 and 1 more",
                "1 block being deleted, so nothing is given from 10.9.0.32",
                "1 block without a count of its node, so not counted: 10.9.0.64"
            ]
        );
        assert_eq!(holders(&found[0]), "4 blocks of node a");
    }

    #[test]
    fn unusable_blocks_and_definitions_are_problems() {
        let mut fixture = Fixture::new();
        fixture.define("shop/wrong", &json!({"subnet": "10.20.0.1/16"}));
        fixture.node_block("10.9.0.0", "a", "0");
        fixture.blocks[0]["spec"]["mode"] = json!("mine");
        check(
            &fixture,
            "no definition has ipam of type multus-ipam, and there is no block\n\n\
             problem: definition shop/wrong: ipam.subnet: 10.20.0.1/16 has bits behind its prefix; write 10.20.0.0/16\n\n\
             problem: block 10.9.0.0: spec.mode is missing or not \"node\", \"shared\" or \"closed\"; restore it, or delete the block once no pod uses it\n",
        );
    }

    #[test]
    fn numbers_have_groups_of_three_digits() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (65_498, "65,498")] {
            assert_eq!(grouped(number), expected);
        }
        let all = "340,282,366,920,938,463,463,374,607,431,768,211,455";
        assert_eq!(grouped(u128::MAX), all);
    }

    #[test]
    fn a_range_of_128_bits_is_written_as_a_number() {
        let mut fixture = Fixture::new();
        fixture.define("shop/six", &json!({"subnet": "fd00::/64"}));
        let report = report(&fixture.snapshot());
        let json = serde_json::to_string(&report).unwrap();
        assert!(json.contains("\"free\":18446744073709551614,"), "{json}");
    }
}
