//! The rules that a shim and a daemon have to keep, by subject. `RULES.md` is made from them.
//!
//! A subject is one file here and the file of the same name in `cases/`. An id is the name of its subject, a dot and
//! a word for the rule; cases, `RULES.md` and reports refer to rules by their ids.

mod add;
mod annotation;
mod capabilities;
mod chain;
mod check;
mod cluster_network;
mod config;
mod daemon;
mod default_network;
mod definition;
mod del;
mod delegate;
mod device_info;
mod devices;
mod errors;
mod events;
mod forward;
mod gc;
mod isolation;
mod legacy;
mod manager;
mod metrics;
mod passthru;
mod plugin;
mod pod;
mod rollback;
mod routes;
mod shim;
mod socket;
mod state;
mod status;
mod status_annotation;

/// How binding a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grade {
    /// Other software relies on it.
    Must,
    /// The behaviour is visible and cheap to match.
    Should,
    /// Upstream's behaviour is a hazard, which the rule removes.
    Fix,
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A section of the CNI project's specification or conventions.
    Cni(&'static str),
    /// A section of the Network Plumbing Working Group's standard for several networks of a pod.
    NetworkPlumbing(&'static str),
    /// The behaviour of Multus v4.3.0.
    Upstream,
    /// The behaviour of Multus after v4.3.0.
    LaterUpstream,
    /// A decision of this project.
    Ours,
}

pub(super) struct Subject {
    /// The part of its rules' ids before the dot. The names of its cases begin with it.
    pub(super) name: &'static str,
    /// Its heading in `RULES.md`.
    pub(super) title: &'static str,
    pub(super) introduction: &'static str,
    pub(super) rules: &'static [Rule],
}

pub(super) struct Rule {
    pub(super) id: &'static str,
    pub(super) grade: Grade,
    /// One or two sentences that a reader understands without the other rules.
    pub(super) title: &'static str,
    pub(super) source: Source,
    /// The reason why no case shows the rule; most rules have cases.
    pub(super) unshown: Option<&'static str>,
}

impl Rule {
    const fn new(grade: Grade, id: &'static str, title: &'static str, source: Source) -> Self {
        Self {
            id,
            grade,
            title,
            source,
            unshown: None,
        }
    }

    /// Gives the reason why no case shows the rule.
    const fn unshown(self, reason: &'static str) -> Self {
        Self {
            unshown: Some(reason),
            ..self
        }
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

impl Source {
    pub(super) fn text(self) -> String {
        match self {
            Self::Cni(section) => format!("CNI {section}"),
            Self::NetworkPlumbing(section) => section.to_owned(),
            Self::Upstream => "Multus v4.3.0".to_owned(),
            Self::LaterUpstream => "Multus after v4.3.0".to_owned(),
            Self::Ours => "multus-rs".to_owned(),
        }
    }
}

const fn must(id: &'static str, title: &'static str, source: Source) -> Rule {
    Rule::new(Grade::Must, id, title, source)
}

const fn should(id: &'static str, title: &'static str, source: Source) -> Rule {
    Rule::new(Grade::Should, id, title, source)
}

const fn fix(id: &'static str, title: &'static str, source: Source) -> Rule {
    Rule::new(Grade::Fix, id, title, source)
}

/// Every subject, in the order of `RULES.md`.
pub(super) const SUBJECTS: &[Subject] = &[
    shim::SUBJECT,
    forward::SUBJECT,
    daemon::SUBJECT,
    config::SUBJECT,
    manager::SUBJECT,
    socket::SUBJECT,
    delegate::SUBJECT,
    metrics::SUBJECT,
    pod::SUBJECT,
    annotation::SUBJECT,
    default_network::SUBJECT,
    legacy::SUBJECT,
    cluster_network::SUBJECT,
    definition::SUBJECT,
    isolation::SUBJECT,
    devices::SUBJECT,
    device_info::SUBJECT,
    add::SUBJECT,
    plugin::SUBJECT,
    capabilities::SUBJECT,
    routes::SUBJECT,
    rollback::SUBJECT,
    state::SUBJECT,
    del::SUBJECT,
    check::SUBJECT,
    status::SUBJECT,
    gc::SUBJECT,
    status_annotation::SUBJECT,
    events::SUBJECT,
    errors::SUBJECT,
    chain::SUBJECT,
    passthru::SUBJECT,
];

/// Returns the rules of all subjects.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    SUBJECTS.iter().flat_map(|subject| subject.rules)
}
