//! `server` and `agent`: stage, say where this node's runtime is, then become the distro.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};

use crate::{
    plan::{self, Distro},
    program::{self, Program},
    stage::{self, write_atomic},
};

const HINT: &str = "/run/multus-distro/node.json";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  multus-distro server --multus -- k3s server --data-dir /data/k3s"
)]
pub(crate) struct Args {
    /// Bring Multus; without it what was staged earlier is removed
    #[arg(long)]
    multus: bool,
    /// The distro, where the program's name does not say it
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// The distro's data directory, where its arguments do not say it
    #[arg(long)]
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
    let mut program = program::read(&args.command, variable, configured, args.distro)?;
    if let Some(dir) = &args.data_dir {
        let default = Path::new("/var/lib/rancher").join(program.distro.as_str());
        ensure!(
            program.data_dir == *dir || program.data_dir == default,
            "--data-dir {} contradicts {} of the program",
            dir.display(),
            program.data_dir.display()
        );
        program.data_dir.clone_from(dir);
    }
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
