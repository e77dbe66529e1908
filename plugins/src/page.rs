//! The examples of docs/networks.md: each is given to the plugin that reads it.

use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::config::{CHECKS, keys};

/// The heads of the tables of keys, with whether the examples belong into `ipam`.
const HEADS: [(&str, bool); 2] = [
    ("| plugin | key | example | meaning |", false),
    ("| plugin | key of `ipam` | example | meaning |", true),
];

/// A row of a table of keys.
#[derive(Debug)]
struct Row {
    plugin: String,
    keys: Vec<String>,
    example: String,
    is_ipam: bool,
}

fn rows(page: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut table = None;
    let mut plugin = String::new();
    for line in page.lines() {
        if let Some((_, is_ipam)) = HEADS.iter().find(|(head, _)| *head == line) {
            table = Some(*is_ipam);
        } else if !line.starts_with('|') {
            table = None;
        } else if let Some(is_ipam) = table {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let words = |cell: &str| -> Vec<String> {
                let code = cell.split('`').skip(1).step_by(2);
                code.map(str::to_owned).collect()
            };
            if let Some(name) = words(cells[0]).first() {
                plugin.clone_from(name);
            }
            rows.push(Row {
                plugin: plugin.clone(),
                keys: words(cells[1]),
                example: cells[2].trim_matches('`').to_owned(),
                is_ipam,
            });
        }
    }
    rows
}

/// Returns the configuration of a plugin with the example, which the reader needs complete.
fn configuration(row: &Row) -> Value {
    let text = format!("{{{}}}", row.example);
    let example: Map<String, Value> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{row:?}: {error}"));
    let mut config = json!({"cniVersion": "1.0.0", "name": "shop", "type": row.plugin});
    if row.is_ipam {
        config["type"] = "bridge".into();
        config["ipam"] = json!({"type": row.plugin});
        if ["host-local", "multus-ipam"].contains(&row.plugin.as_str()) {
            config["ipam"]["ranges"] = json!([[{"subnet": "10.65.0.0/24"}]]);
        }
        for (key, value) in example {
            config["ipam"][key] = value;
        }
    } else {
        if row.plugin == "bond" {
            config["mode"] = "balance-tlb".into();
            config["miimon"] = 100.into();
            config["links"] = json!([{"name": "net1"}, {"name": "net2"}]);
        }
        if ["dummy", "ptp"].contains(&row.plugin.as_str()) {
            config["ipam"] = json!({"type": "static"});
        }
        for (key, value) in example {
            config[key] = value;
        }
    }
    config
}

#[test]
fn every_key_has_an_example_that_its_plugin_reads() {
    let pages = docs::Pages::of_checkout().unwrap();
    let rows = rows(&pages.get("docs/networks.md").unwrap().text);
    let mut count = 0;
    for row in rows.iter().filter(|row| !row.keys.is_empty()) {
        let from_others = ["ipRanges", "hostPort"].contains(&row.keys[0].as_str());
        assert_eq!(row.example.is_empty(), from_others, "{row:?}");
        if from_others {
            continue;
        }
        for key in &row.keys {
            assert!(row.example.contains(&format!("\"{key}\":")), "{row:?}");
        }
        let config = configuration(row);
        let call = Call::with_config(&config.to_string(), "");
        let (_, check) = CHECKS.iter().find(|(name, _)| *name == row.plugin).unwrap();
        assert_eq!(check(&call), Ok(()), "{row:?}");
        count += 1;
    }
    assert!(count > 55, "{count}");
}

/// The table by which `kubectl multus lint` finds misspelled keys is the page's.
#[test]
fn table_of_keys_is_that_of_the_page() {
    // Keys of objects inside of others, of an entry of the capability `portMappings`, and of every interface.
    let inner = [
        ("static", "address"),
        ("static", "gateway"),
        ("host-local", "ipRanges"),
        ("portmap", "hostPort"),
        ("portmap", "containerPort"),
        ("portmap", "protocol"),
        ("portmap", "hostIP"),
        ("bond", "mtu"),
    ];
    let pages = docs::Pages::of_checkout().unwrap();
    let rows = rows(&pages.get("docs/networks.md").unwrap().text);
    for line in keys::OWN.lines() {
        let mut own: Vec<_> = line.split(' ').collect();
        let kind = own.remove(0);
        let page_keys = rows.iter().filter(|row| row.plugin == kind);
        let page_keys = page_keys.flat_map(|row| &row.keys).map(String::as_str);
        let mut page_keys: Vec<_> = page_keys
            .filter(|key| !inner.contains(&(kind, *key)))
            .collect();
        page_keys.sort_unstable();
        own.sort_unstable();
        assert_eq!(own, page_keys, "{kind}");
    }
}
