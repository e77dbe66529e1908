//! The rules that a shim and a daemon have to keep, by subject: `catalogue.yaml`, from which `RULES.md` is made.

use std::sync::LazyLock;

use serde::Deserialize;

/// How binding a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Grade {
    Must,
    Should,
    Fix,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subject {
    /// The part of its rules' ids before the dot. The names of its cases begin with it.
    pub(super) name: String,
    /// Its heading in `RULES.md`.
    pub(super) title: String,
    pub(super) introduction: String,
    pub(super) rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) grade: Grade,
    /// It begins as one of the sources in `RULES.md`.
    pub(super) source: String,
    /// One or two sentences that a reader understands without the other rules.
    pub(super) text: String,
    /// The reason why no case shows the rule; most rules have cases.
    pub(super) unshown: Option<String>,
}

impl Grade {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Fix => "FIX",
        }
    }
}

/// Every subject, in the order of `RULES.md`.
pub(super) static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    serde_yaml::from_str(include_str!("catalogue.yaml"))
        .expect("the tests of `RULES.md` read the same text")
});

/// Returns the rules of all subjects.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    SUBJECTS.iter().flat_map(|subject| &subject.rules)
}
