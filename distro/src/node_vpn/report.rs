//! The report on the VPN of this node: asks its program and the kernel, and reads the files of `vpn run`.

use anyhow::Context as _;
use jiff::Timestamp;
use node::root::Root;
use vpn::{
    Prefix,
    kernel::Netlink,
    provider::Settings,
    state::State,
    status::{Report, Sources},
};

use crate::{
    node_vpn::files::VpnFiles,
    service,
    settings::{pod_networks, service_networks},
};

/// Returns the report, and the state that `vpn run` wrote last.
pub(crate) fn report(root: &Root) -> anyhow::Result<(Report, Option<State>)> {
    let files = VpnFiles::new(root);
    let record = files.record()?;
    let provider = record.selection.on_this_node(&files.run_dir());
    let status = provider.status();
    let settings = if status.is_ok() {
        provider.settings().unwrap_or_default()
    } else {
        Settings::default()
    };
    let network = Netlink::open()
        .and_then(|mut netlink| netlink.network())
        .context("cannot read the interfaces of this node")?;
    let note = files.note()?.unwrap_or_default();
    let report = Report::new(&Sources {
        provider: provider.guide(),
        status: status.as_ref(),
        settings: &settings,
        record: &record,
        cluster: &cluster(root, &files)?,
        pods: &note.networks,
        subnets: &note.subnets,
        others: &record.others,
        has_flannel: !files.networks()?.is_empty(),
        is_kept: files.is_kept(),
        network: &network,
        forwards: (
            is_on("/proc/sys/net/ipv4/ip_forward"),
            is_on("/proc/sys/net/ipv6/conf/all/forwarding"),
        ),
        now: Timestamp::now(),
    });
    Ok((report, files.state()?))
}

fn is_on(path: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// Returns the networks of pods and services, as the distro's unit or flannel's configuration names them.
pub(crate) fn cluster(root: &Root, files: &VpnFiles<'_>) -> anyhow::Result<Vec<Prefix>> {
    let services = service::find_started(root, None).unwrap_or_default();
    // A file that cannot be read keeps the distro from starting, and not the VPN.
    let settings = services
        .first()
        .and_then(|one| one.settings(root, None).ok());
    let (pods, services, node_ip) = settings
        .map(|one| (one.cluster_cidr, one.service_cidr, one.node_ip))
        .unwrap_or_default();
    let first = node_ip.first().and_then(|text| text.parse().ok());
    let parse = |texts: Vec<String>| {
        texts
            .into_iter()
            .filter_map(|text| text.parse::<Prefix>().ok())
    };
    let mut ranges = files.networks()?;
    if ranges.is_empty() {
        ranges.extend(parse(pod_networks(&pods, first)));
    }
    ranges.extend(parse(service_networks(&services, first)));
    Ok(ranges)
}
