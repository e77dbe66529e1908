//! `RULES.md`: every rule by subject, with its grade, its source and the cases that show it.

use std::fmt::Write as _;

use super::{
    Case, cases,
    catalogue::{self, Grade, Rule, SUBJECTS, Subject},
};

/// Prints `RULES.md` on stdout.
pub(crate) fn print() -> anyhow::Result<()> {
    use std::io::Write as _;
    Ok(std::io::stdout().write_all(document().as_bytes())?)
}

fn document() -> String {
    let mut text = String::from(
        "# Rules of shim and daemon\n\n\
         What a CNI shim and a daemon have to do to replace upstream Multus (the thick plugin) on a node, \
         each rule with the cases of `e2e rules` that show it.\n\
         [docs/contributing/testing.md](../docs/contributing/testing.md) says how to run them on any shim and daemon, \
         [DIFFERENCES.md](DIFFERENCES.md) which of them upstream Multus v4.3.0 fails.\n\
         This file is written by `cargo run -p e2e -- rules --table`; \
         `UPDATE_EXPECT=1 cargo test -p e2e rules` updates it.\n\n",
    );
    text += &counts();
    text += "\n## Subjects\n\n";
    for subject in SUBJECTS.iter() {
        line(
            &mut text,
            &format!(
                "- [{}](#{}): `{}`, {} rules",
                subject.title,
                anchor(&subject.title),
                subject.name,
                subject.rules.len()
            ),
        );
    }
    for subject in SUBJECTS.iter() {
        text += &section(subject);
    }
    text
}

/// Returns the numbers of rules and cases, and the meaning of grades and sources.
fn counts() -> String {
    let shown = catalogue::all()
        .filter(|rule| rule.unshown.is_none())
        .count();
    let graded = |grade: Grade| catalogue::all().filter(|rule| rule.grade == grade).count();
    let mut text = format!(
        "{} rules, of which {} cases show {shown}; a rule without a case has the reason.\n\n\
         | grade | rules | meaning |\n|---|---|---|\n",
        catalogue::all().count(),
        cases::all().count()
    );
    for (grade, meaning) in [
        (Grade::Must, "Other software relies on it."),
        (
            Grade::Should,
            "The behaviour is visible and cheap to match.",
        ),
        (
            Grade::Fix,
            "Upstream's behaviour is a hazard, which the rule removes.",
        ),
    ] {
        line(
            &mut text,
            &format!("| {} | {} | {meaning} |", grade.name(), graded(grade)),
        );
    }
    text += "\n| source | rules | meaning |\n|---|---|---|\n";
    for source in SOURCES {
        let rules = catalogue::all().filter(|rule| source.is_of(rule)).count();
        let Source { name, meaning, .. } = source;
        line(&mut text, &format!("| {name} | {rules} | {meaning} |"));
    }
    text
}

/// Where rules come from.
struct Source {
    /// The sources of its rules begin so.
    start: &'static str,
    name: &'static str,
    meaning: &'static str,
}

impl Source {
    fn is_of(&self, rule: &Rule) -> bool {
        rule.source.starts_with(self.start)
    }
}

const UPSTREAM: &str = "Multus v4.3.0";

const SOURCES: &[Source] = &[
    Source {
        start: "CNI ",
        name: "CNI SPEC, CNI CONVENTIONS",
        meaning: "[specification and conventions](https://github.com/containernetworking/cni) of the CNI project",
    },
    Source {
        start: "Multi-Net-Spec ",
        name: "Multi-Net-Spec",
        meaning: "[standard](https://github.com/k8snetworkplumbingwg/multi-net-spec) of the Network Plumbing Working Group for several networks of a pod, \"the standard\" in the rules",
    },
    Source {
        start: UPSTREAM,
        name: UPSTREAM,
        meaning: "behaviour of that version of [upstream Multus](https://github.com/k8snetworkplumbingwg/multus-cni), \"upstream\" in the rules",
    },
    Source {
        start: "Multus after v4.3.0",
        name: "Multus after v4.3.0",
        meaning: "behaviour that upstream Multus has had since",
    },
    Source {
        start: "multus-rs",
        name: "multus-rs",
        meaning: "decision of this project",
    },
];

fn section(subject: &Subject) -> String {
    let mut text = format!("\n## {}\n\n{}\n\n", subject.title, subject.introduction);
    for rule in &subject.rules {
        line(
            &mut text,
            &format!(
                "- **{}** ({}, {}): {}\\\n  {}",
                rule.id,
                rule.grade.name(),
                rule.source,
                rule.text,
                shown_by(rule)
            ),
        );
    }
    text
}

fn shown_by(rule: &Rule) -> String {
    if let Some(reason) = &rule.unshown {
        return format!("No case: {reason}.");
    }
    let names: Vec<_> = cases_of(&rule.id).map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => "No case yet.".to_owned(),
        [name] => format!("Case: {name}"),
        names => format!("Cases: {}", names.join(", ")),
    }
}

/// Returns the anchor that GitHub gives a heading.
fn anchor(title: &str) -> String {
    title.to_lowercase().replace(' ', "-").replace('\'', "")
}

fn line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

fn cases_of(rule: &str) -> impl Iterator<Item = String> {
    cases::all()
        .filter(move |case| case.rules.contains(&rule))
        .map(Case::name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{super::differences::Differences, *};

    #[test]
    fn committed_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/RULES.md");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == document(),
            "RULES.md is stale: UPDATE_EXPECT=1 cargo test -p e2e rules"
        );
    }

    #[test]
    fn every_rule_has_cases_or_a_reason() {
        for rule in catalogue::all() {
            let has_case = cases_of(&rule.id).next().is_some();
            assert_ne!(has_case, rule.unshown.is_some(), "{}", rule.id);
        }
    }

    #[test]
    fn ids_are_unique_and_begin_with_their_subject() {
        let mut ids = BTreeSet::new();
        for subject in SUBJECTS.iter() {
            for rule in &subject.rules {
                assert!(ids.insert(&rule.id), "{}", rule.id);
                let word = rule
                    .id
                    .strip_prefix(&subject.name)
                    .and_then(|rest| rest.strip_prefix('.'));
                let is_word = word.is_some_and(|word| {
                    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                });
                assert!(is_word, "{}", rule.id);
            }
        }
    }

    #[test]
    fn texts_are_sentences() {
        for rule in catalogue::all() {
            let first = rule.text.chars().next().unwrap();
            assert!(first.is_uppercase() || "`.".contains(first), "{}", rule.id);
            assert!(rule.text.ends_with('.'), "{}", rule.id);
        }
    }

    #[test]
    fn cases_have_the_subjects_of_the_catalogue() {
        let subjects: Vec<_> = SUBJECTS.iter().map(|subject| &subject.name).collect();
        let case_subjects: Vec<_> = cases::BY_SUBJECT.iter().map(|(name, _)| *name).collect();
        assert_eq!(subjects, case_subjects);
        for (subject, cases) in cases::BY_SUBJECT {
            for case in *cases {
                assert_eq!(case.subject, *subject);
            }
        }
    }

    #[test]
    fn case_names_are_unique_and_their_rules_exist() {
        let mut names = BTreeSet::new();
        for case in cases::all() {
            assert!(names.insert(case.name()), "{}", case.name());
            assert!(!case.rules.is_empty(), "{}", case.name());
            for rule in case.rules {
                assert!(
                    catalogue::all().any(|known| known.id == *rule),
                    "{}: {rule}",
                    case.name()
                );
            }
        }
    }

    #[test]
    fn every_rule_has_one_source_of_the_table() {
        for rule in catalogue::all() {
            let sources = SOURCES.iter().filter(|source| source.is_of(rule)).count();
            assert_eq!(sources, 1, "{}: {}", rule.id, rule.source);
        }
    }

    #[test]
    fn rules_that_remove_a_hazard_of_upstream_do_not_come_from_it() {
        for rule in catalogue::all() {
            assert!(
                rule.grade != Grade::Fix || rule.source != UPSTREAM,
                "{}",
                rule.id
            );
        }
    }

    #[test]
    fn cases_that_upstream_fails_show_a_rule_of_another_source() {
        let differences = Differences::read(None).unwrap();
        for case in cases::all().filter(|case| differences.of(&case.name()).is_some()) {
            let is_other = catalogue::all()
                .any(|rule| case.rules.contains(&rule.id.as_str()) && rule.source != UPSTREAM);
            assert!(is_other, "{}", case.name());
        }
    }
}
