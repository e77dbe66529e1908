//! `kubectl multus ipam`: who has which address of the ranges that all nodes share, what is wrong with them, and how to free those of a
//! machine that is off for good.
//!
//! `gather` reads the cluster into a `snapshot`; `ranges`, `lookup`, `check` and `free` decide over it.

mod check;
mod free;
mod gather;
mod lookup;
mod pools;
mod ranges;
mod snapshot;

pub(crate) use self::{
    check::Finding,
    ranges::{Row, grouped, holders},
};

use std::{net::IpAddr, time::Duration};

use clap::Subcommand;
use plan::netconf::Netconf;
use serde_json::Value;
use tokio::time::sleep;

use self::snapshot::Snapshot;
use crate::{
    CommandStatus, Output, STATUSES,
    cluster::{Cluster, Options},
};

/// After this time it is read again whether a finding is still so: what a node reports is up to 5 s old.
const RECHECK: u64 = 6;

/// Arguments of `ipam`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show which pod has an address
    #[command(
        after_help = "Examples:\n  kubectl multus ipam who 10.20.3.7\n  kubectl multus ipam who fd00:20::7 -o json\n\nNodes know the addresses of their own blocks, so the pod is found by the network status of all pods.\n\nExit status: 0 a pod or claim has it, 1 none has it, 2 wrong command line, 3 the cluster could not be read"
    )]
    Who {
        /// The address, without a prefix length
        #[arg(value_parser = address)]
        address: IpAddr,
    },
    /// Compare blocks, definitions, claims and the network status of all pods
    #[command(
        after_help = format!("Examples:\n  kubectl multus ipam check\n  kubectl multus ipam check -o json\n\nFindings:\n  twice         two running pods have one address\n  unrecorded    a pod has an address that is not taken in its block\n  leaked        an address is taken for a pod or claim that no longer exists\n  orphaned      a block is held by a node that no longer exists\n  unusable      a block or definition cannot be read, so nothing is given from it\n\n{STATUSES}")
    )]
    Check(check::Args),
    /// Free the addresses of a node whose machine is off for good
    #[command(
        after_help = "Examples:\n  kubectl multus ipam free --node c            what would be freed\n  kubectl multus ipam free --node c --yes\n\nPods that still run on that machine would share their addresses with others, so nothing is freed while the node's kubelet\nreports, not even with --yes. Deleting the Node frees them as well, ten minutes after no pod is bound to its name.\n\nExit status: 0 everything is freed, 1 something is not, also without --yes, 2 wrong command line, 3 the cluster could not be read"
    )]
    Free(free::Args),
    /// Move the addresses of all pools of whereabouts into blocks, under running pods
    #[command(
        after_help = format!("Examples:\n  kubectl multus ipam adopt whereabouts          what would be moved, and what keeps it\n  kubectl multus ipam adopt whereabouts --yes\n\nPods keep their addresses. Starting pods wait some seconds meanwhile. The daemons need the value ipam.whereabouts, and its program must\nbe gone from all nodes. Interrupted, the command goes on when it is run again.\n\nExit status: 0 all pools are in blocks, 1 they are not, also without --yes, 2 wrong command line, 3 the cluster could not be read")
    )]
    Adopt(pools::AdoptArgs),
    /// Move the addresses of blocks back into the pools of whereabouts
    #[command(
        after_help = format!("Examples:\n  kubectl multus ipam return whereabouts\n  kubectl multus ipam return whereabouts --yes\n\nPods keep their addresses. Starting pods wait some seconds meanwhile. Interrupted, the command goes on when it is run again.\n\nExit status: 0 the pools give addresses, 1 they do not, also without --yes, 2 wrong command line, 3 the cluster could not be read")
    )]
    Return(pools::Args),
}

/// Runs a command about addresses; without one, prints the ranges.
pub(crate) async fn run(
    args: &Args,
    options: &Options,
    output: Output,
) -> anyhow::Result<CommandStatus> {
    let cluster = Cluster::new(options).await?;
    match &args.command {
        None => ranges::run(&cluster, output).await,
        Some(Command::Who { address }) => lookup::run(&cluster, *address, output).await,
        Some(Command::Check(args)) => check::run(args, &cluster, output).await,
        Some(Command::Free(args)) => free::run(args, &cluster, output).await,
        Some(Command::Adopt(args)) => pools::adopt(args, &cluster, output).await,
        Some(Command::Return(args)) => pools::give_back(args, &cluster, output).await,
    }
}

/// The objects of a cluster that decide about addresses; `None` for those that were not read.
#[derive(Debug, Default)]
pub(crate) struct Objects<'a> {
    pub(crate) definitions: &'a [Value],
    pub(crate) blocks: &'a [Value],
    pub(crate) nodes: Option<&'a [Value]>,
    pub(crate) claims: Option<&'a [Value]>,
    pub(crate) pods: &'a [Value],
}

/// The ranges of a cluster, and what is wrong with their addresses.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    pub(crate) ranges: Vec<Row>,
    pub(crate) findings: Vec<Finding>,
}

impl Overview {
    /// Returns what these objects say.
    pub(crate) fn of(objects: &Objects<'_>, netconf: &Netconf) -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.nodes = objects.nodes.map(|_| [].into());
        snapshot.claims = objects.claims.map(|_| [].into());
        for object in objects.definitions {
            snapshot.add_definition(object.clone(), netconf);
        }
        for object in objects.blocks {
            snapshot.add_block(object.clone());
        }
        for object in objects.nodes.into_iter().flatten() {
            snapshot.add_node(object);
        }
        for object in objects.claims.into_iter().flatten() {
            snapshot.add_claim(object);
        }
        for object in objects.pods {
            snapshot.add_pod(object);
        }
        Self {
            ranges: ranges::rows(&snapshot),
            findings: check::report(&snapshot).findings,
        }
    }

    /// Reads again and drops the findings that are no longer so, as `ipam check` does.
    pub(crate) async fn confirm(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        if !self.findings.is_empty() {
            sleep(Duration::from_secs(RECHECK)).await;
            let now = check::report(&gather::all(cluster).await?).findings;
            self.findings = check::confirmed(&self.findings, now);
        }
        Ok(())
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    ipam::range::parse_address(text).map_err(|error| error.to_string())
}
