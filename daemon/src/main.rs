//! `multus-daemon`: parses arguments, sets up logging, runs the requested command.

use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use api::version;
use clap::{Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
use cmdline::{VersionFlag, absolute};
use daemon::{
    app::{self, Identity},
    certificate::approve::ServiceAccount,
    commands::{self, CommandContext, pod::PodName, status::Probe, verify::Release},
    host::{exec, limits},
    logging,
    readiness::Purpose,
    serving, watchdog,
};
use plan::daemon_config::{self, Config};
use tracing::warn;

/// The static C library's allocator returns memory to the kernel after nearly every request, which takes a seventh of an ADD's CPU time.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The prefix of each line on stderr.
const PREFIX: &str = "multus-daemon";
/// The mount point of the node's root in a pod.
const HOST_ROOT: &str = "/hostroot";

/// Gives pods their networks: serves multus-shim, runs delegates, keeps state.
#[derive(Debug, Parser)]
#[command(
    name = "multus-daemon",
    version = version::text(),
    disable_version_flag = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  multus-daemon                       serve this node, as the DaemonSet does\n  multus-daemon doctor                what is wrong on this node, and how to fix it\n  multus-daemon status --ready        exit status 0 when pods are served, else the reason\n  multus-daemon uninstall             remove configuration and shim from this node"
)]
struct Arguments {
    /// The daemon's configuration file.
    #[arg(long, global = true, default_value = daemon_config::DEFAULT_PATH)]
    config: PathBuf,
    /// The directory that is the node's root; by default /hostroot, or / where that does not exist outside a pod.
    #[arg(long, global = true)]
    root: Option<PathBuf>,
    /// The format of log lines.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    #[command(flatten)]
    _version: VersionFlag,
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
    /// Install the CNI plugins into the runtime's directory and keep them there; serve no pods.
    #[command(
        hide = true,
        after_help = "Example:\n  multus-daemon plugins --root /hostroot"
    )]
    Plugins,
    /// Install the shim into a directory, also as passthru.
    #[command(
        hide = true,
        after_help = "Example:\n  multus-daemon install -d /host/opt/cni/bin"
    )]
    Install {
        /// The directory.
        #[arg(short = 'd', long = "dest-dir", alias = "dir", default_value = "/host/opt/cni/bin", value_parser = absolute)]
        dir: PathBuf,
        /// Upstream's flag; only thick exists.
        #[arg(short = 't', long = "type", default_value = "thick", value_parser = PossibleValuesParser::new(["thick"]))]
        kind: String,
    },
    /// Remove configuration, shim and plugins from this node.
    #[command(
        after_help = "Examples:\n  multus-daemon uninstall --root /hostroot\n  multus-daemon uninstall --detach --root /hostroot"
    )]
    Uninstall {
        /// First detach deleted pods, leave the runtime what it needs to detach the default network of running pods, and list their
        /// other networks, which stay attached.
        #[arg(long)]
        detach: bool,
    },
    /// Report what is wrong on this node, and how to fix it.
    #[command(
        after_help = "Examples:\n  multus-daemon doctor\n  kubectl exec -n kube-system daemonset/k3s-multus -- multus-daemon doctor --all"
    )]
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Also every source that names a directory, and what was rejected.
        #[arg(long)]
        all: bool,
    },
    /// Show where this node's runtime has its CNI directories.
    #[command(hide = true, after_help = "Example:\n  multus-daemon discover --json")]
    Discover {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Approve certificates that nodes request for themselves, deny all others of that kind.
    #[command(
        hide = true,
        after_help = "Example:\n  multus-daemon approve --service-account kube-system/multus"
    )]
    Approve {
        /// Also let pods of this service account, namespace/name, request the certificate of their node.
        #[arg(long)]
        service_account: Option<ServiceAccount>,
    },
    /// Show which network definitions this node can serve, and what it lacks for the others.
    #[command(
        after_help = "Examples:\n  multus-daemon networks\n  kubectl exec -n kube-system daemonset/k3s-multus -- multus-daemon networks --json"
    )]
    Networks {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show what this node knows about a pod's networks, as JSON: for kubectl multus.
    #[command(hide = true, after_help = "Example:\n  multus-daemon pod shop/cart-0")]
    Pod {
        /// The pod as namespace/name.
        pod: PodName,
    },
    /// Verify that the DaemonSet serves every node and gave this pod its networks: for helm test.
    #[command(
        hide = true,
        after_help = "Example:\n  multus-daemon verify --wait 120"
    )]
    Verify {
        /// Only verify the DaemonSet: it installs plugins and serves no pods.
        #[arg(long)]
        plugins: bool,
        /// Retry for this many seconds before failing.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u32,
    },
    /// Query the running daemon.
    #[command(after_help = "Example:\n  multus-daemon status --ready")]
    Status {
        /// Succeed only when pods are served.
        #[arg(long)]
        ready: bool,
        /// Retry for this many seconds before failing.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u32,
        /// Print its state and counters as JSON.
        #[arg(long, conflicts_with = "ready")]
        json: bool,
    },
    /// Print the version, with the commit and date of the release.
    #[command(after_help = "Example:\n  multus-daemon version")]
    Version,
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // Not a public command: only the daemon starts it, and its process must stay small.
    if args.get(1).is_some_and(|arg| arg == exec::SPAWNER_ARGUMENT) {
        return exec::spawner_main(args.get(2).map(AsRef::as_ref));
    }
    // The kubelet starts probes for as long as the node runs, so a probe skips the setup of other commands.
    if let Some(uid) = variable("POD_UID")
        && let Some(probe) = Probe::from_arguments(args.iter().skip(1).map(AsRef::as_ref))
    {
        return exit(commands::status::run(&probe_context(uid), probe));
    }
    match cmdline::parse_or_report(PREFIX, normalize_args(args.into_iter())) {
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

/// The input of a probe in the daemon's pod.
fn probe_context(uid: String) -> CommandContext {
    CommandContext {
        config: PathBuf::new(),
        root: PathBuf::from(HOST_ROOT),
        identity: Identity {
            pod_uid: Some(uid),
            ..Identity::default()
        },
    }
}

/// Returns a variable of the environment unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn start(arguments: Arguments) -> anyhow::Result<()> {
    let identity = Identity {
        node: variable("MULTUS_NODE_NAME").unwrap_or_default(),
        pod_uid: variable("POD_UID"),
        namespace: variable("POD_NAMESPACE"),
        daemon_set: variable("MULTUS_DAEMONSET"),
        crd_chart: variable("MULTUS_CRD_CHART"),
        plugin_environment: exec::plugin_environment(std::env::vars_os()),
    };
    let root = arguments
        .root
        .unwrap_or_else(|| default_root(&identity, Path::new(HOST_ROOT)));
    let context = CommandContext {
        config: arguments.config,
        root,
        identity,
    };
    match arguments.command.unwrap_or(Command::Run) {
        Command::Run => serve(context, arguments.log_format, Purpose::Multiplexer),
        Command::Plugins => serve(context, arguments.log_format, Purpose::Plugins),
        Command::Install { dir, kind: _ } => commands::install::run(&dir),
        Command::Uninstall { detach } => {
            runtime()?.block_on(commands::uninstall::run(&context, detach))
        }
        Command::Doctor { json, all } => {
            runtime()?.block_on(commands::doctor::run(&context, all, json))
        }
        Command::Discover { json } => runtime()?.block_on(commands::discover::run(&context, json)),
        Command::Approve { service_account } => {
            logging::to_stderr("verbose", arguments.log_format == LogFormat::Json);
            runtime()?.block_on(commands::approve::run(service_account))
        }
        Command::Networks { json } => commands::networks::run(&context, json),
        Command::Pod { pod } => commands::pod::run(&context, &pod),
        Command::Verify { plugins, wait } => {
            let release = release(&context.identity, !plugins)?;
            let wait = Duration::from_secs(wait.into());
            runtime()?.block_on(commands::verify::run(&release, wait))
        }
        Command::Version => {
            writeln!(std::io::stdout(), "{}", version::line(PREFIX)).context("cannot write")
        }
        Command::Status { json: true, .. } => commands::status::print_json(&context),
        Command::Status { ready, wait, .. } => {
            let wait = Duration::from_secs(wait.into());
            let has_answer = commands::status::run(&context, Probe { ready, wait });
            if has_answer.is_ok() && !ready {
                commands::status::print_summary(&context);
            }
            has_answer
        }
    }
}

/// Returns the release that a pod of `helm test` belongs to; with its own pod, where that gets its networks from the release.
fn release(identity: &Identity, serves_pods: bool) -> anyhow::Result<Release> {
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
        pod: serves_pods
            .then(|| variable("POD_NAME").with_context(|| missing("POD_NAME")))
            .transpose()?,
    })
}

/// Returns the mount point in a pod, even if it is missing, so that the missing mount becomes an error; outside a pod `/`.
fn default_root(identity: &Identity, mounted: &Path) -> PathBuf {
    if identity.pod_uid.is_some() || mounted.exists() {
        mounted.to_owned()
    } else {
        PathBuf::from("/")
    }
}

fn serve(context: CommandContext, format: LogFormat, purpose: Purpose) -> anyhow::Result<()> {
    let config = Config::load(&context.config)?;
    let root = context.root()?;
    logging::init(&config.logging, &root, format == LogFormat::Json)?;
    for sentence in config.without_effect() {
        warn!("{sentence}");
    }
    anyhow::ensure!(
        !context.identity.node.is_empty(),
        "MULTUS_NODE_NAME is not set: name the node whose pods are served"
    );
    let (user, owner) = (rustix::process::geteuid().as_raw(), root.owner()?);
    anyhow::ensure!(
        user == 0 || user == owner,
        "user {user} cannot serve a node that belongs to user {owner}: run as root"
    );
    limits::raise();
    let runtime = runtime_with(serving::threads(config.verbs_at_once))?;
    watchdog::start(runtime.handle().clone())?;
    let outcome = runtime.block_on(app::run(config, root, context.identity, purpose));
    // Threads that wait for a hanging plugin are left behind; the next start ends the plugin.
    runtime.shutdown_background();
    outcome
}

/// The async runtime of commands that serve no requests.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    runtime_with(8)
}

fn runtime_with(blocking_threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    // One thread for everything that does not block: its work for a verb takes less time than waking a second thread.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .max_blocking_threads(blocking_threads)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Gives upstream's single-dash flags their second dash, and turns the program name `install_multus` into the command `install`.
fn normalize_args(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
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

    fn parsed(args: &[&str]) -> Arguments {
        Arguments::parse_from(normalize_args(args.iter().map(OsString::from)))
    }

    /// The pages are shipped with the program; `UPDATE_EXPECT=1 cargo test` writes them.
    #[test]
    fn pages_match_the_command_line() {
        cmdline::pages::check(Arguments::command(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn every_command_shows_an_example() {
        cmdline::pages::check_examples(&Arguments::command(), "multus-daemon");
    }

    #[test]
    fn invalid_arguments_are_reported_in_one_line() {
        for (args, part) in [
            (&["install", "-t", "thin"][..], "thick"),
            (&["install", "-d", "bin"], "give an absolute path"),
            (&["-log-format", "xml"], "text, json"),
            (&["jump"], "'jump'"),
        ] {
            let args = [&["multus-daemon"], args].concat();
            let args = args.iter().map(OsString::from);
            let line = cmdline::parse::<Arguments>(normalize_args(args)).unwrap_err();
            assert_eq!(line.lines().count(), 1, "{line}");
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn default_root_outside_a_pod_is_the_nodes_root() {
        let absent = Path::new("/no/such/hostroot");
        let pod = Identity {
            pod_uid: Some("u".to_owned()),
            ..Identity::default()
        };
        assert_eq!(default_root(&Identity::default(), absent), Path::new("/"));
        assert_eq!(
            default_root(&Identity::default(), Path::new("/tmp")),
            Path::new("/tmp")
        );
        assert_eq!(default_root(&pod, absent), absent);
    }

    #[test]
    fn flags_of_upstream_are_accepted() {
        assert_eq!(
            parsed(&["multus-daemon", "-config", "/x"]).config,
            PathBuf::from("/x")
        );
        for flag in ["-version", "-v", "-V", "--version"] {
            let args = ["multus-daemon", flag].map(OsString::from).into_iter();
            let error = Arguments::try_parse_from(normalize_args(args)).unwrap_err();
            assert_eq!(error.to_string(), version::line(PREFIX) + "\n");
        }
        let arguments = parsed(&["/install_multus", "-d", "/host/opt/cni/bin", "-t", "thick"]);
        assert!(matches!(arguments.command, Some(Command::Install { .. })));
    }

    #[test]
    fn commands_of_the_pages_are_parsed() {
        let pages = docs::Pages::of_checkout().unwrap();
        pages.check_commands("multus-daemon", |args| {
            let args = std::iter::once("multus-daemon".to_owned()).chain(args);
            let parsed = Arguments::try_parse_from(normalize_args(args.map(OsString::from)));
            parsed.map(drop).map_err(|error| error.to_string())
        });
    }
}
