//! The lists that pages promise to have completely: every key of the plugins, every right and capability of the daemon; and figures that stand on
//! the page that they are from.

use std::{fs, path::Path};

use crate::{Page, Pages};

fn read(pages: &Pages, path: &str) -> String {
    fs::read_to_string(pages.root.join(path)).unwrap()
}

/// Returns the names of the fields of structures that are read from JSON, with those of plugins' configurations in lower case.
fn json_fields(source: &str) -> Vec<String> {
    let code = source.split("\nmod tests {").next().unwrap_or_default();
    let mut fields = Vec::new();
    for part in code.split("#[derive(").skip(1) {
        let Some((derives, rest)) = part.split_once(")]") else {
            continue;
        };
        let Some((head, rest)) = rest.split_once('{') else {
            continue;
        };
        if !derives.contains("Deserialize") || !head.contains("struct ") || head.contains(';') {
            continue;
        }
        let (body, _) = rest.split_once("\n}").unwrap_or((rest, ""));
        let (mut renamed, mut is_flattened) = (None, false);
        for line in body.lines().map(str::trim) {
            if let Some((_, rest)) = line.split_once("rename = \"") {
                renamed = rest.split('"').next().map(str::to_owned);
            }
            is_flattened |= line.contains("(flatten)") || line.contains("serde(skip)");
            let Some((field, _)) = line
                .strip_suffix(',')
                .and_then(|line| line.split_once(": "))
            else {
                continue;
            };
            if line.starts_with("///") || line.starts_with('#') {
                continue;
            }
            let name = field.rsplit(' ').next().unwrap_or(field);
            let name = renamed.take().unwrap_or_else(|| name.to_owned());
            if !std::mem::take(&mut is_flattened) {
                fields.push(name.to_lowercase());
            }
        }
    }
    fields
}

fn sources(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn definitions_have_every_key_of_the_plugins() {
    let pages = Pages::of_checkout().unwrap();
    let page = pages.get("docs/networks.md").unwrap().text.to_lowercase();
    let mut all = Vec::new();
    for dir in ["config", "interface", "ipam", "meta"] {
        sources(&pages.root.join("plugins/src").join(dir), &mut all);
    }
    let fields: Vec<_> = all.iter().flat_map(|source| json_fields(source)).collect();
    assert!(fields.len() > 90, "{fields:?}");
    let internal = [
        // Groups of keys in the sources, and what the runtime writes.
        "masquerade",
        "limits",
        "settings",
        "cni",
        "range",
        "auxiliary",
        "prevresult",
    ];
    let missing: Vec<_> = fields
        .iter()
        .filter(|field| !internal.contains(&field.as_str()))
        .filter(|field| {
            !page.contains(&format!("`{field}`")) && !page.contains(&format!("\"{field}\""))
        })
        .collect();
    assert!(missing.is_empty(), "docs/networks.md lacks {missing:?}");
}

#[test]
fn security_has_every_right_and_capability() {
    let pages = Pages::of_checkout().unwrap();
    let page = &pages.get("docs/security.md").unwrap().text;
    let templates = "chart/template/main/templates";
    let mut names = Vec::new();
    for file in [
        "clusterRole.yaml",
        "publishedRole.yaml",
        "networksRole.yaml",
    ] {
        let text = read(&pages, &format!("{templates}/{file}"));
        let lists = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("resources: ["));
        for list in lists {
            let list = list.trim_end_matches(']');
            names.extend(list.split(", ").map(str::to_owned));
        }
    }
    assert!(names.len() > 7, "{names:?}");
    let helpers = read(&pages, &format!("{templates}/_helpers.tpl"));
    let (_, list) = helpers.split_once("$capabilities = list ").unwrap();
    let capabilities = list.lines().next().unwrap().trim_end_matches(" -}}");
    names.extend(
        capabilities
            .split(' ')
            .map(|one| one.trim_matches('"').to_owned()),
    );
    for name in names {
        // The daemon's own DaemonSet is named in words.
        let name = if name == "daemonsets" {
            "DaemonSet"
        } else {
            &name
        };
        assert!(page.contains(name), "docs/security.md lacks {name}");
    }
}

#[test]
fn figures_of_the_readme_are_those_of_the_performance_page() {
    let pages = Pages::of_checkout().unwrap();
    let readme = &pages.get("README.md").unwrap().text;
    let performance = &pages.get("docs/contributing/performance.md").unwrap().text;
    let (_, table) = readme
        .split_once("| row | ours | upstream's |\n|---|---|---|\n")
        .unwrap();
    let rows: Vec<_> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(rows.len(), 3, "{rows:?}");
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let begin = format!("| {} | {} | {} |", cells[0], cells[1], cells[2]);
        assert!(
            performance.contains(&begin),
            "docs/contributing/performance.md lacks {begin}"
        );
    }
    let (_, words) = readme.split_once("Without Multus it takes ").unwrap();
    let none = words.split(' ').next().unwrap();
    let (_, row) = table.split_once("| CNI ADD, one by one, ms | ").unwrap();
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let [ours, peers] = [cells[0], cells[1]];
    let upstreams = peers.parse::<f64>().unwrap() - none.parse::<f64>().unwrap();
    assert!(
        words.starts_with(&format!(
            "{none} ms: upstream's adds {upstreams:.0} ms, and ours is no slower"
        )),
        "{words}"
    );
    let row = format!("| CNI ADD, one by one, ms | {ours} | {peers} | {none} |");
    assert!(
        performance.contains(&row),
        "docs/contributing/performance.md lacks {row}"
    );
}

/// A page that says "K3s 1.36.3" or "RKE2 1.36.3" means one on which the suites have run.
#[test]
fn pages_name_releases_of_distros_that_ran() {
    let pages = Pages::of_checkout().unwrap();
    let table = &pages.get("docs/contributing/distros.md").unwrap().text;
    let mut count = 0;
    for path in ["README.md", "docs/operations.md", "docs/plugins.md"] {
        let words: Vec<_> = pages.get(path).unwrap().text.split_whitespace().collect();
        for two in words.windows(2) {
            let version = two[1].trim_matches(|one: char| !one.is_ascii_digit());
            if !["K3s", "RKE2"].contains(&two[0]) || version.split('.').count() != 3 {
                continue;
            }
            let row = format!("| {} | v{version}", two[0]);
            let mut rows = table.lines().filter(|line| line.starts_with(&row));
            assert!(
                rows.any(|line| line.contains("| `life` |")),
                "{path}: {row}"
            );
            count += 1;
        }
    }
    assert!(count > 2, "{count}");
}

/// Suite `k3s` compares all of it, each night.
#[test]
fn steps_of_the_trial_in_the_readme_are_those_of_its_script() {
    let pages = Pages::of_checkout().unwrap();
    let readme = &pages.get("README.md").unwrap().text;
    let script = read(&pages, "docs/try.sh");
    let begin = "sudo docs/try.sh k3s\n```\n\n```text output\n";
    let (_, output) = readme.split_once(begin).unwrap();
    let (output, _) = output.split_once("```").unwrap();
    let steps = output.lines().filter_map(|line| line.split_once(" s  "));
    let steps: Vec<_> = steps.map(|(_, step)| step).collect();
    assert_eq!(steps.len(), 4, "{output}");
    for step in steps {
        assert!(
            script.contains(&format!("say \"{step}\"")),
            "docs/try.sh does not say {step}"
        );
    }
}

#[test]
fn book_of_users_is_short() {
    const LIMIT: usize = 102_400;
    let pages = Pages::of_checkout().unwrap();
    let is_counted = |page: &&Page| {
        let name = page.path.strip_prefix("docs/").unwrap_or_default();
        // The list of pages, and a page that is generated.
        !name.is_empty() && !name.contains('/') && !["index.md", "values.md"].contains(&name)
    };
    let book = pages.pages.values().filter(is_counted);
    let mut sizes: Vec<_> = book.map(|page| (page.text.len(), &page.path)).collect();
    sizes.sort_unstable();
    let sum: usize = sizes.iter().map(|(size, _)| size).sum();
    assert!(sizes.len() > 9, "{sizes:?}");
    assert!(
        sum <= LIMIT,
        "the users' pages have {sum} bytes, and may have {LIMIT}: leave out what no user misses, or move it to docs/contributing. {sizes:?}"
    );
}
