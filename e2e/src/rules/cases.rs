//! The cases, by subject. Each is a name, the rules that it shows, and a function that fails when they do not hold.

mod access;
mod add;
mod annotation;
mod capabilities;
mod chain;
mod config;
mod del;
mod delegate;
mod devices;
mod devinfo;
mod errors;
mod events;
mod forward;
mod interfaces;
mod isolation;
mod manager;
mod netstatus;
mod on_disk;
mod original;
mod primaries;
mod process;
mod requests;
mod resolve;
mod rollback;
mod routes;
mod served;
mod shim;
mod socket;
mod state;
mod verbs;
mod wishes;

use super::{
    Case,
    bench::{Bench, Settings},
};

type Run = fn(&Bench) -> anyhow::Result<()>;

/// A case beside others on one daemon with a plain file.
const fn plain(name: &'static str, rules: &'static [&'static str], run: Run) -> Case {
    Case {
        name,
        rules,
        daemon: Settings::Plain,
        run,
    }
}

/// A case on a daemon whose file has keys that are laid over requests.
const fn overlaid(name: &'static str, rules: &'static [&'static str], run: Run) -> Case {
    Case {
        name,
        rules,
        daemon: Settings::Overlaid,
        run,
    }
}

/// A case that starts its own daemon, or needs that there is none.
const fn alone(name: &'static str, rules: &'static [&'static str], run: Run) -> Case {
    Case {
        name,
        rules,
        daemon: Settings::None,
        run,
    }
}

/// Every case.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [
        shim::CASES,
        forward::CASES,
        socket::CASES,
        delegate::CASES,
        errors::CASES,
        config::CASES,
        annotation::CASES,
        wishes::CASES,
        resolve::CASES,
        on_disk::CASES,
        original::CASES,
        isolation::CASES,
        devices::CASES,
        add::CASES,
        capabilities::CASES,
        requests::CASES,
        routes::CASES,
        rollback::CASES,
        events::CASES,
        state::CASES,
        del::CASES,
        verbs::CASES,
        netstatus::CASES,
        interfaces::CASES,
        devinfo::CASES,
        chain::CASES,
        access::CASES,
        manager::CASES,
        primaries::CASES,
        process::CASES,
        served::CASES,
    ]
    .into_iter()
    .flatten()
}
