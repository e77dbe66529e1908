//! A published chart of each kind is replaced by ours, in every order of our two charts, and none of its networks is lost.

use std::{path::Path, thread};

use anyhow::ensure;

use super::{
    server::Server,
    upgrade::{
        CRD, MAIN, define_network, ensure_refused, networks, preflight_steps, remove_ours, replace,
    },
};
use crate::{
    programs::published_charts::{self, NEW, NEW_CRD, OLD},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

/// A kind of chart, by one that was published.
struct Kind {
    archive: &'static str,
    /// Whether Helm deletes its CRD, and with it all networks, when a chart without the CRD replaces it.
    is_deletable: bool,
    values: &'static [&'static str],
}

const fn kind(archive: &'static str, is_deletable: bool, values: &'static [&'static str]) -> Kind {
    Kind {
        archive,
        is_deletable,
        values,
    }
}

const THICK: &[&str] = &["--set=thickPlugin.enabled=true"];

const KINDS: &[Kind] = &[
    kind("rke2-multus-v3.7.1-build2021111906.tgz", true, &[]),
    kind("rke2-multus-v3.9.3-build2023010903.tgz", true, &[]),
    kind("rke2-multus-v4.0.2-build2024020802.tgz", true, &[]),
    kind("rke2-multus-v4.2.102.tgz", true, &[]),
    kind("rke2-multus-v4.2.409.tgz", true, &[]),
    kind("rke2-multus-v4.2.409.tgz", true, THICK),
    kind("rke2-multus-v4.2.410.tgz", false, THICK),
    kind(OLD, false, &[]),
    kind(OLD, false, THICK),
    kind(NEW, false, &[]),
    kind(NEW, false, THICK),
];

#[derive(Debug, Clone, Copy)]
enum Order {
    CrdFirst,
    MainFirst,
    /// Both start at the same time, and each is repeated until it succeeds, as jobs of a distro are.
    AtOnce,
}

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Checked {
    for kind in KINDS {
        let name = kind.archive.trim_end_matches(".tgz");
        let mode = if kind.values.is_empty() {
            "thin"
        } else {
            "thick"
        };
        for (order, words) in [
            (Order::CrdFirst, "the chart of the CRD first"),
            (Order::MainFirst, "the main chart first"),
            (Order::AtOnce, "both at once"),
        ] {
            report.check(
                &format!("{name}, {mode}, replaced by ours, {words}: the networks stay"),
                || kind.replaced(env, server, order),
            )?;
        }
        if !kind.is_deletable {
            continue;
        }
        for release in [MAIN, "multus"] {
            report.check(
                &format!(
                    "{name}, {mode}, as release {release}: the steps of preflight keep the networks"
                ),
                || {
                    let chart = published_charts::archive(kind.archive)?;
                    preflight_steps(env, server, release, &chart)
                },
            )?;
        }
    }
    Ok(())
}

impl Kind {
    fn replaced(&self, env: &TestEnv, server: &Server, order: Order) -> anyhow::Result<()> {
        let install = |name: &str, chart: &Path, values: &[&str]| {
            server.release("install", name, chart, values)
        };
        if self.archive == NEW {
            install(CRD, &published_charts::archive(NEW_CRD)?, &[])?;
        }
        install(MAIN, &published_charts::archive(self.archive)?, self.values)?;
        define_network(server)?;
        let before = networks(server)?;
        match order {
            Order::CrdFirst => {
                replace(env, server, CRD)?;
                replace(env, server, MAIN)?;
            }
            Order::MainFirst if self.is_deletable => {
                ensure_refused(env, server)?;
                ensure!(networks(server)? == before, "the refusal lost networks");
                replace(env, server, CRD)?;
                replace(env, server, MAIN)?;
            }
            Order::MainFirst => {
                replace(env, server, MAIN)?;
                ensure!(networks(server)? == before, "the main chart lost networks");
                replace(env, server, CRD)?;
            }
            Order::AtOnce => at_once(env, server)?,
        }
        ensure!(networks(server)? == before, "networks are lost");
        // As a repeated job does, with nothing left of the published chart.
        for name in [MAIN, CRD] {
            replace(env, server, name)?;
        }
        ensure!(
            networks(server)? == before,
            "networks are lost by the second upgrade"
        );
        remove_ours(server)
    }
}

fn at_once(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let job = |name| sh::until(60, "a chart is installed", || replace(env, server, name));
    thread::scope(|scope| {
        let jobs = [MAIN, CRD].map(|name| scope.spawn(move || job(name)));
        for job in jobs {
            let Ok(outcome) = job.join() else {
                anyhow::bail!("the thread of a job panicked");
            };
            outcome?;
        }
        Ok(())
    })
}
