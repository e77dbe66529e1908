//! The state of a cell: both namespaces with links, routes, rules and settings, and the files of plugins.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::fd::AsFd as _,
    path::Path,
    process::Command,
    thread,
};

use anyhow::Context as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Map, Value, json};

use super::{NETNS, is_namespace};
use crate::sh;

/// Commands that print JSON, each with the name of its part of the state.
const LISTS: &[(&str, &str)] = &[
    ("links", "ip -j -d address show"),
    ("routes", "ip -j -d -4 route show table all"),
    ("routes6", "ip -j -d -6 route show table all"),
    ("rules", "ip -j -4 rule show"),
    ("rules6", "ip -j -6 rule show"),
    ("neighbours", "ip -j neighbour show nud permanent"),
    ("proxied", "ip -j neighbour show proxy"),
    ("qdiscs", "tc -j -d qdisc show"),
    ("vlans", "bridge -j vlan show"),
    ("nftables", "nft -j list ruleset"),
];
/// Commands that print text.
const TEXTS: &[(&str, &str)] = &[
    ("iptables", "iptables-save"),
    ("ip6tables", "ip6tables-save"),
];
/// Settings that change by themselves, or that the kernel chooses at random.
const VOLATILE: &[&str] = &[
    "netdev_rss_key",
    "nf_conntrack_count",
    "tcp_fastopen_key",
    "stable_secret",
];

/// The settings of both namespaces before anything happens.
pub(super) struct Baseline {
    host: Settings,
    pod: Settings,
}

type Settings = BTreeMap<String, String>;

impl Baseline {
    pub(super) fn read() -> anyhow::Result<Self> {
        Ok(Self {
            host: settings()?,
            pod: in_pod(settings)?,
        })
    }
}

/// Reads everything; of the settings those that have changed.
pub(super) fn state(baseline: &Baseline) -> anyhow::Result<Value> {
    let host = namespace(&baseline.host)?;
    let pod = if Path::new(NETNS).exists() {
        let settings = baseline.pod.clone();
        in_pod(move || namespace(&settings))?
    } else {
        Value::Null
    };
    let mut files = BTreeMap::new();
    for directory in ["/run", "/var/lib"] {
        read_files(Path::new(directory), &mut files)?;
    }
    Ok(json!({"host": host, "pod": pod, "files": files}))
}

/// Runs on a thread in the container's network namespace.
fn in_pod<T: Send + 'static>(
    act: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let namespace = File::open(NETNS)?;
    let thread = thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the container's network namespace")?;
        act()
    });
    let outcome = thread.join();
    outcome.map_err(|_| anyhow::anyhow!("a thread panicked"))?
}

/// Reads the state of this thread's network namespace.
fn namespace(baseline: &Settings) -> anyhow::Result<Value> {
    let mut state = Map::new();
    for (name, line) in LISTS {
        let output = shell(line)?;
        let list = match output.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).with_context(|| format!("{line} prints no JSON"))?,
        };
        state.insert((*name).to_owned(), list);
    }
    if let Some(objects) = state["nftables"]["nftables"].as_array_mut() {
        // A call of `iptables` for reading creates an empty table; `iptables-save` shows it, too.
        let with_chains: BTreeSet<_> = objects
            .iter()
            .filter_map(|object| object.get("chain"))
            .map(|chain| (chain["family"].to_string(), chain["table"].to_string()))
            .collect();
        objects.retain(|object| {
            object.get("table").is_none_or(|table| {
                let name = (table["family"].to_string(), table["name"].to_string());
                table["name"] != "nat" && table["name"] != "filter" || with_chains.contains(&name)
            })
        });
        // Which table is first depends on which address family a plugin serves first.
        objects.sort_by_cached_key(|object| {
            let object = object.as_object().and_then(|object| object.values().next());
            let part = |key| object.map(|object| object[key].to_string());
            let table = part("table").filter(|table| table != "null");
            (part("family"), table.or_else(|| part("name")))
        });
    }
    for (name, line) in TEXTS {
        let output = shell(line)?;
        // Comments have dates, and lines of chains have counters.
        let lines = output.lines().filter(|line| !line.starts_with('#'));
        let lines: Vec<_> = lines
            .map(|line| line.split(" [").next().unwrap_or(line))
            .collect();
        state.insert((*name).to_owned(), json!(lines));
    }
    let qdiscs = state["qdiscs"].as_array().into_iter().flatten();
    let shaped = qdiscs.filter(|qdisc| {
        !["noqueue", "fq_codel", "pfifo_fast"]
            .map(Value::from)
            .contains(&qdisc["kind"])
    });
    let names: BTreeSet<_> = shaped.filter_map(|qdisc| qdisc["dev"].as_str()).collect();
    let mut filters = Map::new();
    for name in names {
        for parent in ["", " ingress", " root"] {
            let text = shell(&format!(
                "tc -d filter show dev {name}{parent} 2>/dev/null || :"
            ))?;
            if !text.is_empty() {
                filters.insert(
                    format!("{name}{parent}"),
                    json!(text.lines().collect::<Vec<_>>()),
                );
            }
        }
        let classes = shell(&format!("tc class show dev {name} 2>/dev/null || :"))?;
        if !classes.is_empty() {
            filters.insert(
                format!("{name} classes"),
                json!(classes.lines().collect::<Vec<_>>()),
            );
        }
    }
    state.insert("filters".to_owned(), Value::Object(filters));
    state.insert("settings".to_owned(), json!(changed(settings()?, baseline)));
    Ok(Value::Object(state))
}

fn shell(line: &str) -> anyhow::Result<String> {
    sh::run(Command::new("sh").args(["-c", line]))
}

/// Returns the settings that differ from those before, and of a new link those that differ from the default.
fn changed(now: Settings, before: &Settings) -> Settings {
    let default = |name: &str| {
        let (parent, rest) = name.split_once("/conf/")?;
        let (_, key) = rest.split_once('/')?;
        before.get(&format!("{parent}/conf/default/{key}"))
    };
    now.into_iter()
        .filter(|(name, value)| {
            let usual = before.get(name).or_else(|| default(name));
            // Only the machine's own namespace has defaults of these.
            let is_of_new_link = name.contains("/neigh/") && usual.is_none();
            !is_of_new_link && usual != Some(value)
        })
        .collect()
}

/// Reads the settings of this thread's network namespace.
fn settings() -> anyhow::Result<Settings> {
    let mut settings = Settings::new();
    read_settings(Path::new("/proc/sys/net"), &mut settings)?;
    Ok(settings)
}

fn read_settings(directory: &Path, found: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            read_settings(&entry.path(), found)?;
        } else if !VOLATILE.iter().any(|volatile| name == *volatile)
            // Some can only be written.
            && let Ok(value) = fs::read_to_string(entry.path())
        {
            found.insert(entry.path().display().to_string(), value.trim().to_owned());
        }
    }
    Ok(())
}

/// Reads the files that plugins left, with their modes.
fn read_files(directory: &Path, found: &mut BTreeMap<String, Value>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if is_namespace(&path) || path.ends_with("xtables.lock") {
            continue;
        }
        let metadata = path.symlink_metadata()?;
        let name = path.display().to_string();
        if metadata.is_dir() {
            found.insert(format!("{name}/"), json!(null));
            read_files(&path, found)?;
        } else if metadata.is_file() {
            found.insert(name, json!(String::from_utf8_lossy(&fs::read(&path)?)));
        } else {
            found.insert(name, json!("not a file"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_settings_are_left_out() {
        let settings = |pairs: &[(&str, &str)]| -> Settings {
            let pairs = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            pairs.collect()
        };
        let before = settings(&[("a/conf/default/x", "0"), ("a/conf/lo/x", "1"), ("b", "2")]);
        let now = settings(&[
            ("a/conf/lo/x", "1"),
            ("a/conf/eth0/x", "0"),
            ("a/conf/eth1/x", "1"),
            ("b", "3"),
        ]);
        let expected = settings(&[("a/conf/eth1/x", "1"), ("b", "3")]);
        assert_eq!(changed(now, &before), expected);
    }
}
