//! `install`: writes a systemd drop-in that starts the distro through this program; `--remove` deletes it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use cmdline::{BadUsage, absolute};
use node::{root::Root, runtime::HINT};

use super::{
    note, print,
    stage::ensure_not_disabled,
    vpn::down::{End, down},
};
use crate::{
    boot_program,
    node_vpn::{auth, files::VpnFiles},
    plan::{self, Distro},
    service::{self, Service},
    stage,
    unit::{self, Features, VPN_UNIT},
};

/// More than any unit.
const MAX_UNIT: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro install\n  multus-distro install --unit k3s-agent.service\n  multus-distro install --vpn-auth-file /etc/multus-vpn.auth            the VPN alone\n  multus-distro install --multus --vpn-auth-file /etc/multus-vpn.auth\n  multus-distro install --remove\n\nRun it again when the unit changes, as an installation script of the distro does; doctor reports it."
)]
pub(crate) struct Args {
    /// The unit, where this node has several, or one of another name
    #[arg(long)]
    unit: Option<String>,
    /// The distro, where this node has both
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// Start with Multus; on unless --vpn-auth-file is given, or this node has the VPN alone
    #[arg(long, conflicts_with = "remove")]
    multus: bool,
    /// Put the node on the VPN of this file, which a unit of its own keeps up, without Multus where it was not on; both stay until --remove
    #[arg(long, value_name = "FILE", value_parser = absolute, conflicts_with = "remove")]
    vpn_auth_file: Option<PathBuf>,
    /// The networks of the cluster's pods, where an agent cannot ask its server for them
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        conflicts_with = "remove"
    )]
    vpn_cluster_cidr: Vec<vpn::Prefix>,
    /// Delete the drop-in, end the use of the VPN, and unstage
    #[arg(long)]
    remove: bool,
    /// This program's path on the node; its present path unless set
    #[arg(long, value_parser = absolute)]
    program: Option<PathBuf>,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let found = service::find(&root, args.distro, args.unit.as_deref())
        .map_err(|error| BadUsage(format!("{error:#}")))?;
    if args.remove {
        return match found {
            Some(service) => remove(args, &root, &service),
            None => remove_without_unit(args, &root),
        };
    }
    let service = found.with_context(|| without_unit(&root))?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find this program's own path")?,
    };
    let features = features(args, service.drop_in.as_deref())?;
    if let Some((file, _)) = &features.vpn {
        auth::check(&root, file)?;
    }
    boot_program::check(&root, &program, args.program.is_some())?;
    let auth_file = features.vpn.as_ref().map(|(file, _)| file);
    let options = features.options()?;
    let text = unit::drop_in(&program, &service.command, &options)
        .with_context(|| format!("cannot make a drop-in for {}", service.name))?;
    let path = service.drop_in_path();
    let has_new_vpn = match auth_file {
        Some(file) => write_vpn_unit(&root, &unit::vpn_unit(&program, file)?)?,
        None => false,
    };
    if service.drop_in.as_deref() == Some(&text) && !has_new_vpn {
        note(&format!("{} is up to date", path.display()));
        return Ok(());
    }
    let parent = path.parent().context("a drop-in is in a directory")?;
    root.make_dirs(parent, 0o755)?;
    root.write_atomic(&path, text.as_bytes(), 0o644)?;
    print(&format!("{}\n", path.display()))?;
    if !features.multus {
        note("this node starts without Multus; --multus adds it");
    } else if let Err(error) = check_staging(args, &root, &service) {
        note(&format!("before the restart: {error:#}"));
    }
    note_next_step(&service);
    Ok(())
}

/// Returns why there is no unit, and what helps.
fn without_unit(root: &Root) -> String {
    // The files that K3s' installer writes where OpenRC starts services. They set the command after /etc/conf.d is read.
    let services = [("k3s", "server"), ("k3s-agent", "agent")];
    let found = services
        .into_iter()
        .map(|(name, role)| (name, role, format!("/etc/init.d/{name}")))
        .find(|(.., file)| root.exists(file));
    match found {
        Some((name, role, file)) => format!(
            "OpenRC starts {name} here, and only units of systemd are changed: in {file} write command=\"/usr/local/bin/multus-distro\", put `{role} --multus -- /usr/local/bin/k3s` before what command_args has, and run `rc-service {name} restart`; K3s' installer writes that file anew, so repeat it then"
        ),
        None => "no unit of K3s or RKE2 is installed: install the distro first, or name its unit with --unit".to_owned(),
    }
}

/// Returns what the arguments switch on, and what the present drop-in has: a node that is installed again, as after a change of its unit,
/// stays as it is.
fn features(args: &Args, drop_in: Option<&str>) -> anyhow::Result<Features> {
    let present = drop_in.and_then(Features::of_drop_in).unwrap_or_default();
    let has_drop_in = present != Features::default();
    let is_vpn_alone = args.vpn_auth_file.is_some() || has_drop_in;
    let (file, networks) = present.vpn.unzip();
    let file = args.vpn_auth_file.clone().or(file);
    let of_args: Vec<_> = args
        .vpn_cluster_cidr
        .iter()
        .map(ToString::to_string)
        .collect();
    ensure!(
        file.is_some() || of_args.is_empty(),
        BadUsage(
            "--vpn-cluster-cidr is for a node on a VPN: name its settings with --vpn-auth-file"
                .to_owned()
        )
    );
    let networks = if of_args.is_empty() {
        networks.unwrap_or_default()
    } else {
        of_args
    };
    Ok(Features {
        multus: args.multus || present.multus || !is_vpn_alone,
        vpn: file.map(|file| (file, networks)),
    })
}

/// Fails where the next start of a server would not stage.
fn check_staging(args: &Args, root: &Root, service: &Service) -> anyhow::Result<()> {
    if unit::role(&service.command)? != "server" {
        return Ok(());
    }
    let settings = service.settings(root, args.distro)?;
    settings.ensure_no_own_multus()?;
    ensure_not_disabled(&settings)?;
    let files = plan::files(settings.distro, settings.staging())?;
    stage::check(root, &settings.data_dir, &files)
}

fn vpn_unit() -> PathBuf {
    Path::new("/etc/systemd/system").join(VPN_UNIT)
}

/// Writes the unit that keeps the VPN up, unless it is there already.
fn write_vpn_unit(root: &Root, text: &str) -> anyhow::Result<bool> {
    let path = vpn_unit();
    let present = root
        .exists(&path)
        .then(|| root.read(&path, MAX_UNIT))
        .transpose()?;
    if present.as_deref() == Some(text.as_bytes()) {
        return Ok(false);
    }
    root.write_atomic(&path, text.as_bytes(), 0o644)?;
    print(&format!("{}\n", path.display()))?;
    note(&format!(
        "next: systemctl daemon-reload && systemctl enable --now {VPN_UNIT}"
    ));
    Ok(true)
}

/// Ends the use of the VPN, if there is one, and removes its unit.
fn remove_vpn(args: &Args, root: &Root) -> anyhow::Result<()> {
    if !VpnFiles::new(root).is_used() {
        return Ok(());
    }
    // In another file tree there is no VPN to take down.
    if args.root == Path::new("/") {
        // The VPN may be the only way to an edge node, so it stays up.
        down(root, End::Routes)?;
    } else {
        VpnFiles::new(root).remove()?;
    }
    let path = vpn_unit();
    if root.remove(&path)? {
        print(&format!("{}\n", path.display()))?;
        note("next: systemctl daemon-reload");
    }
    Ok(())
}

fn remove(args: &Args, root: &Root, service: &Service) -> anyhow::Result<()> {
    remove_vpn(args, root)?;
    if service.drop_in.is_none() {
        note(&format!("{} has no drop-in of multus-distro", service.name));
        return Ok(());
    }
    if unit::role(&service.command)? == "server" {
        let data_dir = &service.settings(root, args.distro)?.data_dir;
        let plan = stage::plan_unstage(root, data_dir, false, false)?;
        for step in &plan {
            note(&format!("plan: {}", step.describe(data_dir)));
        }
        let outcome = stage::unstage(root, data_dir, &plan)?;
        outcome.notes.iter().for_each(|text| note(text));
        for path in outcome.written {
            print(&format!("{}\n", path.display()))?;
        }
    }
    remove_drop_in(root, &service.drop_in_path())?;
    // No daemon reads the hint without Multus.
    root.remove(HINT)?;
    note_next_step(service);
    Ok(())
}

fn remove_drop_in(root: &Root, path: &Path) -> anyhow::Result<()> {
    root.remove(path)?;
    // Fails, as it should, while the directory holds other drop-ins.
    if let Some(parent) = path.parent() {
        let _ = root.remove_dir(parent);
    }
    print(&format!("{}\n", path.display()))
}

/// Removes what is left of an installation whose distro is gone, as after `k3s-uninstall.sh`, which leaves drop-ins.
fn remove_without_unit(args: &Args, root: &Root) -> anyhow::Result<()> {
    let left = service::own_drop_ins(root);
    let is_used = VpnFiles::new(root).is_used();
    ensure!(!left.is_empty() || is_used, without_unit(root));
    remove_vpn(args, root)?;
    left.iter()
        .try_for_each(|path| remove_drop_in(root, path))?;
    root.remove(HINT)?;
    note("next: systemctl daemon-reload");
    Ok(())
}

fn note_next_step(service: &Service) {
    note(&format!(
        "next: systemctl daemon-reload && systemctl restart {}",
        service.name
    ));
}
