//! Writes a report as one page: without scripts, fonts and links outside, so that it opens from any medium. It is well-formed XML, too.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use api::network_report::Verdict;
use cmdline::counted;

use super::{
    attachments, drawing,
    model::{Finding, Network, Node, NodeRange, OnNode, Pod, Report, Request},
    ranges_of, served,
    vpn::VpnNode,
};
use crate::{
    addresses::{Row, grouped, holders},
    diagnostic::Severity,
    why::without_cause,
};

pub(super) const STYLE: &str = include_str!("page.css");
/// The most objects of a finding, and lines of a pod's log, that are listed.
const LISTED: usize = 12;
/// The most findings, and pods that miss something, that are on the page.
const PROBLEMS: usize = 60;
/// With more interfaces, only the table of pods has all of them.
const MANY: usize = 400;
/// So many networks are shown unfolded.
const UNFOLDED: usize = 4;

/// Writes to a string, which cannot fail.
macro_rules! put {
    ($page:expr, $($argument:tt)*) => {{ let _ = write!($page, $($argument)*); }};
}

/// Returns the page.
pub(super) fn page(report: &Report<'_>) -> String {
    let place = report.namespace.map_or_else(
        || "all namespaces".to_owned(),
        |name| format!("namespace {name}"),
    );
    let place = escaped(&place);
    let time = escaped(&report.time);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
        <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\
        <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\
        <title>Networks of pods, {place}, {time}</title><style>\n{STYLE}</style></head>\n\
        <body><header><h1>Networks of pods</h1><p class=\"soft\">{place}, {time}</p>\
        {}<nav aria-label=\"Sections\">{}</nav></header>\n<main>\n",
        tiles(report),
        contents(report),
    );
    findings(&mut page, report);
    nodes(&mut page, report);
    networks(&mut page, report);
    pods(&mut page, report);
    drawings(&mut page, report);
    vpn(&mut page, report.vpn);
    let values = if report.is_full {
        "Values of configurations and cni-args are in it: they may be secret."
    } else {
        "Values of configurations and cni-args are left out."
    };
    put!(
        page,
        "</main>\n<footer><p>Made by kubectl multus report {}. It shows the cluster at {time} and does not change. {values}</p></footer>\
        </body></html>\n",
        report.version
    );
    page
}

/// Escapes a text for elements and attributes.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| !"&<>\"'".contains(character) && is_allowed(character);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other if is_allowed(other) => out.push(other),
            _ => out.push('\u{fffd}'),
        }
    }
    Cow::Owned(out)
}

/// Returns false for what no page may have, and for characters that turn the text around them.
fn is_allowed(character: char) -> bool {
    let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}');
    !turns && (!character.is_control() || character == '\n' || character == '\t')
}

/// Escapes a sentence, in which commands stand in backquotes.
fn sentence(text: &str) -> String {
    if !text.matches('`').count().is_multiple_of(2) {
        return escaped(text).into_owned();
    }
    let parts = text.split('`').enumerate();
    parts
        .map(|(index, part)| match index % 2 {
            0 => escaped(part).into_owned(),
            _ => format!("<code>{}</code>", escaped(part)),
        })
        .collect()
}

fn tiles(report: &Report<'_>) -> String {
    let tile = |class: &str, count: usize, noun: &str| {
        let counted = counted(count, noun);
        let noun = counted.split_once(' ').map_or("", |(_, noun)| noun);
        let class = if count == 0 { "" } else { class };
        format!("<div class=\"{class}\"><b>{count}</b>{noun}</div>")
    };
    format!(
        "<div class=\"tiles\">{}{}{}{}{}</div>",
        tile("e", report.count(Severity::Error), "error"),
        tile("w", report.count(Severity::Warning), "warning"),
        tile("", report.nodes.len(), "node"),
        tile("", report.networks.len(), "network"),
        tile("", report.pods.len(), "pod"),
    )
}

fn contents(report: &Report<'_>) -> String {
    let sections = [
        ("wrong", "What is wrong", true),
        ("nodes", "Nodes", !report.nodes.is_empty()),
        ("networks", "Networks", !report.networks.is_empty()),
        ("pods", "Pods", !report.pods.is_empty()),
        ("drawings", "Drawings", !report.pods.is_empty()),
        ("vpn", "VPN", !report.vpn.is_empty()),
    ];
    let shown = sections.iter().filter(|(.., is_shown)| *is_shown);
    let links = shown.map(|(id, title, _)| format!("<a href=\"#{id}\">{title}</a>"));
    links.collect::<Vec<_>>().concat()
}

fn findings(page: &mut String, report: &Report<'_>) {
    put!(page, "<section id=\"wrong\"><h2>What is wrong</h2>\n");
    let (notes, wrong): (Vec<_>, Vec<_>) = report
        .findings
        .iter()
        .partition(|one| one.severity == Severity::Note);
    if wrong.is_empty() {
        let what = match report.gaps.len() {
            0 => "Nothing.",
            _ => "Nothing of what could be read.",
        };
        put!(page, "<p class=\"card good\">{what}</p>\n");
    }
    // One command says more about several findings.
    let mut shown = wrong[..wrong.len().min(PROBLEMS)].iter().peekable();
    while let Some(one) = shown.next() {
        let Finding {
            severity, command, ..
        } = one;
        let is_same = |next: &&&Finding| (next.severity, &next.command) == (*severity, command);
        put!(
            page,
            "<article class=\"card {severity}\">{}",
            finding_text(one)
        );
        while let Some(next) = shown.next_if(is_same) {
            put!(page, "{}", finding_text(next));
        }
        put!(page, "<pre>{}</pre></article>\n", escaped(command));
    }
    others(page, wrong.len());
    if !report.gaps.is_empty() {
        open_part(page, true, "Not read", &report.gaps.len().to_string());
        for gap in &report.gaps {
            put!(page, "<p>{}</p>", sentence(gap));
        }
        close_part(page);
    }
    if !notes.is_empty() {
        open_part(page, false, "Notes", &notes.len().to_string());
        for one in notes {
            put!(
                page,
                "{}<pre>{}</pre>",
                finding_text(one),
                escaped(&one.command)
            );
        }
        close_part(page);
    }
    put!(page, "</section>\n");
}

fn objects(finding: &Finding) -> String {
    let shown = finding.objects.iter().take(LISTED);
    let shown: Vec<_> = shown.map(|one| escaped(one)).collect();
    let more = match finding.objects.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}

/// Returns the objects and the sentences of a finding.
fn finding_text(finding: &Finding) -> String {
    let hint = match finding.hint.as_str() {
        "" => String::new(),
        hint => format!("<p class=\"soft\">{}</p>", sentence(hint)),
    };
    format!(
        "<p><b>{}</b> {}</p><p>{}</p>{hint}",
        finding.severity,
        objects(finding),
        sentence(&finding.text)
    )
}

/// Opens a table that is scrolled by itself where the window is narrow, also by keys.
fn open_table<'a>(
    page: &mut String,
    class: &str,
    label: &str,
    titles: impl IntoIterator<Item = &'a str>,
) {
    let label = escaped(label);
    put!(
        page,
        "<div class=\"wide{class}\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\"><table><thead><tr>"
    );
    for title in titles {
        put!(page, "<th scope=\"col\">{}</th>", escaped(title));
    }
    put!(page, "</tr></thead><tbody>\n");
}

/// Writes a row: class and text of each cell.
fn row<const N: usize>(page: &mut String, cells: [(&str, &str); N]) {
    put!(page, "<tr>");
    for (class, text) in cells {
        match class {
            "" => put!(page, "<td>{}</td>", escaped(text)),
            class => put!(page, "<td class=\"{class}\">{}</td>", escaped(text)),
        }
    }
    put!(page, "</tr>\n");
}

/// Opens a part that can be folded, with the rest of its first line.
fn open_part(page: &mut String, is_open: bool, title: &str, rest: &str) {
    let open = if is_open { " open=\"\"" } else { "" };
    let (title, rest) = (escaped(title), escaped(rest));
    put!(
        page,
        "<details{open}><summary><b>{title}</b> <span class=\"soft\">{rest}</span></summary><div>\n"
    );
}

fn close_part(page: &mut String) {
    put!(page, "</div></details>\n");
}

/// Writes the terms that have a text.
fn terms<const N: usize>(page: &mut String, terms: [(&str, String); N]) {
    for (term, text) in terms.into_iter().filter(|(_, text)| !text.is_empty()) {
        put!(page, "<dt>{term}</dt><dd>{}</dd>", escaped(&text));
    }
}

/// Says how many others there are than those that are on the page.
fn others(page: &mut String, all: usize) {
    if all > PROBLEMS {
        let more = all - PROBLEMS;
        put!(page, "<p>{more} more are in the report as JSON.</p>\n");
    }
}

fn close_table(page: &mut String) {
    put!(page, "</tbody></table></div>\n");
}

fn nodes(page: &mut String, report: &Report<'_>) {
    if report.nodes.is_empty() {
        return;
    }
    put!(page, "<section id=\"nodes\"><h2>Nodes and networks</h2>\n");
    let names = report.networks.iter().map(|one| one.name.as_str());
    let titles = ["Node", "Daemon", "Pods"].into_iter().chain(names);
    open_table(page, " card", "Nodes and networks", titles);
    for node in &report.nodes {
        let of_node = report
            .pods
            .iter()
            .filter(|pod| pod.status.node == node.name);
        put!(
            page,
            "<tr><th scope=\"row\">{}</th><td class=\"t\">{}</td><td>{}</td>",
            escaped(&node.name),
            daemon(node),
            of_node.count()
        );
        for network in &report.networks {
            let found = network.nodes.iter().find(|one| one.node == node.name);
            let (class, word) = match found.map(|one| &one.verdict) {
                Some(verdict @ Verdict::Serves) => ("ok", verdict.word()),
                Some(verdict @ Verdict::Cannot(_)) => ("no", verdict.word()),
                Some(verdict @ Verdict::Unknown(_)) => ("un", verdict.word()),
                None => ("soft", "not queried"),
            };
            put!(page, "<td class=\"{class}\">{word}</td>");
        }
        put!(page, "</tr>\n");
    }
    close_table(page);
    let mut statuses = report.nodes.iter();
    if statuses.any(|node| {
        node.daemon
            .is_some_and(|status| !status.delegates.is_empty())
    }) {
        durations(page, report);
    }
    put!(page, "</section>\n");
}

fn daemon(node: &Node<'_>) -> String {
    let ready = match node.is_ready {
        Some(false) => "<span class=\"no\">node not ready</span> ",
        _ => "",
    };
    let daemon = match (&node.gap, node.daemon) {
        (Some(gap), _) => format!("<span class=\"un\">{}</span>", escaped(gap)),
        (None, Some(status)) if status.problem.is_some() => {
            "<span class=\"no\">does not serve</span>".to_owned()
        }
        (None, Some(status)) => escaped(&status.version).into_owned(),
        (None, None) => "answers".to_owned(),
    };
    format!("{ready}{daemon}")
}

/// Writes how long plugins took on each node.
fn durations(page: &mut String, report: &Report<'_>) {
    let title = "How long plugins took";
    open_part(page, false, title, "since the start of each daemon");
    let titles = "Node Plugin Verb Outcome Runs Median 99%".split(' ');
    open_table(page, "", title, titles);
    let seconds =
        |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2} s"));
    for node in &report.nodes {
        for one in node.daemon.iter().flat_map(|status| &status.delegates) {
            let cells = [
                &node.name,
                one.plugin.as_deref().unwrap_or_default(),
                &one.command,
                &one.outcome,
                &one.count.to_string(),
                &seconds(one.p50_seconds),
                &seconds(one.p99_seconds),
            ];
            row(page, cells.map(|text| ("", text)));
        }
    }
    close_table(page);
    close_part(page);
}

fn networks(page: &mut String, report: &Report<'_>) {
    if report.networks.is_empty() {
        return;
    }
    put!(page, "<section id=\"networks\"><h2>Networks</h2>\n");
    let is_unfolded = report.networks.len() <= UNFOLDED;
    for one in &report.networks {
        network(page, report, one, is_unfolded);
    }
    put!(page, "</section>\n");
}

fn network(page: &mut String, report: &Report<'_>, network: &Network, is_unfolded: bool) {
    let rest = format!(
        "{}; served by {}; {}",
        network.plugins.join(" + "),
        served(network),
        counted(attachments(report, &network.name), "interface")
    );
    open_part(page, is_unfolded, &network.name, &rest);
    put!(page, "<dl>");
    let vlan = network.vlan.map(|vlan| vlan.to_string());
    let keys = network.keys.join(", ");
    terms(
        page,
        [
            ("Addresses by", network.ipam.join(", ")),
            ("Builds on", network.links.join(", ")),
            ("VLAN", vlan.unwrap_or_default()),
            ("Keys of its configuration", keys),
        ],
    );
    let mut reasons = BTreeMap::<(&str, &str, &str), Vec<&str>>::new();
    for OnNode { node, verdict } in &network.nodes {
        let (class, term) = match verdict {
            Verdict::Serves => continue,
            Verdict::Cannot(_) => ("no", "Cannot serve it"),
            Verdict::Unknown(_) => ("un", "Unknown"),
        };
        let nodes = reasons.entry((class, term, verdict.reason()));
        nodes.or_default().push(node);
    }
    for ((class, term, reason), nodes) in reasons {
        let (nodes, reason) = (nodes.join(", "), sentence(reason));
        let nodes = escaped(&nodes);
        put!(
            page,
            "<dt class=\"{class}\">{term}</dt><dd>{nodes}: {reason}</dd>"
        );
    }
    put!(page, "</dl>\n");
    for row in ranges_of(report, &network.name) {
        shared_range(page, row);
    }
    for range in &network.node_ranges {
        let NodeRange { first, last, .. } = range;
        let node = range.node.iter().map(|node| format!("; most on {node}"));
        let (text, node) = (
            format!("{first} to {last} of each node"),
            node.collect::<String>(),
        );
        bar(page, &text, &node, (range.used, range.free));
    }
    if let Some(config) = &network.config {
        put!(page, "<pre>{}</pre>", escaped(config));
    }
    let namespace = network.name.split('/').next().unwrap_or_default();
    let all = report.pods.iter().map(|pod| pod.status.networks.len());
    let most = if all.sum::<usize>() > MANY {
        LISTED
    } else {
        usize::MAX
    };
    let mut items = Vec::new();
    for (name, row) in report.pods.iter().flat_map(Pod::additional) {
        if row.network == network.name {
            let (name, addresses) = (within(name, namespace), row.addresses.join(", "));
            let (name, addresses) = (escaped(name), escaped(&addresses));
            items.push(format!("<li>{name} <small>{addresses}</small></li>\n"));
        }
    }
    let more = match items.len().saturating_sub(most) {
        0 => String::new(),
        more => format!("<li><a href=\"#pods\">and {more} more</a></li>"),
    };
    items.truncate(most);
    if !items.is_empty() {
        let items = items.concat();
        put!(page, "<h3>Its pods</h3><ul>{items}{more}</ul>");
    }
    close_part(page);
}

/// Returns a name without its namespace, where that is the one around it.
fn within<'a>(name: &'a str, namespace: &str) -> &'a str {
    let rest = name.strip_prefix(namespace);
    rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or(name)
}

fn shared_range(page: &mut String, row: &Row) {
    let range = row.range.as_deref().unwrap_or_default();
    let space = match row.space.as_str() {
        "" => String::new(),
        space => format!(" in space {space}"),
    };
    let holders = match holders(row) {
        holders if holders.is_empty() => holders,
        holders => format!("; {holders}"),
    };
    let count = (row.used.into(), row.free.unwrap_or_default());
    bar(page, &format!("{range}{space}"), &holders, count);
}

/// Draws how much of a range is used, and free.
fn bar(page: &mut String, range: &str, more: &str, (used, free): (u128, u128)) {
    let share = used * 100 / used.saturating_add(free).max(1);
    let text = format!("{range}: {} used, {} free", grouped(used), grouped(free));
    put!(
        page,
        "<p>{}<span class=\"soft\">{}</span></p><div class=\"bar\" aria-hidden=\"true\"><i style=\"width:{share}%\"></i></div>\n",
        escaped(&text),
        escaped(more)
    );
}

fn pods(page: &mut String, report: &Report<'_>) {
    if report.pods.is_empty() {
        return;
    }
    put!(page, "<section id=\"pods\"><h2>Pods</h2>\n");
    let (wrong, right): (Vec<_>, Vec<_>) = report.pods.iter().partition(|pod| pod.why.is_some());
    wrong
        .iter()
        .take(PROBLEMS)
        .for_each(|pod| unhealthy(page, pod));
    others(page, wrong.len());
    let mut namespaces = BTreeMap::<&str, Vec<&Pod>>::new();
    for pod in right {
        let namespace = pod.status.pod.split('/').next().unwrap_or_default();
        namespaces.entry(namespace).or_default().push(pod);
    }
    for (namespace, pods) in namespaces {
        let rest = format!("{} with all networks", counted(pods.len(), "pod"));
        open_part(page, true, namespace, &rest);
        let label = format!("Pods of namespace {namespace}");
        let titles = "Pod Node Network Interface Addresses MAC Age".split(' ');
        open_table(page, "", &label, titles);
        for pod in pods {
            rows(page, namespace, pod);
        }
        close_table(page);
        close_part(page);
    }
    put!(page, "</section>\n");
}

/// Writes a row for each additional network of a pod.
fn rows(page: &mut String, namespace: &str, pod: &Pod) {
    let additional: Vec<_> = pod.additional().collect();
    for (index, (name, row)) in additional.iter().enumerate() {
        put!(page, "<tr>");
        if index == 0 {
            let span = match additional.len() {
                1 => String::new(),
                more => format!(" rowspan=\"{more}\""),
            };
            let details = match details(&pod.requests) {
                details if details.is_empty() => details,
                details => format!("<small>{}</small>", escaped(&details)),
            };
            put!(
                page,
                "<th{span}>{}{details}</th><td{span}>{}</td>",
                escaped(within(name, namespace)),
                escaped(&pod.status.node)
            );
        }
        let after = match pod.attached_after {
            Some(after) if index == 0 => format!(", {after}s after start"),
            _ => String::new(),
        };
        let took = pod.add_milliseconds.get(&row.interface);
        let took = took.map_or_else(String::new, |took| format!(", ADD {took} ms"));
        put!(
            page,
            "<td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{took}{after}</td></tr>\n",
            escaped(within(&row.network, namespace)),
            row.note
                .map_or_else(String::new, |note| format!(" ({note})")),
            escaped(&row.interface),
            escaped(&row.addresses.join(", ")),
            escaped(&row.mac),
            escaped(&row.age)
        );
    }
}

/// Returns what a pod requested of its networks.
fn details(requests: &[Request]) -> String {
    let parts = requests.iter().filter_map(|one| {
        let mut parts = Vec::new();
        let mut add = |what: &str, values: &str| {
            if !values.is_empty() {
                parts.push(format!("{what} {values}"));
            }
        };
        add("addresses", &one.addresses.join(", "));
        add("MAC", one.mac.as_deref().unwrap_or_default());
        add("claim", one.claim.as_deref().unwrap_or_default());
        let args = match &one.cni_args_values {
            Some(values) => serde_json::Value::from(values.clone()).to_string(),
            None => one.cni_args.join(", "),
        };
        add("cni-args", &args);
        (!parts.is_empty()).then(|| format!("{}: {}", one.network, parts.join(", ")))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Writes a pod that misses something: what it requested, what it got, and what happened.
fn unhealthy(page: &mut String, pod: &Pod) {
    let (status, Some(why)) = (&pod.status, &pod.why) else {
        return;
    };
    let state = if why.is_healthy { "" } else { " class=\"no\"" };
    let node = match status.node.as_str() {
        "" => "no node yet".to_owned(),
        node => format!("on {node}"),
    };
    let rest = format!("{}, {node}", status.phase);
    open_part(page, false, &status.pod, &rest);
    put!(page, "<p{state}>{}</p>", sentence(&why.explanation));
    if !why.hint.is_empty() {
        put!(page, "<p class=\"soft\">{}</p>", sentence(&why.hint));
    }
    let requested = pod.requests.iter().map(|one| one.network.as_str());
    let got = pod.additional().map(|(_, row)| {
        let addresses = row.addresses.join(", ");
        format!("{} {} {addresses}", row.network, row.interface)
    });
    put!(page, "<dl>");
    terms(
        page,
        [
            ("Requested", requested.collect::<Vec<_>>().join(", ")),
            ("With", details(&pod.requests)),
            ("Got", got.collect::<Vec<_>>().join("; ")),
            ("Misses", status.missing.join(", ")),
        ],
    );
    put!(page, "</dl>\n");
    let log = &why.log[why.log.len().saturating_sub(LISTED)..];
    if !log.is_empty() {
        let label = format!("Events of {}", status.pod);
        open_table(page, "", &label, ["Age", "Message", "Reason"]);
        for one in log {
            let times = match one.count {
                0 | 1 => String::new(),
                count => format!(" x{count}"),
            };
            let message = without_cause(&one.message, &why.explanation);
            let reason = format!("{} {}{times}", one.source, one.reason);
            row(page, [("", &one.age), ("t", &message), ("", &reason)]);
        }
        close_table(page);
    }
    put!(
        page,
        "<pre>kubectl multus why {}</pre>",
        escaped(&status.pod)
    );
    close_part(page);
}

fn drawings(page: &mut String, report: &Report<'_>) {
    if report.pods.is_empty() {
        return;
    }
    put!(
        page,
        "<section id=\"drawings\"><h2>Drawings of the nodes</h2><p class=\"soft\">Links of the node, networks that build on them, and pods.</p>\n"
    );
    let names = report.nodes.iter().map(|node| node.name.as_str());
    let of_pods = report.pods.iter().map(|pod| pod.status.node.as_str());
    let names: BTreeSet<_> = names.chain(of_pods).collect();
    let drawings = names
        .iter()
        .filter_map(|name| Some((name, drawing::node(report, name)?)));
    let drawings: Vec<_> = drawings.collect();
    let open = if drawings.len() <= UNFOLDED {
        " open=\"\""
    } else {
        ""
    };
    for (name, svg) in &drawings {
        let name = escaped(name);
        put!(
            page,
            "<details{open}><summary><b>{name}</b></summary><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Drawing of node {name}\">{svg}</div></details>\n"
        );
    }
    if drawings.is_empty() {
        put!(page, "<p>No pod has an additional network.</p>");
    }
    put!(page, "</section>\n");
}

fn vpn(page: &mut String, nodes: &[VpnNode]) {
    if nodes.is_empty() {
        return;
    }
    put!(page, "<section id=\"vpn\"><h2>VPN</h2>\n");
    for node in nodes {
        let rest = format!("{} {}, {}", node.provider, node.phase, node.now);
        open_part(page, true, &node.name, &rest);
        put!(page, "<dl>");
        let interface = node.interface.as_ref();
        let interface = interface.map(|one| format!("{}, MTU {}", one.name, one.mtu));
        let routes = &node.routes;
        let missing = routes.not_installed.join(", ");
        terms(
            page,
            [
                ("Addresses", node.addresses.join(", ")),
                ("Interface", interface.unwrap_or_default()),
                ("Routes wanted", routes.wanted.join(", ")),
                ("Approved", routes.approved.join(", ")),
                ("Not approved", routes.pending.join(", ")),
                ("Of others, not installed", missing),
            ],
        );
        put!(page, "</dl>\n");
        let label = format!("Other nodes of {}", node.name);
        open_table(page, "", &label, ["Peer", "Path", "Routes", "Installed"]);
        for peer in &node.peers {
            let mut of_peer = peer.routes.iter();
            let installed = match of_peer.any(|route| routes.not_installed.contains(route)) {
                _ if peer.routes.is_empty() => ("", ""),
                true => ("no", "not all"),
                false => ("ok", "yes"),
            };
            let (path, subnets) = (peer.path(), peer.routes.join(", "));
            let cells = [
                ("", peer.name.as_str()),
                ("", &path),
                ("", &subnets),
                installed,
            ];
            row(page, cells);
        }
        close_table(page);
        close_part(page);
    }
    put!(page, "</section>\n");
}
