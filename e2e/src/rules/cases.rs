//! The cases, by the subjects of the catalogue. A case has a name, the rules that it shows, and a function that fails
//! when one of them does not hold.

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

use super::{
    Case,
    harness::{DaemonSetup, Harness},
};

/// Declares the cases of a subject, each as `SETUP FUNCTION [RULES]`; a case has the name of the subject and of its function.
macro_rules! cases {
    ($subject:literal: $($setup:ident $run:ident [$($rule:literal),* $(,)?])*) => {
        pub(super) const CASES: &[$crate::rules::Case] =
            &[$(super::$setup($subject, stringify!($run), &[$($rule),*], $run)),*];
    };
}
use cases;

type Run = fn(&Harness) -> anyhow::Result<()>;
type Rules = &'static [&'static str];

/// A case that shares a daemon with a plain configuration file with others.
const fn plain(subject: &'static str, function: &'static str, rules: Rules, run: Run) -> Case {
    Case {
        subject,
        function,
        rules,
        daemon: DaemonSetup::Plain,
        run,
    }
}

/// A case that shares a daemon whose configuration file replaces keys of requests.
const fn overlaid(subject: &'static str, function: &'static str, rules: Rules, run: Run) -> Case {
    Case {
        daemon: DaemonSetup::Overlaid,
        ..plain(subject, function, rules, run)
    }
}

/// A case that starts its own daemon, or needs that none runs.
const fn own_daemon(subject: &'static str, function: &'static str, rules: Rules, run: Run) -> Case {
    Case {
        daemon: DaemonSetup::Own,
        ..plain(subject, function, rules, run)
    }
}

/// The cases of every subject of the catalogue, in its order.
pub(super) const BY_SUBJECT: &[(&str, &[Case])] = &[
    ("shim", shim::CASES),
    ("forward", forward::CASES),
    ("daemon", daemon::CASES),
    ("config", config::CASES),
    ("manager", manager::CASES),
    ("socket", socket::CASES),
    ("delegate", delegate::CASES),
    ("metrics", metrics::CASES),
    ("pod", pod::CASES),
    ("annotation", annotation::CASES),
    ("default-network", default_network::CASES),
    ("legacy", legacy::CASES),
    ("cluster-network", cluster_network::CASES),
    ("definition", definition::CASES),
    ("isolation", isolation::CASES),
    ("devices", devices::CASES),
    ("device-info", device_info::CASES),
    ("add", add::CASES),
    ("plugin", plugin::CASES),
    ("capabilities", capabilities::CASES),
    ("routes", routes::CASES),
    ("rollback", rollback::CASES),
    ("state", state::CASES),
    ("del", del::CASES),
    ("check", check::CASES),
    ("status", status::CASES),
    ("gc", gc::CASES),
    ("status-annotation", status_annotation::CASES),
    ("events", events::CASES),
    ("errors", errors::CASES),
    ("chain", chain::CASES),
    ("passthru", passthru::CASES),
];

/// Returns the cases of all subjects.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    BY_SUBJECT.iter().flat_map(|(_, cases)| *cases)
}
