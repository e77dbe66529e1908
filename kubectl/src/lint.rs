//! `kubectl multus lint`: what the daemon would say of definitions and pods, before they exist.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use anyhow::{Context as _, bail};
use plan::netconf::Netconf;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    Ending, Output,
    cluster::{self, Cluster},
    judge::{self, Known},
    manifest::{self, Document, Place},
    object::{self, Object},
    remark::{Remark, Severity},
};

/// What to look at, and by which rules.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files and folders of YAML or JSON; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Look for networks that are not among the files in the cluster
    #[arg(long)]
    cluster: bool,
    /// The daemon's file (daemon-config.json of its ConfigMap), whose options decide; without it, the defaults
    #[arg(long, value_name = "FILE")]
    daemon_config: Option<PathBuf>,
    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,
}

/// One remark and where it belongs.
#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    file: String,
    line: usize,
    /// Kind, namespace and name; empty for what is no object.
    object: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Report {
    /// How many objects have to do with networks.
    objects: usize,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

/// Judges everything and prints it.
pub(crate) async fn run(
    args: &Args,
    options: &cluster::Options,
    output: Output,
) -> anyhow::Result<Ending> {
    let netconf = judge::netconf(daemon_file(args)?)?;
    let documents = manifest::read(&args.files);
    let cluster = if args.cluster {
        Some(Cluster::new(options).await?)
    } else {
        None
    };
    let known_namespace = cluster.as_ref().map(|cluster| cluster.namespace.clone());
    let namespace = known_namespace
        .or_else(|| options.namespace.clone())
        .unwrap_or_else(|| "default".to_owned());
    let (objects, mut findings) = objects(documents, &namespace);
    let mut known = Known::default();
    for (_, object) in &objects {
        if let Object::Definition(definition) = object {
            known.add(&definition.nad);
        }
    }
    if let Some(cluster) = &cluster {
        let names = named(&objects, &netconf);
        let looked = cluster.complete(&mut known, names).await;
        looked.map_err(anyhow::Error::msg)?;
    }
    findings.extend(judged(&objects, &known, &netconf));
    findings.sort_by(|a, b| (&a.file, a.line, &a.object).cmp(&(&b.file, b.line, &b.object)));
    let count = |severity| {
        let found = findings.iter().filter(|one| one.severity == severity);
        found.count()
    };
    let report = Report {
        objects: objects.len(),
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        findings,
    };
    output.print(&report, || text(&report))?;
    let is_bad = report.errors > 0 || (args.strict && report.warnings > 0);
    Ok(Ending::of(!is_bad))
}

fn daemon_file(args: &Args) -> anyhow::Result<Map<String, Value>> {
    let Some(path) = &args.daemon_config else {
        return Ok(Map::new());
    };
    let read = || format!("cannot read {}", path.display());
    let bytes = std::fs::read(path).with_context(read)?;
    let map: Map<String, Value> = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is no JSON object", path.display()))?;
    if let Some(sentence) = plan::daemon_config::misspelled(&map).first() {
        bail!("cannot use {}: {sentence}", path.display());
    }
    Ok(map)
}

/// Everything that has to do with networks, and what cannot be read.
fn objects(documents: Vec<Document>, namespace: &str) -> (Vec<(Place, Object)>, Vec<Finding>) {
    let (mut all, mut findings) = (Vec::new(), Vec::new());
    for Document { place, content } in documents {
        match content.and_then(|value| object::read(&value, namespace)) {
            Ok(objects) => all.extend(objects.into_iter().map(|object| (place.clone(), object))),
            Err(reason) => {
                findings.push(finding(&place, String::new(), &Remark::Unreadable(reason)));
            }
        }
    }
    (all, findings)
}

fn judged(objects: &[(Place, Object)], known: &Known, netconf: &Netconf) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut places = BTreeMap::<_, &Place>::new();
    let mut holders = BTreeMap::<(String, String), String>::new();
    for (place, object) in objects {
        let mut remarks = match object {
            Object::Definition(one) => judge::definition(one, netconf),
            Object::Pod(one) => judge::pod(one, netconf, known),
        };
        if let Object::Pod(pod) = object {
            let holder = format!("{} ({place})", object.title());
            remarks.extend(repeated_addresses(pod, netconf, &holder, &mut holders));
        }
        match places.get(&object.identity()) {
            // Pods of one name may come from generated names.
            Some(other) if !object.identity().2.is_empty() => remarks.push(Remark::Twice {
                other: other.to_string(),
            }),
            _ => drop(places.insert(object.identity(), place)),
        }
        let told = remarks.iter();
        findings.extend(told.map(|remark| finding(place, object.title(), remark)));
    }
    findings
}

/// Fixed addresses that another pod requests too, or that the replicas of one template would share.
fn repeated_addresses(
    pod: &object::Pod,
    netconf: &Netconf,
    holder: &str,
    holders: &mut BTreeMap<(String, String), String>,
) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for (network, address) in judge::fixed_addresses(pod, netconf) {
        if pod.replicas > 1 {
            remarks.push(Remark::AddressOfReplicas {
                address: address.clone(),
                network: network.clone(),
                replicas: pod.replicas,
            });
        }
        let key = (network.clone(), address.clone());
        match holders.get(&key) {
            Some(other) => remarks.push(Remark::AddressTwice {
                address,
                network,
                other: other.clone(),
            }),
            None => drop(holders.insert(key, holder.to_owned())),
        }
    }
    remarks
}

/// The networks that pods select.
fn named(objects: &[(Place, Object)], netconf: &Netconf) -> Vec<(String, String)> {
    let pods = objects.iter().filter_map(|(_, object)| match object {
        Object::Pod(pod) => Some(pod),
        Object::Definition(_) => None,
    });
    pods.flat_map(|pod| judge::selected(pod, netconf))
        .map(|selection| (selection.namespace, selection.name))
        .collect()
}

fn finding(place: &Place, object: String, remark: &Remark) -> Finding {
    Finding {
        severity: remark.severity(),
        file: place.file.clone(),
        line: place.line,
        object,
        text: remark.to_string(),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for one in &report.findings {
        let object = if one.object.is_empty() {
            String::new()
        } else {
            format!("{}: ", one.object)
        };
        let place = format!("{}:{}", one.file, one.line);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{place}: {}: {object}{}", one.severity, one.text);
    }
    let _ = writeln!(
        text,
        "{} looked at: {}, {}",
        counted(report.objects, "object"),
        counted(report.errors, "error"),
        counted(report.warnings, "warning")
    );
    text
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}
