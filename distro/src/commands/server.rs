//! `server` and `agent`: stage, say where this node's runtime is, then become the distro.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};

use crate::{
    plan::{self, Distro},
    program::{self, Program},
    stage::{self, write_atomic},
    usage::{BadUsage, absolute},
};

const HINT: &str = "/run/multus-distro/node.json";

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
    let program = program::read(&args.command, variable, configured, args.distro)
        .and_then(|program| with_data_dir(program, args.data_dir.as_deref()))
        .map_err(|error| BadUsage(error.to_string()))?;
    // Before anything is staged for it.
    find(&args.command[0], std::env::var_os("PATH"))?;
    if is_server {
        if args.multus {
            stage::stage(
                &program.data_dir,
                &plan::files(program.distro, &program.registry)?,
            )?;
        } else {
            stage::unstage(&program.data_dir, false)?;
        }
    }
    if args.multus {
        write_hint(&args.hint, &program)?;
    }
    let error = Command::new(&args.command[0])
        .args(&args.command[1..])
        .exec();
    Err(error).with_context(|| format!("cannot start {}", args.command[0]))
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
    let hint = serde_json::json!({
        "schema": 1, "distro": program.distro.as_str(), "dataDir": program.data_dir,
        "criSocket": "/run/k3s/containerd/containerd.sock", "containerdConfig": config,
        "startedAt": started, "pid": std::process::id(),
    });
    write_atomic(path, hint.to_string().as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Values of a key in the distro's `config.yaml` and `config.yaml.d`: simple `key: value` and lists of words.
fn configured(distro: Distro, key: &str) -> Vec<String> {
    let dir = Path::new("/etc/rancher").join(distro.as_str());
    let mut files = vec![dir.join("config.yaml")];
    let mut extra: Vec<PathBuf> = entries(&dir.join("config.yaml.d")).unwrap_or_default();
    extra.sort();
    files.extend(extra);
    files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .flat_map(|text| values(&text, key))
        .collect()
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

fn values(text: &str, key: &str) -> Vec<String> {
    let Ok(serde_yaml::Value::Mapping(map)) = serde_yaml::from_str(text) else {
        return Vec::new();
    };
    let found = map.iter().filter(|(name, _)| {
        name.as_str()
            .is_some_and(|name| name.trim_end_matches('+') == key)
    });
    found
        .flat_map(|(_, value)| match value {
            serde_yaml::Value::String(text) => vec![text.clone()],
            serde_yaml::Value::Sequence(list) => list
                .iter()
                .filter_map(|one| one.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_files_have_words_and_lists() {
        let text = "data-dir: /data\ncni:\n- multus\n- canal\ncni+: [x]\nport: 1\n";
        assert_eq!(values(text, "data-dir"), ["/data"]);
        assert_eq!(values(text, "cni"), ["multus", "canal", "x"]);
        assert!(values("not: [closed", "not").is_empty());
    }
}
