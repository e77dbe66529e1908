//! `server` and `agent`: stage, say where this node's runtime is, then become the distro.

use std::{
    ffi::OsString,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use cmdline::absolute;
use node::{
    root::Root,
    runtime::{HINT, Hint},
};

use super::stage::is_not_disabled;
use crate::{
    config,
    plan::{self, Distro},
    program::{self, Program},
    say,
    stage::{self, write_atomic},
    usage::BadUsage,
};

/// The runtime's socket, wherever these distros have their data.
pub(crate) const SOCKET: &str = "/run/k3s/containerd/containerd.sock";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bring Multus; without it what was staged earlier is removed
    #[arg(long)]
    multus: bool,
    /// The distro, where the program's name does not say it
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// The distro's data directory, where its arguments do not say it
    #[arg(long, value_parser = absolute)]
    data_dir: Option<PathBuf>,
    /// Where the hint for the node's daemon is written
    #[arg(long, default_value = HINT, hide = true)]
    hint: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// `server`: stages; `agent`: does not, as agents take no manifests.
pub(crate) fn run(args: &Args, is_server: bool) -> anyhow::Result<()> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let root = Root::open("/")?;
    let settings = |file: &Path| config::read(&root, file);
    let (role, other) = if is_server {
        ("server", "agent")
    } else {
        ("agent", "server")
    };
    let program = program::read(&args.command, variable, settings, args.distro)
        .and_then(|program| with_data_dir(program, args.data_dir.as_deref()))
        .and_then(|program| {
            program::is_role(&args.command, role, other)?;
            if is_server && args.multus {
                is_not_disabled(program.distro, &program.disabled.words)?;
            }
            Ok(program)
        })
        .map_err(|error| BadUsage(format!("{error:#}")))?;
    // Before anything is staged for it.
    find(&args.command[0], std::env::var_os("PATH"))?;
    let further = match (is_server, args.multus) {
        (true, true) => {
            bring(&program)?;
            Vec::new()
        }
        (true, false) => take_away(&program)?,
        (false, _) => Vec::new(),
    };
    if args.multus {
        write_hint(&args.hint, &program)?;
    } else {
        forget_hint(&args.hint)?;
    }
    let error = Command::new(&args.command[0])
        .args(&args.command[1..])
        .args(&further)
        .exec();
    Err(error).with_context(|| format!("cannot start {}", args.command[0]))
}

/// Stages; the distro needs no further argument.
fn bring(program: &Program) -> anyhow::Result<()> {
    let files = plan::files(program.distro, &program.registry)?;
    let done = stage::stage(&program.data_dir, &files)?;
    done.notes.iter().for_each(|note| say(note));
    Ok(())
}

/// What was staged is the distro's to remove: it deletes the manifests, and what it made of them.
fn take_away(program: &Program) -> anyhow::Result<Vec<String>> {
    let names = stage::retire(&program.data_dir)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let further = program.disabled.also(&names);
    for name in names {
        let path = program.data_dir.join(plan::MANIFESTS);
        say(&format!(
            "plan: {} removes {}/{name}.yaml and what it made of it; definitions of networks stay",
            program.distro.as_str(),
            path.display()
        ));
    }
    Ok(further)
}

fn with_data_dir(mut program: Program, given: Option<&Path>) -> anyhow::Result<Program> {
    if let Some(dir) = given {
        let default = Path::new("/var/lib/rancher").join(program.distro.as_str());
        ensure!(
            program.data_dir == *dir || program.data_dir == default,
            "--data-dir {} contradicts {} of the program: leave one of them out",
            dir.display(),
            program.data_dir.display()
        );
        dir.clone_into(&mut program.data_dir);
    }
    ensure!(
        program.data_dir.is_absolute(),
        "the data directory {} is relative: name it by its whole path",
        program.data_dir.display()
    );
    Ok(program)
}

/// Fails unless `exec` will find the program.
fn find(program: &str, search: Option<OsString>) -> anyhow::Result<()> {
    let is_program = |path: &Path| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        ensure!(
            is_program(Path::new(program)),
            "{program} is no program: correct its path after --"
        );
        return Ok(());
    }
    let search = search.unwrap_or_default();
    ensure!(
        std::env::split_paths(&search).any(|dir| is_program(&dir.join(program))),
        "there is no program {program} in PATH: install it, or name it by its whole path after --"
    );
    Ok(())
}

/// Where to look, never what is there: the process keeps its id through exec.
fn write_hint(path: &Path, program: &Program) -> anyhow::Result<()> {
    let config = program.data_dir.join("agent/etc/containerd/config.toml");
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let hint = Hint {
        schema: 1,
        distro: program.distro.as_str().to_owned(),
        data_dir: program.data_dir.clone(),
        cri_socket: SOCKET.into(),
        containerd_config: config,
        started_at: started,
        pid: std::process::id(),
    };
    write_atomic(path, &serde_json::to_vec(&hint)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Without Multus there is nobody to tell.
pub(crate) fn forget_hint(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
