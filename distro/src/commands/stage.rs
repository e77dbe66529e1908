//! `stage` and `unstage`: put charts and manifests next to the distro's own, and remove them.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use cmdline::{BadUsage, absolute};
use node::root::Root;

use super::{note, print};
use crate::{
    detect,
    manifest::is_disabled,
    plan::{self, Distro, Server},
    service,
    settings::Settings,
    stage,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro stage --multus --distro k3s --data-dir /var/lib/rancher/k3s\n  multus-distro stage --multus --distro rke2 --data-dir /var/lib/rancher/rke2\n\nOn a cluster of several servers, stage on each of them."
)]
pub(crate) struct StageArgs {
    /// Stage Multus; without it what was staged earlier is removed
    #[arg(long)]
    multus: bool,
    /// The distro's data directory, as in /var/lib/rancher/k3s
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// The distro
    #[arg(long, value_enum)]
    distro: Distro,
    /// Registry that is put before every image; RKE2 puts its own there
    #[arg(long, default_value = "", value_parser = plan::registry)]
    system_default_registry: String,
    /// The server runs no agent, as in its configuration file: the jobs that install the charts run on other nodes
    #[arg(long)]
    disable_agent: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro unstage --data-dir /var/lib/rancher/k3s --dry-run\n  multus-distro unstage --data-dir /var/lib/rancher/k3s\n\nThe distro uninstalls the charts; network definitions stay. On a cluster of several servers, unstage on each of them."
)]
pub(crate) struct UnstageArgs {
    /// The distro's data directory
    #[arg(long, value_parser = absolute)]
    data_dir: PathBuf,
    /// Also remove files that were edited since
    #[arg(long)]
    force: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete the manifests themselves, after the distro has removed everything, or to keep Multus in the cluster
    #[arg(long)]
    purge: bool,
}

pub(crate) fn run(args: &StageArgs) -> anyhow::Result<()> {
    if !args.multus {
        return unstage(&args.data_dir, false, false, false);
    }
    report(&stage_below(&Root::open("/")?, args)?)
}

/// Stages unless the distro is configured to remove what is staged.
fn stage_below(root: &Root, args: &StageArgs) -> anyhow::Result<stage::Outcome> {
    let services = detect::services(root, args.distro, &args.data_dir)?;
    let settings = service::settings(root, services.first(), args.distro)?;
    settings.ensure_no_own_multus()?;
    ensure_not_disabled(&settings)?;
    let server = Server {
        registry: &args.system_default_registry,
        runs_agent: !args.disable_agent && !settings.disable_agent,
    };
    let files = plan::files(args.distro, server)?;
    stage::stage(root, &args.data_dir, &files)
}

pub(crate) fn run_unstage(args: &UnstageArgs) -> anyhow::Result<()> {
    unstage(&args.data_dir, args.force, args.purge, args.dry_run)
}

/// Fails where the distro would remove what is staged.
pub(crate) fn ensure_not_disabled(settings: &Settings) -> anyhow::Result<()> {
    for name in plan::manifests(settings.distro) {
        let file = format!("{name}.yaml");
        ensure!(
            !is_disabled(&file, &settings.disable),
            BadUsage(format!(
                "{} is configured to disable {name}: take it out of its disable list, or leave out --multus",
                settings.distro.as_str()
            ))
        );
    }
    Ok(())
}

/// Succeeds when nothing is staged, and notes it, since the directory may be the wrong one.
fn unstage(data_dir: &Path, force: bool, purge: bool, dry_run: bool) -> anyhow::Result<()> {
    let root = Root::open("/")?;
    let plan = stage::plan_unstage(&root, data_dir, force, purge)?;
    if plan.is_empty() {
        note(&format!("nothing is staged below {}", data_dir.display()));
    }
    for step in &plan {
        note(&format!("plan: {}", step.describe(data_dir)));
    }
    if dry_run {
        return Ok(());
    }
    report(&stage::unstage(&root, data_dir, &plan)?)
}

fn report(outcome: &stage::Outcome) -> anyhow::Result<()> {
    outcome.notes.iter().for_each(|text| note(text));
    outcome
        .written
        .iter()
        .try_for_each(|path| print(&format!("{}\n", path.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn settings_are_those_of_the_unit_that_has_the_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let stage = |data_dir: &str| {
            let args = StageArgs {
                multus: true,
                data_dir: data_dir.into(),
                distro: Distro::K3s,
                system_default_registry: String::new(),
                disable_agent: false,
            };
            stage_below(&root, &args)
        };
        let bootstraps = |data_dir: &str| {
            stage(data_dir).unwrap();
            let manifest = Path::new(data_dir).join(plan::MANIFESTS);
            let text = root.read(manifest.join("multus.yaml"), stage::MAX).unwrap();
            let text = String::from_utf8(text).unwrap();
            text.matches("bootstrap: true").count()
        };
        write("etc/rancher/k3s/config.yaml", "disable: [traefik]\n");
        assert_eq!(bootstraps("/data/k3s"), 2);
        write(
            "etc/systemd/system/k3s.service",
            "[Service]\nEnvironmentFile=-/etc/default/%p\nExecStart=/usr/local/bin/k3s server --disable-agent\n",
        );
        write("etc/default/k3s", "K3S_CONFIG_FILE=/etc/k3s.yaml\n");
        write("etc/k3s.yaml", "data-dir: /data/k3s\n");
        std::os::unix::fs::symlink("/data", dir.path().join("link")).unwrap();
        for (data_dir, expected) in [
            ("/data/k3s", 0),
            ("/link/k3s", 0),
            ("/var/lib/rancher/k3s", 2),
        ] {
            assert_eq!(bootstraps(data_dir), expected, "{data_dir}");
        }
        write("etc/k3s.yaml", "data-dir: /data/k3s\ndisable: multus\n");
        let error = stage("/data/k3s").unwrap_err().to_string();
        assert!(
            error.contains("k3s is configured to disable multus"),
            "{error}"
        );
        stage("/var/lib/rancher/k3s").unwrap();
    }
}
