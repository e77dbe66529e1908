//! The table rule → case, with the reasons of rules that have none; `RULES.md` is this table.

use std::fmt::Write as _;

use super::{cases, catalogue};

/// Says the table on stdout.
pub(crate) fn print() -> anyhow::Result<()> {
    use std::io::Write as _;
    Ok(std::io::stdout().write_all(table().as_bytes())?)
}

fn table() -> String {
    let rules: Vec<_> = catalogue::all().collect();
    let covered = rules
        .iter()
        .filter(|rule| cases_of(rule.id).next().is_some())
        .count();
    let mut text = format!(
        "# Rules of the multiplexer and the cases that show them\n\n\
         Written by `cargo run -p e2e -- rules --table`; a test compares.\n\
         {} cases show {covered} of {} rules; **none** stands before the reason why no case shows a rule.\n\
         MUST: other software relies on it. SHOULD: visible and cheap to match. FIX: upstream's behaviour is a hazard, ours is the cure.\n\n\
         | section | rule | grade | what it says | cases |\n|---|---|---|---|---|\n",
        cases::all().count(),
        rules.len()
    );
    for rule in rules {
        let names: Vec<_> = cases_of(rule.id).map(|name| format!("`{name}`")).collect();
        let cases = match rule.unshown {
            Some(why) => format!("**none**: {why}"),
            None if names.is_empty() => "**gap**".to_owned(),
            None => names.join(", "),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | `{}` | {} | {} | {cases} |",
            rule.section(),
            rule.id,
            rule.grade.name(),
            rule.title
        );
    }
    text
}

fn cases_of(rule: &str) -> impl Iterator<Item = &'static str> {
    cases::all()
        .filter(move |case| case.rules.contains(&rule))
        .map(|case| case.name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_is_the_committed_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/RULES.md");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, table()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == table(),
            "RULES.md is stale: UPDATE_EXPECT=1 cargo test -p e2e"
        );
    }

    #[test]
    fn a_rule_has_either_cases_or_a_reason_to_have_none() {
        for rule in catalogue::all() {
            let is_shown = cases_of(rule.id).next().is_some();
            assert_ne!(is_shown, rule.unshown.is_some(), "{}", rule.id);
        }
    }

    #[test]
    fn cases_show_rules_that_exist_and_names_are_unique() {
        let mut names = BTreeSet::new();
        for case in cases::all() {
            assert!(names.insert(case.name), "{}", case.name);
            assert!(!case.rules.is_empty(), "{}", case.name);
            for rule in case.rules {
                assert!(
                    catalogue::all().any(|known| known.id == *rule),
                    "{}: {rule}",
                    case.name
                );
            }
        }
        let mut ids = BTreeSet::new();
        for rule in catalogue::all() {
            assert!(ids.insert(rule.id), "{}", rule.id);
            assert!(
                rule.id.starts_with(&format!("mux-{}-", rule.section())),
                "{}",
                rule.id
            );
        }
    }
}
