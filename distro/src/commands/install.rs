//! `install`: writes a systemd drop-in that starts the distro through this program.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use cmdline::{BadUsage, absolute};
use node::root::Root;

use super::{note, print, stage::ensure_not_disabled};
use crate::{
    boot_program,
    node_vpn::{auth, start},
    plan::{self, Distro},
    service::{self, Service},
    settings, stage,
    unit::{self, Features, VPN_UNIT},
};

/// More than any unit.
const MAX_UNIT: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro install\n  multus-distro install --unit k3s-agent.service\n  multus-distro install --vpn-auth-file /etc/multus-vpn.auth            only the VPN\n  multus-distro install --multus --vpn-auth-file /etc/multus-vpn.auth\n\nRun it again when the unit changes, as an installation script of the distro does; doctor reports it."
)]
pub(crate) struct Args {
    /// The unit, where this node has several, or one of another name
    #[arg(long)]
    unit: Option<String>,
    /// The distro, where this node has both
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// Start with Multus; on unless --vpn-auth-file is given, or this node has only the VPN
    #[arg(long)]
    multus: bool,
    /// Put the node on the VPN of this file, and leave Multus on or off as it is; a unit of its own keeps the VPN up until uninstall
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    vpn_auth_file: Option<PathBuf>,
    /// The networks of the cluster's pods, where an agent cannot ask its server for them
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    vpn_cluster_cidr: Vec<vpn::Prefix>,
    /// This program's path on the node; its present path unless set
    #[arg(long, value_parser = absolute)]
    program: Option<PathBuf>,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let found = service::find_to_install(&root, args.distro, args.unit.as_deref())
        .map_err(|error| BadUsage(format!("{error:#}")))?;
    let service = found.with_context(|| without_unit(&root))?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find this program's own path")?,
    };
    let features = features(args, &service)?;
    let file = features.vpn.as_ref().map(|(file, _)| file);
    let vpn = file
        .map(|file| anyhow::Ok((file, auth::check(&root, file)?)))
        .transpose()?;
    boot_program::check(&root, &program, args.program.is_some())?;
    let options = features.options()?;
    let text = unit::drop_in(&program, &service.command, &options)
        .with_context(|| format!("cannot make a drop-in for {}", service.name))?;
    let path = service.drop_in_path();
    let has_new_vpn = match &vpn {
        Some((file, selection)) => {
            write_vpn_unit(&root, &unit::vpn_unit(&program, file, selection)?)?
        }
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
    if let Some((_, selection)) = &vpn {
        let settings = service.settings(&root, args.distro);
        let checked = settings.and_then(|settings| start::check(&root, selection, &settings));
        if let Err(error) = checked {
            note(&format!(
                "before the restart, which fails until then: {error:#}"
            ));
        }
    }
    note_next_step(&service);
    Ok(())
}

/// Returns why there is no unit, and what helps.
pub(super) fn without_unit(root: &Root) -> String {
    // The files that K3s' installer writes where OpenRC starts services. They set the command after /etc/conf.d is read.
    let found = ["k3s", "k3s-agent"]
        .into_iter()
        .map(|name| (name, format!("/etc/init.d/{name}")))
        .find(|(_, file)| root.exists(file));
    match found {
        Some((name, file)) => format!(
            "OpenRC starts {name} here, and only units of systemd are changed: in {file} write command=\"/usr/local/bin/multus-distro\", put `run --multus -- /usr/local/bin/k3s` before what command_args has, and run `rc-service {name} restart`; K3s' installer writes that file anew, so repeat it then"
        ),
        None => "no unit of K3s or RKE2 is installed: install the distro first, or name its unit with --unit".to_owned(),
    }
}

/// Returns what the arguments switch on, and what the present drop-in has: a node that is installed again, as after a change of its unit,
/// stays as it is.
fn features(args: &Args, service: &Service) -> anyhow::Result<Features> {
    let present = service.drop_in.as_deref().and_then(Features::parse_drop_in);
    let present = present.unwrap_or_default();
    let explicit = args.distro.or(present.distro);
    let command = service.args();
    let distro =
        settings::distro(&command, explicit).map_err(|error| BadUsage(format!("{error:#}")))?;
    let has_drop_in = present != Features::default();
    let is_vpn_alone = args.vpn_auth_file.is_some() || has_drop_in;
    let (file, networks) = present.vpn.unzip();
    let file = args.vpn_auth_file.clone().or(file);
    let named_networks: Vec<_> = args
        .vpn_cluster_cidr
        .iter()
        .map(ToString::to_string)
        .collect();
    ensure!(
        file.is_some() || named_networks.is_empty(),
        BadUsage(
            "--vpn-cluster-cidr is for a node on a VPN: name its settings with --vpn-auth-file"
                .to_owned()
        )
    );
    let networks = if named_networks.is_empty() {
        networks.unwrap_or_default()
    } else {
        named_networks
    };
    Ok(Features {
        multus: args.multus || present.multus || !is_vpn_alone,
        // Only where the program's name does not say it.
        distro: settings::distro(&command, None).is_err().then_some(distro),
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
    stage::check(root, &settings.data_dir, &files)?;
    let conflicts = stage::conflicts_with(root, &settings.data_dir, &files);
    conflicts.warnings().for_each(|text| note(&text));
    Ok(())
}

pub(super) fn vpn_unit() -> PathBuf {
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

pub(super) fn note_next_step(service: &Service) {
    note(&format!(
        "next: systemctl daemon-reload && systemctl restart {}",
        service.name
    ));
}
