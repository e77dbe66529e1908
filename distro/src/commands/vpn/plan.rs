//! `vpn plan`: the addresses that the distro would get, as a table, as JSON or as its arguments. It changes nothing.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use cmdline::{BadUsage, absolute};
use node::root::Root;
use serde::Serialize;
use vpn::{
    Auth, Facts, Prefix,
    kernel::Netlink,
    plan::{Datastore, Node, Plan, Role},
    site::{self, ClusterNetwork},
};

use super::{note, print};
use crate::{
    node_vpn::{
        auth::{self, AuthArgs},
        files::VpnFiles,
        fragment, host, plan_input,
        start::{flannel_conf, flannel_networks, prefixes},
    },
    plan::Distro,
    settings::{self, Settings, pod_networks, service_networks},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro vpn plan -- k3s server --cluster-init\n  multus-distro vpn plan --interface tailscale0 --address 100.64.0.2 -- k3s agent --server https://100.64.0.1:6443\n  multus-distro vpn plan --interface tailscale0 --address 100.64.0.1,fd7a:115c:a1e0::1 --args -- k3s server --cluster-init"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag, and clap refuses two of them"
)]
pub(crate) struct Args {
    /// As JSON
    #[arg(long, conflicts_with = "as_arguments")]
    json: bool,
    /// As a file for the distro's config.yaml.d
    #[arg(long = "config", conflicts_with_all = ["json", "as_arguments"])]
    as_config: bool,
    /// The configuration of flannel, which is the file of the plan's flannel-conf
    #[arg(long, conflicts_with_all = ["json", "as_arguments", "as_config"])]
    flannel_conf: bool,
    /// The networks of the cluster's pods, where an agent cannot ask its server for them
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        requires = "flannel_conf"
    )]
    vpn_cluster_cidr: Vec<Prefix>,
    /// Only the arguments that are added to the distro's, one on each line
    #[arg(long = "args")]
    as_arguments: bool,
    /// The VPN's interface, for a plan before the VPN runs
    #[arg(long, value_name = "NAME", requires = "addresses")]
    interface: Option<String>,
    /// The node's addresses in the VPN
    #[arg(
        long = "address",
        value_name = "ADDRESS",
        value_delimiter = ',',
        requires = "interface"
    )]
    addresses: Vec<IpAddr>,
    /// The MTU of the VPN's interface
    #[arg(long, default_value_t = 1280, requires = "interface")]
    mtu: u32,
    /// The node's name in the VPN
    #[arg(long = "name", value_name = "NAME", requires = "interface")]
    dns_name: Option<String>,
    #[command(flatten)]
    auth: AuthArgs,
    /// The distro, where it does not follow from the program's name
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// The directory that stands for the node's root
    #[arg(long, default_value = "/", value_parser = absolute)]
    root: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The JSON output.
#[derive(Serialize)]
struct Report<'a> {
    distro: vpn::plan::Distro,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    datastore: Option<Datastore>,
    #[serde(flatten)]
    plan: &'a Plan,
    args: Vec<String>,
}

/// Prints the plan.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let taken = auth::take(&args.auth, settings::variable)?;
    let root = Root::open(&args.root)?;
    let exists = |file: &Path| root.exists(file);
    let host = host::read()?;
    let selection = match &taken {
        Some(taken) => taken.auth.selection.clone(),
        None => VpnFiles::new(&root).record()?.selection,
    };
    let (settings, node) = settings::read(&root, &args.command, settings::variable, args.distro)
        .and_then(|settings| {
            let node = plan_input::node(&settings, &selection, exists, host)?;
            Ok((settings, node))
        })
        .map_err(|error| BadUsage(format!("{error:#}")))?;
    let facts = facts(&root, args)?;
    let mut plan = plan_input::plan(&facts, &node, &settings)?;
    let network = Netlink::open().and_then(|mut netlink| netlink.network());
    let network = network.context("cannot read the routes of this node")?;
    let site = site::networks(&network, &facts.interface);
    let cluster = cluster_networks(&root, args, &settings, &plan)?;
    plan.notes.extend(site::overlaps(&site, &cluster));
    if let Some(taken) = taken {
        taken.notes.iter().for_each(|text| note(text));
        note(&describe(&taken.auth));
    }
    if args.json {
        let report = report(&node, &plan);
        return print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
    }
    plan.notes.iter().for_each(|text| note(text));
    if args.as_arguments {
        return print(&lines(&plan.args()));
    }
    if args.as_config {
        return print(&fragment::config(&plan));
    }
    if args.flannel_conf {
        let networks = flannel_networks(&args.vpn_cluster_cidr, &selection, &settings)?;
        let networks = networks.context(
            "flannel does not run here, or keeps its own back end: leave --flannel-conf out",
        )?;
        return print(&flannel_conf(networks, &plan, &selection, &settings)?);
    }
    print(&table(&plan))
}

/// Returns the networks of pods and services, as far as this node knows them; those of agents are the servers' own.
fn cluster_networks(
    root: &Root,
    args: &Args,
    settings: &Settings,
    plan: &Plan,
) -> anyhow::Result<Vec<ClusterNetwork>> {
    let node_ip = plan.settings.iter().find(|one| one.name == "node-ip");
    let first = node_ip.and_then(|setting| setting.values.first()?.parse().ok());
    let mut pods = args.vpn_cluster_cidr.clone();
    if pods.is_empty() && settings.cluster_cidr.is_empty() {
        // The shell may have emptied the file already, to write this output to it.
        pods = VpnFiles::new(root).networks().unwrap_or_default();
    }
    if pods.is_empty() {
        pods = prefixes("cluster-cidr", &pod_networks(&settings.cluster_cidr, first))?;
    }
    let services = prefixes(
        "service-cidr",
        &service_networks(&settings.service_cidr, first),
    )?;
    let of = |setting, ranges: Vec<Prefix>| {
        let ranges = ranges.into_iter();
        ranges.map(move |range| ClusterNetwork { setting, range })
    };
    Ok(of("cluster-cidr", pods)
        .chain(of("service-cidr", services))
        .collect())
}

/// Returns the facts that the arguments name, or those of the VPN that `vpn run` keeps up.
fn facts(root: &Root, args: &Args) -> anyhow::Result<Facts> {
    if let Some(interface) = &args.interface {
        return Ok(Facts {
            interface: interface.clone(),
            addresses: args.addresses.iter().copied().collect(),
            dns_name: args.dns_name.clone(),
            mtu: args.mtu,
            ranges: Vec::new(),
        });
    }
    let state = VpnFiles::new(root).state()?;
    state.and_then(|state| state.node).context(
        "the VPN does not run, so its addresses are not known: start it (multus-distro vpn run), or name them with --interface and --address",
    )
}

/// Returns the settings in a sentence, without the key.
fn describe(auth: &Auth) -> String {
    let program = auth.selection.guide().program;
    if let Some(interface) = &auth.selection.interface {
        return format!(
            "the VPN's settings are right: {program} on {interface}, which you bring up"
        );
    }
    let key = match auth.key {
        Some(_) => "with a key",
        None => "without a key, so the node has to be logged in",
    };
    let server = auth.control_server.as_deref();
    let server = server.unwrap_or("the provider's own control server");
    format!("the VPN's settings are right: {program} at {server}, {key}")
}

fn report<'a>(node: &Node, plan: &'a Plan) -> Report<'a> {
    let (role, datastore) = match node.role {
        Role::Agent => ("agent", None),
        Role::Server(datastore) => ("server", Some(datastore)),
    };
    Report {
        distro: node.distro,
        role,
        datastore,
        plan,
        args: plan.args(),
    }
}

/// Returns a row for each value, with its origin.
fn table(plan: &Plan) -> String {
    let header = ["SETTING", "VALUE", "FROM", "REASON"].map(str::to_owned);
    let rows = plan.settings.iter().flat_map(|setting| {
        setting.values.iter().map(|value| {
            let origin = if setting.added.contains(value) {
                "plan"
            } else {
                "you"
            };
            [setting.name, value, origin, setting.reason].map(str::to_owned)
        })
    });
    let rows: Vec<[String; 4]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let rows = rows.iter().map(|[name, value, origin, reason]| {
        let [first, second, third] = widths;
        format!("{name:first$}  {value:second$}  {origin:third$}  {reason}")
    });
    lines(&rows.collect::<Vec<_>>())
}

fn lines(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use vpn::plan::Setting;

    use super::*;

    #[test]
    fn table_has_a_row_for_each_value() {
        let plan = Plan {
            settings: vec![
                Setting {
                    name: "node-ip",
                    values: vec!["192.168.1.10".to_owned()],
                    added: vec!["192.168.1.10".to_owned()],
                    reason: "a",
                },
                Setting {
                    name: "tls-san",
                    values: vec!["x".to_owned(), "100.64.0.1".to_owned()],
                    added: vec!["100.64.0.1".to_owned()],
                    reason: "b",
                },
            ],
            notes: Vec::new(),
        };
        let expected = "\
SETTING  VALUE         FROM  REASON
node-ip  192.168.1.10  plan  a
tls-san  x             you   b
tls-san  100.64.0.1    plan  b
";
        assert_eq!(table(&plan), expected);
    }
}
