//! `multus-daemon`: arguments, logging, and the command that was asked for.

use std::{ffi::OsString, io::Write, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use daemon::{
    commands::{self, Setting},
    config,
    run::{self, Identity},
};
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Gives pods their networks: serves multus-shim, runs delegates, keeps state.
#[derive(Debug, Parser)]
#[command(
    name = "multus-daemon",
    disable_version_flag = true,
    after_help = "Examples:\n  multus-daemon                       serve this node, as the DaemonSet does\n  multus-daemon discover --json       what this node's runtime says of its CNI directories\n  multus-daemon status --ready        exit status 0 when pods are served, else the reason\n  multus-daemon uninstall             take configuration and shim off this node"
)]
struct Arguments {
    /// The daemon's configuration file.
    #[arg(long, global = true, default_value = config::DEFAULT_PATH)]
    config: PathBuf,
    /// The directory that stands for the node's root.
    #[arg(long, global = true, default_value = "/hostroot")]
    root: PathBuf,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Print the version.
    #[arg(long, short = 'v')]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve (the default).
    Run,
    /// Put the shim into a directory.
    Install {
        /// The directory.
        #[arg(short = 'd', long = "dir", default_value = "/host/opt/cni/bin")]
        dir: PathBuf,
        /// Upstream's flag; only thick exists.
        #[arg(short = 't', long = "type", default_value = "thick")]
        kind: String,
    },
    /// Take configuration and shim off this node.
    Uninstall,
    /// Say where this node's runtime has its CNI directories.
    Discover {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ask the running daemon.
    Status {
        /// Succeed only when pods are served.
        #[arg(long)]
        ready: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(in_clap_style(std::env::args_os()));
    match start(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to be told when stderr is closed.
            let _ = writeln!(std::io::stderr(), "multus-daemon: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: Arguments) -> anyhow::Result<()> {
    if arguments.version {
        writeln!(std::io::stdout(), "{}", api::version_line("multus-daemon"))?;
        return Ok(());
    }
    let variable = |name| {
        std::env::var(name)
            .ok()
            .filter(|value: &String| !value.is_empty())
    };
    let identity = Identity {
        node: variable("MULTUS_NODE_NAME").unwrap_or_default(),
        pod_uid: variable("POD_UID"),
        namespace: variable("POD_NAMESPACE"),
        daemon_set: variable("MULTUS_DAEMONSET"),
    };
    let setting = Setting {
        config: arguments.config,
        root: arguments.root,
        identity,
    };
    match arguments.command.unwrap_or(Command::Run) {
        Command::Run => serve(setting, arguments.log_format),
        Command::Install { dir, kind } => {
            anyhow::ensure!(kind == "thick", "-t {kind}: only thick exists here");
            commands::install::run(&dir)
        }
        Command::Uninstall => runtime()?.block_on(commands::uninstall::run(&setting)),
        Command::Discover { json } => runtime()?.block_on(commands::discover::run(&setting, json)),
        Command::Status { ready } => commands::status::run(&setting, ready),
    }
}

fn serve(setting: Setting, format: LogFormat) -> anyhow::Result<()> {
    let config = config::Config::load(&setting.config)?;
    log_to_stderr(&config.log_level, format);
    anyhow::ensure!(
        !setting.identity.node.is_empty(),
        "MULTUS_NODE_NAME is not set: name the node whose pods are served"
    );
    let root = setting.root()?;
    runtime()?.block_on(run::run(config, root, setting.identity))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn log_to_stderr(level: &str, format: LogFormat) {
    let level = match level {
        "debug" => Level::DEBUG,
        "error" | "panic" => Level::ERROR,
        _ => Level::INFO,
    };
    // Libraries talk of their own inner life below that.
    let filter = Targets::new()
        .with_target("daemon", level)
        .with_target("node", level)
        // What it gets back is said where it was asked for, with more of the reason.
        .with_target("kube_client", LevelFilter::OFF)
        .with_default(level.min(Level::WARN));
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    match format {
        LogFormat::Text => tracing_subscriber::registry()
            .with(filter)
            .with(layer)
            .init(),
        LogFormat::Json => tracing_subscriber::registry()
            .with(filter)
            .with(layer.json())
            .init(),
    }
}

/// Upstream's single-dash flags get their second dash; the name `install_multus` is the command `install`.
fn in_clap_style(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let program = arguments.next().unwrap_or_else(|| "multus-daemon".into());
    let mut out = vec![program.clone()];
    if PathBuf::from(&program)
        .file_name()
        .is_some_and(|name| name == "install_multus")
    {
        out.push("install".into());
    }
    out.extend(arguments.map(|argument| match argument.to_str() {
        Some(text) if text.len() > 2 && text.starts_with('-') && !text.starts_with("--") => {
            format!("-{text}").into()
        }
        _ => argument,
    }));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Arguments {
        Arguments::parse_from(in_clap_style(words.iter().map(OsString::from)))
    }

    #[test]
    fn upstreams_flags_are_understood() {
        assert_eq!(
            parsed(&["multus-daemon", "-config", "/x"]).config,
            PathBuf::from("/x")
        );
        assert!(parsed(&["multus-daemon", "-version"]).version);
        let arguments = parsed(&["/install_multus", "-d", "/host/opt/cni/bin", "-t", "thick"]);
        assert!(matches!(arguments.command, Some(Command::Install { .. })));
    }
}
