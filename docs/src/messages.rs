//! The messages that pages quote, and the sources in which they have to stand.

use std::{fs, path::Path};

use crate::{Check, Pages};

/// The directories with what programs print.
const SOURCES: [&str; 16] = [
    "airgap/src",
    "api/src",
    "archive/src",
    "chart/template",
    "cni/src",
    "daemon/src",
    "dhcp/src",
    "distro/src",
    "ipam/src",
    "kubectl/src",
    "node/src",
    "plan/src",
    "plugins/src",
    "registry/src",
    "release/src",
    "shim/src",
];
/// The character that stands for a varying part.
const VARYING: char = '…';

fn read(dir: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, sources);
        } else if !path.ends_with("tests.rs")
            && let Ok(text) = fs::read_to_string(&path)
        {
            let code = text.split("\nmod tests {").next().unwrap_or_default();
            sources.push(as_printed(code));
        }
    }
}

/// Joins the lines of literals, and takes their quotes as they are printed.
fn as_printed(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some((head, tail)) = rest.split_once("\\\n") {
        out.push_str(head);
        rest = tail.trim_start();
    }
    (out + rest).replace("\\\"", "\"")
}

/// Returns whether one source has all parts of a message.
fn is_in(sources: &[String], message: &str) -> bool {
    let parts: Vec<_> = message
        .split(VARYING)
        .map(str::trim)
        .filter(|part| part.len() > 3)
        .collect();
    let has_all = |source: &String| parts.iter().all(|part| source.contains(part));
    parts.iter().any(|part| part.len() > 8) && sources.iter().any(has_all)
}

#[test]
fn every_message_on_a_page_is_one_of_the_programs() {
    let pages = Pages::of_checkout().unwrap();
    let mut sources = Vec::new();
    for dir in SOURCES {
        read(&pages.root.join(dir), &mut sources);
    }
    let mut missing = Vec::new();
    let mut count = 0;
    for (page, block) in pages.blocks(|check| *check == Check::Message) {
        for message in block.text.lines().filter(|line| !line.is_empty()) {
            count += 1;
            if !is_in(&sources, message) {
                missing.push(format!("{}:{}: {message}", page.path, block.line));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(count > 20, "{count} messages");
}

#[test]
fn parts_of_one_source_make_a_message() {
    let sources = [as_printed(
        "\"cannot find {name} \\\n     in \\\"{dir}\\\"\"",
    )];
    assert!(is_in(&sources, "cannot find … in \"…\""));
    assert!(!is_in(&sources, "cannot find … on \"…\""));
    assert!(!is_in(&sources, "…"));
}
