//! `kubectl-multus`, a plugin of kubectl: parses the arguments, runs a command and returns its exit status.

mod address_use;
mod addresses;
mod cluster;
mod cluster_health;
mod diagnostic;
mod lint;
mod manifest;
mod network_status;
mod networks;
mod node_daemon;
mod object;
mod pod_snapshot;
mod pod_state;
mod preflight;
mod report;
mod status;
mod suggest;
mod table;
mod validate;
mod why;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use api::version;
use clap::{Parser, Subcommand, ValueEnum};
use cmdline::VersionFlag;
use rustls::crypto::ring;
use serde::Serialize;

use self::pod_snapshot::PodSnapshot;

/// The prefix of each line on stderr.
const PREFIX: &str = "kubectl-multus";
/// The exit status when objects could not be read.
const INCOMPLETE: u8 = 3;
/// The exit status of preflight when nothing fails and something changes.
const CHANGES: u8 = 4;

const STATUSES: &str = "Exit status: 0 no problem found, 1 problem found, 2 wrong command line, 3 the cluster or files could not be read";

const PREFLIGHT_STATUSES: &str = "Exit status: 0 nothing to do, 1 pods or the installation would fail, 2 wrong command line, 3 the cluster or files could not be read,\n4 nothing would fail, but something would change";

/// Show, diagnose and validate the networks of pods
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-multus",
    bin_name = "kubectl multus",
    version = version::text(),
    disable_version_flag = true,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = format!("Examples:\n  kubectl multus status cart-0                 attachments, addresses, plugins and their age\n  kubectl multus why -n shop cart-0            what keeps a pod from its networks, and what helps\n  kubectl multus lint manifests/               validate definitions and pods before they are applied\n  kubectl multus networks                      which nodes can serve which networks, and what the others lack\n  kubectl multus ipam                          addresses of ranges that all nodes share\n  kubectl multus preflight --values values.yaml    what would fail or change when this release is installed\n  kubectl multus report -A --html report.html  the whole cluster on one page\n\n{STATUSES},\n4 nothing would fail, but something would change (preflight)")
)]
struct Arguments {
    #[command(flatten)]
    cluster: cluster::Options,
    /// Output format
    #[arg(long, short = 'o', global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    _version: VersionFlag,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the networks that a pod has, or the additional networks of all pods
    #[command(
        after_help = format!("Examples:\n  kubectl multus status cart-0\n  kubectl multus status -n shop cart-0 -o json\n  kubectl multus status                        pods of the namespace that have additional networks\n  kubectl multus status -A                     pods of all namespaces\n\nOnly the daemon of the pod's node knows plugins and times. It is queried as by `kubectl exec` in its pod, which takes the\nright to list pods and to create and get pods/exec in its namespace; without that right, definitions and events are read.\n\n{STATUSES}")
    )]
    Status(StatusArgs),
    /// Diagnose what keeps a pod from its networks, and say what helps
    #[command(
        after_help = format!("Examples:\n  kubectl multus why cart-0\n  kubectl multus why shop/cart-0 -o json\n\nIt reads the pod, its definitions, its events and its network status, and queries the node's daemon, as status does.\n\n{STATUSES}")
    )]
    Why(PodArgs),
    /// Validate network definitions and pods with the daemon's own rules, before they are applied
    #[command(
        after_help = format!("Examples:\n  kubectl multus lint network.yaml pod.yaml\n  helm template my-chart | kubectl multus lint -\n  kubectl multus lint manifests/ --cluster     networks may also be in the cluster\n\n{STATUSES}")
    )]
    Lint(lint::Args),
    /// Show which nodes can serve which networks, and what the others lack
    #[command(
        after_help = format!("Examples:\n  kubectl multus networks                      all definitions on all nodes\n  kubectl multus networks shop/lan --node b\n  kubectl multus networks -n shop -o json\n\nEach node's daemon looks for plugins, masters, devices and services of addresses when it is asked, as by `kubectl exec` in its pod.\nThat takes the right to list pods and to create and get pods/exec in its namespace. A network that no node serves is a problem.\n\n{STATUSES}")
    )]
    Networks(networks::Args),
    /// Show the addresses of ranges that all nodes share, and who has them
    #[command(
        after_help = format!("Examples:\n  kubectl multus ipam                          all ranges: used, free, and by whom they are held\n  kubectl multus ipam who 10.20.3.7            the pod that has an address\n  kubectl multus ipam check                    addresses that are given twice, leaked or not recorded\n  kubectl multus ipam free --node c            what a machine had that is off for good\n\nRanges are those of definitions with ipam of type multus-ipam or whereabouts. Nodes hold them in blocks of 32 addresses; what a\nnode reports about its own blocks is up to 5 s old.\n\n{STATUSES}")
    )]
    Ipam(addresses::Args),
    /// Report what would fail or change when this release is installed
    #[command(
        after_help = format!("Examples:\n  kubectl multus preflight\n  kubectl multus preflight --values values.yaml      values of the planned installation\n  helm get values -n kube-system rke2-multus -o yaml > values.yaml\n  kubectl get pods,nodes,daemonsets,configmaps,net-attach-def -A -o yaml | kubectl multus preflight -f -\n\nIt reads all pods, Deployments, StatefulSets and CronJobs, network definitions, nodes and DaemonSets, and the ConfigMap and\nvalues of the installed Multus; it reports what you may not read. Nothing is written.\n\n{PREFLIGHT_STATUSES}")
    )]
    Preflight(preflight::Args),
    /// Report the networks of nodes and pods, and what is wrong with them, also as one HTML file
    #[command(
        after_help = format!("Examples:\n  kubectl multus report                        what is wrong, networks and nodes; pods of the namespace\n  kubectl multus report -A --html report.html  all pods, with drawings of the nodes, as a file without scripts or links outside\n  kubectl multus report -n shop -o json\n  multus-distro vpn status --json > a.json     on node a, for:\n  kubectl multus report -A --vpn a.json --html report.html\n\nIt reads what status, why, lint, networks and ipam read, and queries all daemons at the same time, for at most 30 s. A node that does\nnot answer is named. Values of configurations and of cni-args are left out unless --full is given.\n\n{STATUSES}")
    )]
    Report(report::Args),
    /// Print the version, with the commit and date of the release
    #[command(
        after_help = format!("Examples:\n  kubectl multus version\n  kubectl multus version -o json\n\n{STATUSES}")
    )]
    Version,
}

/// The JSON output of `version`; a development build has no commit and no date.
#[derive(Serialize)]
struct VersionReport {
    version: &'static str,
    #[serde(flatten)]
    build: Option<version::Build>,
}

#[derive(Debug, clap::Args)]
struct StatusArgs {
    /// The pod: NAME, pod/NAME or NAMESPACE/NAME [default: all pods of the namespace]
    pod: Option<String>,
    /// Pods of all namespaces
    #[arg(long, short = 'A', conflicts_with = "pod")]
    all_namespaces: bool,
    /// Namespace of the daemons' pods [default: all namespaces are searched]
    #[arg(long, value_name = "NAME", requires = "pod")]
    daemon_namespace: Option<String>,
}

#[derive(Debug, clap::Args)]
struct PodArgs {
    /// The pod: NAME, pod/NAME or NAMESPACE/NAME
    pod: String,
    /// Namespace of the daemons' pods [default: all namespaces are searched]
    #[arg(long, value_name = "NAME")]
    daemon_namespace: Option<String>,
}

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Output {
    /// Prints an answer in this format.
    fn print(self, answer: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        let text = match self {
            // Texts of the cluster's users must not write to the terminal as they like.
            Self::Text => cmdline::plain(&text(), &['\n']).into_owned(),
            Self::Json => serde_json::to_string_pretty(answer)? + "\n",
        };
        match io::stdout().write_all(text.as_bytes()) {
            // The reader of a pipe, such as `head`, has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot write the answer"),
        }
    }
}

/// The result of a command, which decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandStatus {
    Ok,
    ProblemFound,
    /// Nothing would fail, but something would change.
    ChangesFound,
    /// No problem was found, but not everything could be read.
    Incomplete,
}

impl CommandStatus {
    fn of(is_ok: bool) -> Self {
        if is_ok { Self::Ok } else { Self::ProblemFound }
    }
}

fn main() -> ExitCode {
    let arguments: Arguments = match cmdline::parse_or_report(PREFIX, env::args_os()) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    match start(arguments) {
        Ok(CommandStatus::Ok) => ExitCode::SUCCESS,
        Ok(CommandStatus::ProblemFound) => ExitCode::FAILURE,
        Ok(CommandStatus::Incomplete) => ExitCode::from(INCOMPLETE),
        Ok(CommandStatus::ChangesFound) => ExitCode::from(CHANGES),
        Err(error) => {
            cmdline::report(PREFIX, &cmdline::error_line(error.as_ref()));
            ExitCode::from(INCOMPLETE)
        }
    }
}

fn start(arguments: Arguments) -> anyhow::Result<CommandStatus> {
    let (options, output) = (&arguments.cluster, arguments.output);
    if let Command::Version = arguments.command {
        let report = VersionReport {
            version: version::VERSION,
            build: version::build(),
        };
        output.print(&report, || version::line(PREFIX) + "\n")?;
        return Ok(CommandStatus::Ok);
    }
    // This fails only when a provider is installed already, and no other code of this program installs one.
    let _ = ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let command = arguments.command;
    runtime.block_on(async {
        match command {
            Command::Ipam(args) => addresses::run(&args, options, output).await,
            Command::Lint(args) => lint::run(&args, options, output).await,
            Command::Networks(args) => networks::run(&args, options, output).await,
            Command::Preflight(args) => preflight::run(&args, options, output).await,
            Command::Report(args) => Box::pin(report::run(&args, options, output, now())).await,
            Command::Status(StatusArgs {
                pod: Some(pod),
                daemon_namespace,
                ..
            }) => {
                let args = PodArgs {
                    pod,
                    daemon_namespace,
                };
                status::run(&args.read(options).await?, output, now())
            }
            Command::Status(args) => {
                status::list::run(options, args.all_namespaces, output, now()).await
            }
            Command::Why(args) => why::run(&args, options, output, now()).await,
            Command::Version => unreachable!("it is answered before"),
        }
    })
}

impl PodArgs {
    async fn read(&self, options: &cluster::Options) -> anyhow::Result<PodSnapshot> {
        PodSnapshot::read(options, &self.pod, self.daemon_namespace.as_deref()).await
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// `UPDATE_EXPECT=1 cargo test` writes the manual pages and completions that are shipped with the program.
    #[test]
    fn manual_pages_and_completions_match_the_command_line() {
        cmdline::pages::check(Arguments::command(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn every_command_documents_examples_and_exit_statuses() {
        let command = Arguments::command();
        cmdline::pages::check_examples(&command, "kubectl multus");
        for command in command.get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap();
            assert!(help.contains("Exit status: "), "{}", command.get_name());
        }
    }

    #[test]
    fn cluster_options_may_follow_the_command() {
        let argv = [
            "x",
            "status",
            "cart",
            "-n",
            "shop",
            "--context",
            "c",
            "-o",
            "json",
        ];
        let arguments = Arguments::parse_from(argv);
        assert_eq!(arguments.cluster.namespace.as_deref(), Some("shop"));
        assert_eq!(arguments.output, Output::Json);
        assert!(Arguments::try_parse_from(["x", "lint"]).is_err());
    }

    #[test]
    fn commands_of_the_pages_are_parsed() {
        let pages = docs::Pages::of_checkout().unwrap();
        pages.check_commands("kubectl multus", |args| {
            let args = std::iter::once("kubectl-multus".to_owned()).chain(args);
            let parsed = Arguments::try_parse_from(args);
            parsed.map(drop).map_err(|error| error.to_string())
        });
    }
}
