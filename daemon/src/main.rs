//! `multus-daemon`: arguments, logging, and the command that was asked for.

use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
use cmdline::absolute;
use daemon::{
    approve::ServiceAccount,
    commands::{self, Setting, pod::PodName, status::Probe, verify::Release},
    config, exec, limits, logging,
    run::{self, Identity},
    serving,
};
use tracing::warn;

/// The static C library's allocator returns memory to the kernel after nearly every request, which is a seventh of an ADD's CPU.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The beginning of each line to stderr.
const PREFIX: &str = "multus-daemon";
/// Where a pod has the node's root.
const HOST_ROOT: &str = "/hostroot";

/// Gives pods their networks: serves multus-shim, runs delegates, keeps state.
#[derive(Debug, Parser)]
#[command(
    name = "multus-daemon",
    disable_version_flag = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  multus-daemon                       serve this node, as the DaemonSet does\n  multus-daemon discover --json       what this node's runtime says of its CNI directories\n  multus-daemon status --ready        exit status 0 when pods are served, else the reason\n  multus-daemon uninstall             take configuration and shim off this node"
)]
struct Arguments {
    /// The daemon's configuration file.
    #[arg(long, global = true, default_value = config::DEFAULT_PATH)]
    config: PathBuf,
    /// The directory that stands for the node's root; unless given, /hostroot, or / where there is none and no pod.
    #[arg(long, global = true)]
    root: Option<PathBuf>,
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
    #[command(
        after_help = "Example:\n  multus-daemon run --config /etc/cni/daemon-config.json --root /"
    )]
    Run,
    /// Put the shim into a directory, also as passthru.
    #[command(after_help = "Example:\n  multus-daemon install -d /host/opt/cni/bin")]
    Install {
        /// The directory.
        #[arg(short = 'd', long = "dir", default_value = "/host/opt/cni/bin", value_parser = absolute)]
        dir: PathBuf,
        /// Upstream's flag; only thick exists.
        #[arg(short = 't', long = "type", default_value = "thick", value_parser = PossibleValuesParser::new(["thick"]))]
        kind: String,
    },
    /// Take configuration and shim off this node.
    #[command(
        after_help = "Examples:\n  multus-daemon uninstall --root /hostroot\n  multus-daemon uninstall --detach --root /hostroot"
    )]
    Uninstall {
        /// Detach pods that are gone first, leave the runtime what it needs to detach the default network of those that run, and name
        /// their further networks, which nobody will detach.
        #[arg(long)]
        detach: bool,
    },
    /// Say where this node's runtime has its CNI directories.
    #[command(after_help = "Example:\n  multus-daemon discover --json")]
    Discover {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Approve the certificates that nodes ask for themselves, deny all others of that kind.
    #[command(
        after_help = "Example:\n  multus-daemon approve --service-account kube-system/multus"
    )]
    Approve {
        /// Let pods of this service account ask for their node, too, as namespace/name.
        #[arg(long)]
        service_account: Option<ServiceAccount>,
    },
    /// Say what this node knows of a pod's networks, as JSON: for kubectl multus.
    #[command(after_help = "Example:\n  multus-daemon pod shop/cart-0")]
    Pod {
        /// The pod as namespace/name.
        pod: PodName,
    },
    /// Say whether the DaemonSet serves every node, and gave this pod its networks: for helm test.
    #[command(after_help = "Example:\n  multus-daemon verify --wait 120")]
    Verify {
        /// Look again for so many seconds before the answer is no.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u32,
    },
    /// Ask the running daemon.
    #[command(after_help = "Example:\n  multus-daemon status --ready")]
    Status {
        /// Succeed only when pods are served.
        #[arg(long)]
        ready: bool,
        /// Try again for so many seconds before the answer is no.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u32,
        /// What it does and has counted, as JSON.
        #[arg(long, conflicts_with = "ready")]
        json: bool,
    },
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // No command of the command line: the daemon alone calls it, and it must stay small.
    if words
        .get(1)
        .is_some_and(|word| word == exec::SPAWNER_ARGUMENT)
    {
        return exec::spawner_main(words.get(2).map(AsRef::as_ref));
    }
    // A node's probes are started for ever: they do not pay for what other commands need.
    if let Some(uid) = variable("POD_UID")
        && let Some(probe) = Probe::from_arguments(words.iter().skip(1).map(AsRef::as_ref))
    {
        return exit(commands::status::run(&probe_setting(uid), probe));
    }
    match cmdline::parse_or_report(PREFIX, in_clap_style(words.into_iter())) {
        Ok(arguments) => exit(start(arguments)),
        Err(status) => status,
    }
}

fn exit(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cmdline::fail(PREFIX, &error),
    }
}

/// What a probe in the daemon's pod goes by.
fn probe_setting(uid: String) -> Setting {
    Setting {
        config: PathBuf::new(),
        root: PathBuf::from(HOST_ROOT),
        identity: Identity {
            pod_uid: Some(uid),
            ..Identity::default()
        },
    }
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn start(arguments: Arguments) -> anyhow::Result<()> {
    if arguments.version {
        writeln!(std::io::stdout(), "{}", api::version_line("multus-daemon"))?;
        return Ok(());
    }
    let identity = Identity {
        node: variable("MULTUS_NODE_NAME").unwrap_or_default(),
        pod_uid: variable("POD_UID"),
        namespace: variable("POD_NAMESPACE"),
        daemon_set: variable("MULTUS_DAEMONSET"),
        crd_chart: variable("MULTUS_CRD_CHART"),
        plugin_environment: exec::of_plugins(std::env::vars_os()),
    };
    let root = arguments
        .root
        .unwrap_or_else(|| usual_root(&identity, Path::new(HOST_ROOT)));
    let setting = Setting {
        config: arguments.config,
        root,
        identity,
    };
    match arguments.command.unwrap_or(Command::Run) {
        Command::Run => serve(setting, arguments.log_format),
        Command::Install { dir, kind: _ } => commands::install::run(&dir),
        Command::Uninstall { detach } => {
            runtime()?.block_on(commands::uninstall::run(&setting, detach))
        }
        Command::Discover { json } => runtime()?.block_on(commands::discover::run(&setting, json)),
        Command::Approve { service_account } => {
            logging::to_stderr("verbose", arguments.log_format == LogFormat::Json);
            runtime()?.block_on(commands::approve::run(service_account))
        }
        Command::Pod { pod } => commands::pod::run(&setting, &pod),
        Command::Verify { wait } => {
            let release = release(&setting.identity)?;
            let wait = Duration::from_secs(wait.into());
            runtime()?.block_on(commands::verify::run(&release, wait))
        }
        Command::Status { json: true, .. } => commands::status::print_json(&setting),
        Command::Status { ready, wait, .. } => {
            let wait = Duration::from_secs(wait.into());
            let has_answer = commands::status::run(&setting, Probe { ready, wait });
            if has_answer.is_ok() && !ready {
                commands::status::print_summary(&setting);
            }
            has_answer
        }
    }
}

/// The release that a pod of `helm test` belongs to.
fn release(identity: &Identity) -> anyhow::Result<Release> {
    let missing = |name: &str| format!("{name} is not set: run this with `helm test`");
    Ok(Release {
        namespace: identity
            .namespace
            .clone()
            .with_context(|| missing("POD_NAMESPACE"))?,
        daemon_set: identity
            .daemon_set
            .clone()
            .with_context(|| missing("MULTUS_DAEMONSET"))?,
        pod: variable("POD_NAME").with_context(|| missing("POD_NAME"))?,
    })
}

/// In a pod the node's root is mounted, and its absence must not go unnoticed; on the node itself it is there as `/`.
fn usual_root(identity: &Identity, mounted: &Path) -> PathBuf {
    if identity.pod_uid.is_some() || mounted.exists() {
        mounted.to_owned()
    } else {
        PathBuf::from("/")
    }
}

fn serve(setting: Setting, format: LogFormat) -> anyhow::Result<()> {
    let config = config::Config::load(&setting.config)?;
    let root = setting.root()?;
    config.logging.init(&root, format == LogFormat::Json)?;
    for sentence in config.without_effect() {
        warn!("{sentence}");
    }
    anyhow::ensure!(
        !setting.identity.node.is_empty(),
        "MULTUS_NODE_NAME is not set: name the node whose pods are served"
    );
    let (user, owner) = (rustix::process::geteuid().as_raw(), root.owner()?);
    anyhow::ensure!(
        user == 0 || user == owner,
        "user {user} cannot serve a node that belongs to user {owner}: run as root"
    );
    limits::raise();
    let runtime = runtime_with(serving::threads(config.verbs_at_once))?;
    let outcome = runtime.block_on(run::run(config, root, setting.identity));
    // Threads that wait for a plugin which does not end are left behind; the next start ends the plugin.
    runtime.shutdown_background();
    outcome
}

/// For what serves nobody.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    runtime_with(8)
}

fn runtime_with(blocking_threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    // One thread for everything that does not block: what it does for a verb takes less than waking a second one.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .max_blocking_threads(blocking_threads)
        .enable_all()
        .build()
        .context("cannot start the runtime")
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
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(words: &[&str]) -> Arguments {
        Arguments::parse_from(in_clap_style(words.iter().map(OsString::from)))
    }

    /// Shipped beside the program; `UPDATE_EXPECT=1 cargo test` writes them.
    #[test]
    fn pages_are_those_of_the_command_line() {
        cmdline::pages::check(Arguments::command(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn every_command_shows_an_example() {
        cmdline::pages::check_examples(&Arguments::command(), "multus-daemon");
    }

    #[test]
    fn wrong_words_are_told_in_one_line() {
        for (words, part) in [
            (&["install", "-t", "thin"][..], "thick"),
            (&["install", "-d", "bin"], "give an absolute path"),
            (&["-log-format", "xml"], "text, json"),
            (&["jump"], "'jump'"),
        ] {
            let words = [&["multus-daemon"], words].concat();
            let words = words.iter().map(OsString::from);
            let line = cmdline::parse::<Arguments>(in_clap_style(words)).unwrap_err();
            assert_eq!(line.lines().count(), 1, "{line}");
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn outside_of_a_pod_the_root_is_the_nodes_own() {
        let absent = Path::new("/no/such/hostroot");
        let pod = Identity {
            pod_uid: Some("u".to_owned()),
            ..Identity::default()
        };
        assert_eq!(usual_root(&Identity::default(), absent), Path::new("/"));
        assert_eq!(
            usual_root(&Identity::default(), Path::new("/tmp")),
            Path::new("/tmp")
        );
        assert_eq!(usual_root(&pod, absent), absent);
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
