//! `run`: stages on servers, writes a hint that tells the daemon where this node's runtime is, then becomes the distro.

use std::{
    ffi::OsString,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow, ensure};
use cmdline::{BadUsage, absolute};
use node::{
    root::Root,
    runtime::{HINT, Hint},
};

use super::{note, stage::ensure_not_disabled};
use crate::{
    node_vpn::{auth, start},
    plan::{self, Distro},
    settings::{self, Role, Settings},
    stage::{self, write_atomic},
};

/// The runtime's socket, which does not depend on the data directory.
const CRI_SOCKET: &str = "/run/k3s/containerd/containerd.sock";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stage Multus; without it what was staged earlier is removed, and left as it is on a VPN
    #[arg(long)]
    multus: bool,
    /// The distro, where it does not follow from the program's name
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// The distro's data directory, where its arguments do not name it
    #[arg(long, value_parser = absolute)]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    vpn: start::Options,
    /// File for the hint to the node's daemon
    #[arg(long, default_value = HINT, hide = true)]
    hint: PathBuf,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute, hide = true)]
    root: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Starts a server or an agent, whichever the program's arguments name. Nothing is staged for agents, which read no manifests.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root)?;
    let bad_usage = |error: anyhow::Error| BadUsage(format!("{error:#}"));
    let distro = settings::distro(&args.command, args.distro).map_err(bad_usage)?;
    let role = settings::require_role(&args.command, distro).map_err(bad_usage)?;
    // Nothing is staged for a program that cannot be started.
    ensure_executable(&args.command[0], std::env::var_os("PATH"))?;
    let settings = settings::read(&root, &args.command, settings::variable, args.distro)
        .and_then(|settings| with_data_dir(settings, args.data_dir.as_deref()));
    let vpn_args = match &settings {
        Ok(settings) => start::args(&root, &args.vpn, settings, note)?,
        Err(_) if !start::is_wanted(&root, &args.vpn) => None,
        Err(error) => return Err(BadUsage(format!("{error:#}")).into()),
    };
    // From here on nothing of Multus keeps the distro from starting: a cluster without its API server is worse than one without Multus.
    let extra_args = settings
        .and_then(|settings| prepare(args, &root, &settings, role, vpn_args.is_some()))
        .unwrap_or_else(|error| {
            note(&format!(
                "Multus is left as it is, and {} starts: {error:#}",
                distro.as_str()
            ));
            Vec::new()
        });
    let mut command = Command::new(&args.command[0]);
    // K3s acts on them, too, and the distro's environment does not need the key.
    if vpn_args.is_some() {
        for name in auth::VARIABLES {
            command.env_remove(name);
        }
    }
    let error = command
        .args(&args.command[1..])
        .args(&extra_args)
        .args(vpn_args.iter().flatten())
        .exec();
    Err(error).with_context(|| format!("cannot start {}", args.command[0]))
}

/// Stages, or takes away what is staged, and writes the hint; returns further arguments of the distro.
fn prepare(
    args: &Args,
    root: &Root,
    settings: &Settings,
    role: Role,
    is_on_vpn: bool,
) -> anyhow::Result<Vec<String>> {
    let hint = if args.multus {
        write_hint(root, &args.hint, settings)
    } else {
        root.remove(&args.hint).map(drop).map_err(Into::into)
    };
    if let Err(error) = hint {
        note(&format!("the daemon gets no hint of this start: {error:#}"));
    }
    match (role, args.multus) {
        (Role::Server, true) => stage(root, settings).map(|()| Vec::new()),
        // A node that is put on the VPN asks nothing of Multus.
        (Role::Server, false) if is_on_vpn => note_staged(root, settings).map(|()| Vec::new()),
        (Role::Server, false) => disable(root, settings),
        (Role::Agent, _) => Ok(Vec::new()),
    }
}

fn stage(root: &Root, settings: &Settings) -> anyhow::Result<()> {
    settings.ensure_no_own_multus()?;
    ensure_not_disabled(settings)?;
    plan::registry(&settings.registry).map_err(|error| anyhow!(error))?;
    let files = plan::files(settings.distro, settings.staging())?;
    let outcome = stage::stage(root, &settings.data_dir, &files)?;
    outcome.notes.iter().for_each(|text| note(text));
    Ok(())
}

/// Notes how to remove what is staged, if anything is.
fn note_staged(root: &Root, settings: &Settings) -> anyhow::Result<()> {
    let data_dir = &settings.data_dir;
    if !stage::plan_unstage(root, data_dir, false, false)?.is_empty() {
        note(&format!(
            "Multus stays as it is staged: `multus-distro unstage --data-dir {}` removes it",
            data_dir.display()
        ));
    }
    Ok(())
}

/// Returns arguments by which the distro removes what was staged: it deletes the manifests, and what it installed from them.
fn disable(root: &Root, settings: &Settings) -> anyhow::Result<Vec<String>> {
    let names = stage::disable(root, &settings.data_dir)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let extra_args = settings.args_to_disable(&names);
    for name in names {
        let path = settings.data_dir.join(plan::MANIFESTS);
        note(&format!(
            "plan: {} removes {}/{name}.yaml and what it installed from it; network definitions stay",
            settings.distro.as_str(),
            path.display()
        ));
    }
    Ok(extra_args)
}

fn with_data_dir(mut settings: Settings, explicit: Option<&Path>) -> anyhow::Result<Settings> {
    if let Some(dir) = explicit {
        let default = settings::default_data_dir(settings.distro);
        ensure!(
            settings.data_dir == *dir || settings.data_dir == default,
            "--data-dir {} contradicts {} of the program: leave one of them out",
            dir.display(),
            settings.data_dir.display()
        );
        dir.clone_into(&mut settings.data_dir);
    }
    // The distro takes a relative path from its working directory, which is this one.
    settings.data_dir = std::path::absolute(&settings.data_dir)?;
    Ok(settings)
}

/// Fails unless `exec` will find the program.
fn ensure_executable(program: &str, search: Option<OsString>) -> anyhow::Result<()> {
    let is_program = |path: &Path| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        ensure!(
            is_program(Path::new(program)),
            "{program} is not an executable file: correct its path after --"
        );
        return Ok(());
    }
    let search = search.unwrap_or_default();
    ensure!(
        std::env::split_paths(&search).any(|dir| is_program(&dir.join(program))),
        "there is no program {program} in PATH: install it, or give its absolute path after --"
    );
    Ok(())
}

/// Writes where to look, never what is there. The process keeps its id through `exec`, so the hint names the distro's process.
fn write_hint(root: &Root, path: &Path, settings: &Settings) -> anyhow::Result<()> {
    let config = settings.data_dir.join("agent/etc/containerd/config.toml");
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let hint = Hint {
        schema: 1,
        distro: settings.distro.as_str().to_owned(),
        data_dir: settings.data_dir.clone(),
        cri_socket: CRI_SOCKET.into(),
        containerd_config: config,
        started_at: started,
        pid: std::process::id(),
    };
    write_atomic(root, path, &serde_json::to_vec(&hint)?)
        .with_context(|| format!("cannot write {}", path.display()))
}
