//! The report on the VPN of this node: asks its program and the kernel, and reads the files of `vpn run`.

use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use node::root::Root;
use vpn::{
    Prefix,
    kernel::Netlink,
    provider::{Provider as _, Settings},
    state::State,
    status::{Report, Sources},
    tailscale::{SystemRunner, Tailscale},
};

use crate::{
    config,
    node_vpn::files::VpnFiles,
    program,
    service::{self, Service},
};

/// K3s' and RKE2's default networks of pods and services.
pub(crate) const CLUSTER_CIDR: &str = "10.42.0.0/16";
pub(crate) const CLUSTER_CIDR_IPV6: &str = "fd00:42::/56";
const SERVICE_CIDR: &str = "10.43.0.0/16";

/// Returns the report, and the state that `vpn run` wrote last.
pub(crate) fn report(root: &Root) -> anyhow::Result<(Report, Option<State>)> {
    let files = VpnFiles::new(root);
    let provider = Tailscale::new(SystemRunner, files.run_dir());
    let status = provider.status();
    let settings = if status.is_ok() {
        provider.settings().unwrap_or_default()
    } else {
        Settings::default()
    };
    let network = Netlink::open()
        .and_then(|mut netlink| netlink.network())
        .context("cannot read the interfaces of this node")?;
    let subnets = files.note()?.map(|note| note.subnets).unwrap_or_default();
    let report = Report::new(&Sources {
        status: status.as_ref(),
        settings: &settings,
        record: &files.record()?,
        cluster: &cluster(root, &files)?,
        subnets: &subnets,
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
    let service = services.first();
    let args = service.map(Service::args).unwrap_or_default();
    let variable = |name: &str| service?.variable(name);
    let mut ranges = files.networks()?;
    let distro = program::distro(&args, None);
    let listed = |name: &str, default: &str| -> Vec<Prefix> {
        let value = distro.as_ref().ok().and_then(|distro| {
            let file = program::config_file(*distro, &args, variable);
            let settings = config::read(root, Path::new(&file)).ok()?;
            program::setting(*distro, &args, variable, &settings, (name, None))
        });
        let value = value.unwrap_or_else(|| default.to_owned());
        config::split(&value)
            .filter_map(|text| text.parse().ok())
            .collect()
    };
    if ranges.is_empty() {
        ranges = listed("cluster-cidr", CLUSTER_CIDR);
    }
    ranges.extend(listed("service-cidr", SERVICE_CIDR));
    Ok(ranges)
}
