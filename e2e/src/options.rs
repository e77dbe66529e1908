//! The command line of `e2e`: its suites and their options. `cargo xtask` has this file as a module, too, and passes words on as they are.

use std::path::PathBuf;

/// A suite, by its name on the command line; cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// `multus-distro install` on the distros' units, with a real systemd
    Service,
    /// Charts and bindata with real Helm and Go
    Chart,
    /// Archives and registries with containerd's empty stores, skopeo and Helm
    Airgap,
    /// Signatures of a release, read by the real cosign, which takes minutes to build
    Cosign,
    /// Shim and daemon with real plugins in network namespaces and a real API server
    Netns,
    /// Our CNI plugins against the reference's: its own suites, equal kernel state, mixed lives, kills
    Plugins,
    /// A full node: bursts, hung plugins, a hung API server, a long journal, a silent runtime
    Load,
    /// Every rule of the multiplexer as a black-box test, of our programs or of other ones
    Rules,
    /// Killed processes, a failing API server, a full disk, a wrong clock
    Faults,
    /// Discovery of the runtime's directories on each kind of node, also when they change
    Discover,
    /// The image and the daemon on both versions of containerd, through CRI
    Cri,
    /// Networks with devices, on a real kubelet with a device plugin and a DRA driver
    Devices,
    /// A cluster of different kinds of nodes
    Cluster,
    /// Real K3s: servers and agents, its installation of charts, its upgrades, its own scripts
    K3s,
    /// Real RKE2: a server and an agent, with static pods of programs that are at hand
    Rke2,
    /// A release and its successor, published to a registry and installed from it, and from a medium without a network
    Published,
    /// Nodes that meet over a VPN: tailscale, flannel and a cluster on a LAN that is blocked
    Vpn,
    /// Addresses for the whole cluster: nodes that compete for them while everything fails
    Ipam,
    /// Hundreds of daemons and one API server, whose load is measured
    Scale,
    /// Upgrade from the published chart and from upstream's manifests to ours, and back, under running pods
    Upgrade,
    /// Node Feature Discovery makes labels of Nodes out of what daemons publish
    Features,
    /// The end-to-end tests of whereabouts, on nodes whose daemons give the addresses of its pools
    Whereabouts,
    /// `KubeVirt`'s webhooks take machines, its controller plugs networks into running machines and moves them
    Kubevirt,
    /// Times of our programs, upstream's programs and the plugins alone; `cargo xtask bench` is the same
    Bench,
}

#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct Options {
    /// Release to test; `cargo xtask` makes one unless set
    #[arg(long, value_name = "DIR")]
    pub(crate) dist: Option<PathBuf>,
    /// Install missing Debian packages and build missing programs
    #[arg(long)]
    pub(crate) install: bool,
    /// service, netns, plugins, rules, faults: test the programs of this architecture, emulated
    #[arg(long, value_parser = ["amd64", "arm64", "arm"])]
    pub(crate) arch: Option<String>,
    /// rules, bench: test the programs in this directory instead of, or next to, the release's; ipam: a node whose daemon has ended gets that in this directory and the release's in turn, as while a release replaces another one and is taken back
    #[arg(long, value_name = "DIR")]
    pub(crate) peer: Option<PathBuf>,
    /// rules: cases that the peer is known to fail, in the form of e2e/DIFFERENCES.md; without it those of upstream Multus
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(crate) differences: Option<PathBuf>,
    /// rules: exchange the release's programs and the peer's while pods run
    #[arg(long, requires = "peer")]
    pub(crate) exchange: bool,
    /// rules: print which case shows which rule, and test nothing
    #[arg(long, conflicts_with_all = ["dist", "install"])]
    pub(crate) table: bool,
    /// rules: without the system calls that the oldest supported kernel does not have
    #[arg(long)]
    pub(crate) old_kernel: bool,
    /// rules, load, plugins, ipam, k3s, rke2, upgrade, vpn: only the case of this name, or cases whose names contain this; those of ipam are addresses, faults, moves, backup, reference and at-once
    #[arg(long, value_name = "TEXT")]
    pub(crate) case: Option<String>,
    /// plugins: test the plugins in this directory instead of the release's
    #[arg(long, value_name = "DIR", conflicts_with = "dist")]
    pub(crate) plugins: Option<PathBuf>,
    /// k3s, rke2: the directory with K3s and RKE2, or a release of K3s by the name of its lock in e2e/k3s; that of `MULTUS_K3S` unless set
    #[arg(long, value_name = "DIR|VERSION")]
    pub(crate) k3s: Option<PathBuf>,
    /// k3s, rke2: write each case that passes into docs/contributing/distros.md; ipam: write what was found into docs/contributing/addresses.md
    #[arg(long)]
    pub(crate) record: bool,
    /// chart: also a chart of each kind that was ever published, in every order; faults: ten times as many kills, and a machine in a pod; ipam: a hundred times as many addresses, on eight nodes, and fifty nodes at once; plugins: fifty times as many, and the slow specs of dhcp; load: a runtime that is silent for two minutes; scale: idle for longer than a watch lasts
    #[arg(long)]
    pub(crate) long: bool,
    /// faults, plugins, ipam: repeat the random choices of the run that printed this seed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// faults: run one part alone
    #[arg(long, value_enum)]
    pub(crate) part: Option<Part>,
    /// scale: number of nodes, each with ten pods
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) nodes: usize,
    #[command(flatten)]
    pub(crate) bench: BenchOptions,
}

/// A part of `faults`, by what fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Kill shim, daemon and plugins
    Kill,
    /// An API server that is unreachable, silent, slow or refuses
    Server,
    /// A full disk, a deleted directory, files with wrong times
    Files,
    /// A wrong wall clock of the daemon
    Clock,
    /// A thousand kills of the daemon beside a machine that runs in a pod; without a part only with --long
    Guest,
}

#[derive(Debug, Default, clap::Args)]
#[group(id = "bench")]
pub(crate) struct BenchOptions {
    /// bench: number of rounds; by default 7, 5 with --cni-plugins, or 3 with --short or --cluster
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// bench: measure a real node with kubelet and containerd instead of the daemon alone
    #[arg(long)]
    pub(crate) cluster: bool,
    /// bench: measure the CNI plugins by themselves, against the reference's
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) cni_plugins: bool,
    /// bench: few rounds, and verdicts only on rows that do not depend on the machine; fails above twice a target
    #[arg(long)]
    pub(crate) short: bool,
    /// bench: write the rows in JSON to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
