//! The rules: what a shim and a daemon have to do, each with an id of its own, its section and how binding it is.

mod access;
mod annotation;
mod asked;
mod attach;
mod delegate;
mod devices;
mod process;
mod resolve;
mod shim;
mod socket;
mod state;
mod status;

/// How binding a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grade {
    /// Other software relies on it.
    Must,
    /// Visible, and cheap to match.
    Should,
    /// What others do is a hazard; the rule is the cure.
    Fix,
}

/// One rule.
pub(super) struct Rule {
    /// `mux-<section>-<word>`.
    pub(super) id: &'static str,
    pub(super) grade: Grade,
    pub(super) title: &'static str,
    /// Why no case shows it; most are shown.
    pub(super) unshown: Option<&'static str>,
}

impl Rule {
    /// The same, with the reason why no case shows it.
    const fn unshown(self, why: &'static str) -> Self {
        Self {
            unshown: Some(why),
            ..self
        }
    }

    /// The section that its id names.
    pub(super) fn section(&self) -> &'static str {
        let rest = self.id.trim_start_matches("mux-");
        rest.split('-').next().unwrap_or(rest)
    }
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

const fn must(id: &'static str, title: &'static str) -> Rule {
    Rule {
        id,
        grade: Grade::Must,
        title,
        unshown: None,
    }
}

const fn should(id: &'static str, title: &'static str) -> Rule {
    Rule {
        id,
        grade: Grade::Should,
        title,
        unshown: None,
    }
}

const fn fix(id: &'static str, title: &'static str) -> Rule {
    Rule {
        id,
        grade: Grade::Fix,
        title,
        unshown: None,
    }
}

/// Every rule, by section.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    [
        shim::RULES,
        socket::RULES,
        delegate::RULES,
        process::RULES,
        access::RULES,
        annotation::RULES,
        resolve::RULES,
        devices::RULES,
        attach::RULES,
        asked::RULES,
        state::RULES,
        status::RULES,
    ]
    .into_iter()
    .flatten()
}
