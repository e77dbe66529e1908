//! Published indexes, and charts that are added to them.

use archive::digest::sha256;

use super::*;

const NOW: &str = "2026-11-21T00:00:00Z";

fn listing(name: &str, version: &str, bytes: &str) -> Listing {
    let metadata = Metadata {
        name: name.to_owned(),
        version: version.to_owned(),
        api_version: "v2".to_owned(),
        ..Metadata::default()
    };
    Listing {
        metadata,
        digest: sha256(bytes.as_bytes()),
        url: format!("assets/{name}/{name}-{version}.tgz"),
    }
}

fn added(merged: &Merged) -> Vec<String> {
    merged
        .added
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect()
}

fn order(text: &str, name: &str) -> Vec<String> {
    let index = Index::read(text).unwrap();
    index
        .versions(name)
        .iter()
        .map(|entry| entry.version.clone())
        .collect()
}

#[test]
fn a_new_index_lists_all_charts() {
    let merged = merge(
        None,
        &[listing("b", "1.0.0", "x"), listing("a", "v4.3.017", "y")],
        NOW,
    )
    .unwrap();
    let expected = format!(
        "apiVersion: v1\nentries:\n  a:\n  - apiVersion: v2\n    created: \"2026-11-21T00:00:00Z\"\n    digest: {}\n    name: a\n    urls:\n    - assets/a/a-v4.3.017.tgz\n    version: v4.3.017\n  b:\n  - apiVersion: v2\n    created: \"2026-11-21T00:00:00Z\"\n    digest: {}\n    name: b\n    urls:\n    - assets/b/b-1.0.0.tgz\n    version: 1.0.0\ngenerated: \"2026-11-21T00:00:00Z\"\n",
        sha256(b"y").hex(),
        sha256(b"x").hex()
    );
    assert_eq!(merged.text, expected);
    assert_eq!(added(&merged), ["a v4.3.017", "b 1.0.0"]);
    let empty = merge(None, &[], NOW).unwrap();
    assert_eq!(empty.text, format!("{EMPTY}generated: \"{NOW}\"\n"));
    let filled = merge(Some(&empty.text), &[listing("a", "1.0.0", "")], NOW).unwrap();
    assert_eq!(order(&filled.text, "a"), ["1.0.0"]);
}

/// A published index with quoted times, an unknown key and a comment.
const PUBLISHED: &str = "apiVersion: v1\nentries:\n  a:\n  - created: \"2024-01-01T00:00:00.123456789Z\"\n    digest: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n    extra: {kept: [1, 2]}\n    name: a\n    urls:\n    - assets/a/a-v4.3.017.tgz\n    version: v4.3.017\n  - name: a\n    version: v4.0.2-build2024020802\n  # of c\n  c:\n  - name: c\n    version: 1.0.0\ngenerated: \"2024-01-01T00:00:00.123456789Z\"\nserverInfo: {}\n";

#[test]
fn new_entries_are_inserted_and_no_other_line_changes() {
    let new = [
        listing("a", "5.0.0", "1"),
        listing("a", "4.0.201+upv4.0.2-build2024020802", "2"),
        listing("a", "1.0.0", "3"),
        listing("b", "1.0.0", "4"),
        listing("d", "1.0.0", "5"),
    ];
    let merged = merge(Some(PUBLISHED), &new, NOW).unwrap();
    let found = order(&merged.text, "a");
    let expected = [
        "5.0.0",
        "v4.3.017",
        "4.0.201+upv4.0.2-build2024020802",
        "v4.0.2-build2024020802",
        "1.0.0",
    ];
    assert_eq!(found, expected);
    let names: Vec<_> = Index::read(&merged.text)
        .unwrap()
        .charts
        .into_iter()
        .map(|one| one.0)
        .collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let mut left = merged.text.lines();
    for line in PUBLISHED
        .lines()
        .filter(|line| !line.starts_with("generated"))
    {
        assert!(
            left.any(|found| found == line),
            "{line} is missing or has moved:\n{}",
            merged.text
        );
    }
    // A second merge changes nothing, in any order.
    let mut again = new.to_vec();
    again.reverse();
    let again = merge(Some(&merged.text), &again, "2027-01-01T00:00:00Z").unwrap();
    assert_eq!(
        again,
        Merged {
            text: merged.text,
            added: Vec::new()
        }
    );
}

/// A backport comes between the entries of newer and older versions, also where items begin with a key that has lines below it.
#[test]
fn backport_is_inserted_between_entries_with_annotations() {
    let with_annotations = |version: &str| {
        let mut listing = listing("a", version, version);
        let annotations = &mut listing.metadata.annotations;
        annotations.insert("x.example/y".to_owned(), "z".to_owned());
        listing
    };
    let mut text = None;
    for version in ["5.0.0", "5.1.0", "5.0.1", "4.9.0", "5.1.1"] {
        let merged = merge(text.as_deref(), &[with_annotations(version)], NOW).unwrap();
        assert_eq!(added(&merged), [format!("a {version}")]);
        text = Some(merged.text);
    }
    let text = text.unwrap();
    assert!(text.contains("\n  - annotations:\n"), "{text}");
    let expected = ["5.1.1", "5.1.0", "5.0.1", "5.0.0", "4.9.0"];
    assert_eq!(order(&text, "a"), expected);
}

#[test]
fn other_indentations_are_kept() {
    let text =
        "apiVersion: v1\nentries:\n    \"a\":\n      - name: a\n        version: 2.0.0\n\n# end\n";
    let merged = merge(
        Some(text),
        &[listing("a", "1.0.0", ""), listing("a", "3.0.0", "")],
        NOW,
    )
    .unwrap();
    assert_eq!(order(&merged.text, "a"), ["3.0.0", "2.0.0", "1.0.0"]);
    assert!(
        merged
            .text
            .ends_with("\n\n# end\ngenerated: \"2026-11-21T00:00:00Z\"\n"),
        "{}",
        merged.text
    );
}

fn check_refused(text: &str, new: &Listing, expected: &str) {
    let error = merge(Some(text), std::slice::from_ref(new), NOW)
        .unwrap_err()
        .to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn published_versions_cannot_be_replaced() {
    check_refused(
        PUBLISHED,
        &listing("a", "v4.3.017", "other"),
        "a v4.3.017 is published with sha256:2d71",
    );
    check_refused(
        PUBLISHED,
        &listing("c", "1.0.0", ""),
        "c 1.0.0 is published with no digest",
    );
    check_refused(
        PUBLISHED,
        &listing("a", "4.3.17", "x"),
        "same version for Helm as v4.3.017",
    );
    check_refused(
        PUBLISHED,
        &listing("a", "latest", "x"),
        "a: `latest` is not a version",
    );
    let twice = [listing("b", "1.0.0", "x"), listing("b", "1.0.0", "y")];
    let error = merge(Some(PUBLISHED), &twice, NOW).unwrap_err().to_string();
    assert!(error.contains("b 1.0.0 is published with"), "{error}");
}

#[test]
fn unusual_layouts_are_refused() {
    let one = listing("a", "5.0.0", "");
    for text in [
        "{apiVersion: v1, entries: {}}",
        "apiVersion: v1\nentries: {a: [{name: a, version: 1.0.0}]}\n",
        "apiVersion: v1\nentries:\n  a: [{name: a, version: 1.0.0}]\n",
    ] {
        check_refused(text, &one, "cannot add a 5.0.0");
    }
}

#[test]
fn newer_time_of_the_index_and_dates_of_entries_stay() {
    for (time, stays) in [
        ("2026-11-21T00:00:00.5Z", true),
        ("2026-11-21T00:30:00+01:00", false),
        ("2026-11-20T23:30:00.000000001-01:00", true),
        ("2027-01-01T00:00:00Z", true),
        ("2024-02-29T00:00:00Z", false),
        ("soon", false),
    ] {
        let text = PUBLISHED.replace(
            "generated: \"2024-01-01T00:00:00.123456789Z\"",
            &format!("generated: \"{time}\""),
        );
        let merged = merge(Some(&text), &[listing("b", "1.0.0", "")], NOW).unwrap();
        let expected = if stays { time } else { NOW };
        assert!(
            merged
                .text
                .contains(&format!("\ngenerated: \"{expected}\"\n")),
            "{time}: {}",
            merged.text
        );
        let created = "- created: \"2024-01-01T00:00:00.123456789Z\"";
        assert!(merged.text.contains(created), "{}", merged.text);
    }
}
