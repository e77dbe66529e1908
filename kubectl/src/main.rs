//! `kubectl-multus`: arguments, the command that was asked for, and how it ended.

mod cluster;
mod facts;
mod ipam;
mod judge;
mod lint;
mod manifest;
mod node;
mod object;
mod outage;
mod preflight;
mod remark;
mod scene;
mod status;
mod suggest;
mod table;
mod why;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use rustls::crypto::ring;
use serde::Serialize;

use self::scene::Scene;

/// The beginning of each line to stderr.
const PREFIX: &str = "kubectl-multus";
/// Exit status when it could not be found out.
const NO_ANSWER: u8 = 3;
/// Exit status of preflight when nothing fails and something changes.
const CHANGES: u8 = 4;

const ENDINGS: &str = "Exit status: 0 all is well, 1 something is wrong with what was looked at, 2 wrong command line, 3 it could not be found out";

const ENDINGS_OF_PREFLIGHT: &str = "Exit status: 0 nothing to do, 1 pods or the installation would fail, 2 wrong command line, 3 it could not be found out,\n4 nothing would fail and something would change";

/// Networks of pods: which they have, why not, and what is wrong before they exist.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-multus",
    bin_name = "kubectl multus",
    disable_version_flag = true,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = format!("Examples:\n  kubectl multus status cart-0                 attachments, addresses, plugins and their age\n  kubectl multus why -n shop cart-0            what keeps a pod from its networks, and what helps\n  kubectl multus lint manifests/               definitions and pods before they are applied\n  kubectl multus preflight --values values.yaml    what would fail or change when this release is installed\n\n{ENDINGS},\n4 nothing would fail, and something would change (preflight)")
)]
struct Arguments {
    #[command(flatten)]
    cluster: cluster::Options,
    /// For people, or for programs
    #[arg(long, short = 'o', global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Print the version
    #[arg(long, short = 'v')]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say which networks a pod has
    #[command(
        after_help = format!("Examples:\n  kubectl multus status cart-0\n  kubectl multus status -n shop cart-0 -o json\n\nPlugins and times are the node's daemon's to know. It is asked as by `kubectl exec` in its pod, which takes the right\nto list pods and to create and get pods/exec in its namespace; without it, definitions and events are read.\n\n{ENDINGS}")
    )]
    Status(OfPod),
    /// Say what keeps a pod from its networks, and what helps
    #[command(
        after_help = format!("Examples:\n  kubectl multus why cart-0\n  kubectl multus why shop/cart-0 -o json\n\nIt reads the pod, its definitions, its events and its network status, and asks the node's daemon, as status does.\n\n{ENDINGS}")
    )]
    Why(OfPod),
    /// Judge network definitions and pods before they are applied, by the daemon's own rules
    #[command(
        after_help = format!("Examples:\n  kubectl multus lint network.yaml pod.yaml\n  helm template my-chart | kubectl multus lint -\n  kubectl multus lint manifests/ --cluster     networks may also be in the cluster\n\n{ENDINGS}")
    )]
    Lint(lint::Args),
    /// Say what would fail or change when this release is installed
    #[command(
        after_help = format!("Examples:\n  kubectl multus preflight\n  kubectl multus preflight --values values.yaml      values of the installation to come\n  helm get values -n kube-system rke2-multus -o yaml > values.yaml\n  kubectl get pods,nodes,daemonsets,configmaps,net-attach-def -A -o yaml | kubectl multus preflight -f -\n\nIt reads all pods, Deployments, StatefulSets and CronJobs, network definitions, nodes and DaemonSets, and the ConfigMap and\nvalues of the Multus that is there; what may not be read is named. Nothing is written.\n\n{ENDINGS_OF_PREFLIGHT}")
    )]
    Preflight(preflight::Args),
}

#[derive(Debug, clap::Args)]
struct OfPod {
    /// The pod: NAME, pod/NAME or NAMESPACE/NAME
    pod: String,
    /// Where the daemons' pods are; without it all namespaces are looked through
    #[arg(long, value_name = "NAME")]
    daemon_namespace: Option<String>,
}

/// How answers look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Output {
    /// Prints an answer in one of its two forms.
    fn print(self, answer: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        let text = match self {
            Self::Text => text(),
            Self::Json => serde_json::to_string_pretty(answer)? + "\n",
        };
        match io::stdout().write_all(text.as_bytes()) {
            // Whoever reads has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot write the answer"),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Well,
    Wrong,
    /// Nothing is wrong, but something will not be as before.
    Changes,
    /// Nothing is wrong with what could be looked at, which is not all.
    Unknown,
}

impl Ending {
    fn of(is_well: bool) -> Self {
        if is_well { Self::Well } else { Self::Wrong }
    }
}

fn main() -> ExitCode {
    let arguments: Arguments = match cmdline::parse_or_report(PREFIX, env::args_os()) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    match start(arguments) {
        Ok(Ending::Well) => ExitCode::SUCCESS,
        Ok(Ending::Wrong) => ExitCode::FAILURE,
        Ok(Ending::Unknown) => ExitCode::from(NO_ANSWER),
        Ok(Ending::Changes) => ExitCode::from(CHANGES),
        Err(error) => {
            cmdline::report(PREFIX, &cmdline::error_line(error.as_ref()));
            ExitCode::from(NO_ANSWER)
        }
    }
}

fn start(arguments: Arguments) -> anyhow::Result<Ending> {
    let Some(command) = arguments.command.filter(|_| !arguments.version) else {
        writeln!(io::stdout(), "{}", api::version_line("kubectl-multus"))?;
        return Ok(Ending::Well);
    };
    // Fails when somebody else did it, and nobody else is here.
    let _ = ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (options, output) = (&arguments.cluster, arguments.output);
    runtime.block_on(async {
        match command {
            Command::Lint(args) => lint::run(&args, options, output).await,
            Command::Preflight(args) => preflight::run(&args, options, output).await,
            Command::Status(of) => status::run(&of.scene(options).await?, output, now()),
            Command::Why(of) => why::run(&of.scene(options).await?, output, now()),
        }
    })
}

impl OfPod {
    async fn scene(&self, options: &cluster::Options) -> anyhow::Result<Scene> {
        Scene::read(options, &self.pod, self.daemon_namespace.as_deref()).await
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

    /// Shipped beside the program; `UPDATE_EXPECT=1 cargo test` writes them.
    #[test]
    fn pages_are_those_of_the_command_line() {
        cmdline::pages::check(Arguments::command(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn every_command_shows_an_example_and_how_it_ends() {
        let command = Arguments::command();
        cmdline::pages::check_examples(&command, "kubectl multus");
        for command in command.get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap();
            assert!(help.contains("Exit status: "), "{}", command.get_name());
        }
    }

    #[test]
    fn cluster_options_may_follow_the_command() {
        let words = [
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
        let arguments = Arguments::parse_from(words);
        assert_eq!(arguments.cluster.namespace.as_deref(), Some("shop"));
        assert_eq!(arguments.output, Output::Json);
        assert!(Arguments::try_parse_from(["x", "lint"]).is_err());
    }
}
