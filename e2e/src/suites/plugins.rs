//! Suite `plugins`: our CNI plugins against the reference's.
//!
//! Everything runs in namespaces of its own, with the reference's plugins built from the pinned module next to ours.

mod burst;
mod cleanup;
mod dhcp_client;
mod differential;
mod emulator;
mod kills;
mod mixed;
mod portmap;
mod reference;
mod renamed;
mod siblings;

pub(crate) mod cell;
mod compare;
mod feature;
pub(crate) mod sandbox;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use self::feature::Feature;
use crate::{
    options::Options,
    programs::{Module, Needs},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "dbus-daemon dnsmasq ip iptables nft ping unshare",
    modules: &[Module::Plugins],
};

/// Our program, which is every plugin by its name.
const PROGRAM: &str = "multus-cni-plugins";

/// Both sides, and what the kernel has.
struct PluginsFixture<'a> {
    env: &'a TestEnv,
    /// The directory of the plugins under test.
    ours: PathBuf,
    /// The directory of the reference's plugins.
    reference: PathBuf,
    features: BTreeSet<Feature>,
    case: Option<&'a str>,
}

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let fixture = report.check("every plugin of the reference is there", || {
        PluginsFixture::new(env, options)
    })?;
    reference::run(&fixture, options.long, report)?;
    differential::run(&fixture, report);
    mixed::run(&fixture, report);
    burst::run(&fixture, report);
    if env.is_foreign() {
        // What follows is about moments in time, or starts no plugin.
        return Ok(());
    }
    cleanup::run(&fixture, report);
    portmap::run(&fixture, report);
    renamed::run(&fixture, report);
    siblings::run(&fixture, report);
    dhcp_client::run(&fixture, report);
    kills::run(&fixture, options, report);
    Ok(())
}

impl<'a> PluginsFixture<'a> {
    fn new(env: &'a TestEnv, options: &'a Options) -> anyhow::Result<Self> {
        let ours = env.dir.join("ours");
        link(env, options.plugins.as_deref(), &ours)?;
        let reference = env.dir.join("reference");
        std::os::unix::fs::symlink(&env.plugins, &reference)?;
        let missing: Vec<_> = names(&reference)?
            .into_iter()
            .filter(|name| !ours.join(name).is_file())
            .collect();
        ensure!(
            missing.is_empty(),
            "{PROGRAM} is not: {}",
            missing.join(", ")
        );
        Ok(Self {
            env,
            ours,
            reference,
            features: feature::kernel_features()?,
            case: options.case.as_deref(),
        })
    }

    /// Returns whether a case with this name is to run.
    fn selects(&self, name: &str) -> bool {
        self.case.is_none_or(|text| name.contains(text))
    }
}

/// Returns the search path of a program that finds the plugins of a directory.
fn path(plugins: &Path) -> OsString {
    let mut path = OsString::from(plugins);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    // Where Debian has `iptables`, which the PATH of an unprivileged user lacks.
    path.push(":/usr/sbin:/sbin");
    path
}

/// Fills a directory with the plugins under test by their names.
fn link(env: &TestEnv, plugins: Option<&Path>, to: &Path) -> anyhow::Result<()> {
    if let Some(plugins) = plugins {
        // In a sandbox the directory may be hidden. The copy keeps hard links.
        sh::run(Command::new("cp").arg("-a").args([plugins, to]))?;
        return Ok(());
    }
    fs::create_dir(to)?;
    let program = to.join(PROGRAM);
    let built = env.program(PROGRAM);
    fs::copy(&built, &program).with_context(|| format!("cannot copy {}", built.display()))?;
    for name in sh::run(Command::new(&program).arg("list"))?.lines() {
        fs::hard_link(&program, to.join(name))?;
    }
    Ok(())
}

/// Returns the names of the files in a directory, in order.
fn names(directory: &Path) -> anyhow::Result<Vec<String>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
