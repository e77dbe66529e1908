//! Draws one node: its links, the networks that build on them, and the pods in these networks. Texts can be selected and found.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    html::escaped,
    model::{Network, Pod, Report},
};

/// The most pods of one network that are drawn; the page has a table of all.
const PODS: usize = 8;
/// The height of a line of text.
const LINE: usize = 22;
const GAP: usize = 18;
/// Where the three columns begin, and their widths.
const COLUMNS: [(usize, usize); 3] = [(0, 170), (230, 230), (520, 360)];
/// The most characters of a text, by column.
const CHARACTERS: [usize; 3] = [20, 28, 50];

/// Returns the drawing of a node, or `None` when none of its pods has an additional network.
pub(super) fn node(report: &Report<'_>, node: &str) -> Option<String> {
    let mut links = BTreeMap::<String, Vec<(&Network, Vec<String>)>>::new();
    for network in &report.networks {
        let pods = pods(report, node, &network.name);
        if !pods.is_empty() {
            let link = match &network.links[..] {
                [] => "no link of the node".to_owned(),
                links => links.join(", "),
            };
            links.entry(link).or_default().push((network, pods));
        }
    }
    if links.is_empty() {
        return None;
    }
    let (mut shapes, mut top) = (String::new(), 1);
    for (link, networks) in &links {
        let first = top;
        let heights: Vec<_> = networks.iter().map(|(_, pods)| height(pods)).collect();
        let all = heights.iter().sum::<usize>() + GAP * (heights.len() - 1);
        let middle = first + all / 2;
        box_with(&mut shapes, 0, middle - 20, 40, &[link]);
        for ((network, pods), height) in networks.iter().zip(heights) {
            let center = top + height / 2;
            line(&mut shapes, 0, middle, center);
            let kind = kind(network);
            box_with(&mut shapes, 1, center - 24, 48, &[&network.name, &kind]);
            line(&mut shapes, 1, center, center);
            let names: Vec<_> = pods.iter().map(String::as_str).collect();
            box_with(&mut shapes, 2, top, height, &names);
            top += height + GAP;
        }
    }
    let (width, height) = (COLUMNS[2].0 + COLUMNS[2].1 + 2, top - GAP + 1);
    let title = format!("Links, networks and pods of node {node}");
    let title = escaped(&title);
    Some(format!(
        "<svg viewBox=\"-1 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">{shapes}</svg>"
    ))
}

/// Returns a line for each pod of a node in a network, and how many are left out.
fn pods(report: &Report<'_>, node: &str, network: &str) -> Vec<String> {
    let of_node = report.pods.iter().filter(|pod| pod.status.node == node);
    let rows = of_node.flat_map(Pod::additional);
    let rows = rows.filter(|(_, row)| row.network == network);
    let lines = rows.map(|(name, row)| {
        let address = row.addresses.first().map_or("", String::as_str);
        format!("{name} {} {address}", row.interface)
    });
    let mut lines: Vec<_> = lines.collect();
    if lines.len() > PODS {
        let more = lines.len() - (PODS - 1);
        lines.truncate(PODS - 1);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Returns what a network is on a node: its plugins, and the VLAN.
fn kind(network: &Network) -> String {
    let plugins = network.plugins.join(" + ");
    match network.vlan {
        Some(vlan) => format!("{plugins}, VLAN {vlan}"),
        None => plugins,
    }
}

fn height(pods: &[String]) -> usize {
    (pods.len() * LINE + 10).max(48)
}

fn box_with(shapes: &mut String, column: usize, top: usize, height: usize, lines: &[&str]) {
    let (left, width) = COLUMNS[column];
    // Writing to a string cannot fail.
    let _ = write!(
        shapes,
        "<rect class=\"c{column}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
    );
    let first = top + (height - lines.len() * LINE) / 2 + 15;
    for (index, text) in lines.iter().enumerate() {
        let class = if column == 1 && index > 0 {
            " class=\"m\""
        } else {
            ""
        };
        let (x, y) = (left + 10, first + index * LINE);
        let text = shortened(text, CHARACTERS[column]);
        let text = escaped(&text);
        let _ = write!(shapes, "<text{class} x=\"{x}\" y=\"{y}\">{text}</text>");
    }
}

/// Draws a line from a column to the next one.
fn line(shapes: &mut String, column: usize, from: usize, to: usize) {
    let (left, width) = COLUMNS[column];
    let (begin, end) = (left + width, COLUMNS[column + 1].0);
    let half = usize::midpoint(begin, end);
    let _ = write!(
        shapes,
        "<path d=\"M{begin} {from}C{half} {from} {half} {to} {end} {to}\"/>"
    );
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most - 1).collect();
    start + "…"
}
