//! The programs of a release: how cargo builds them, what they are called, and how large they may be.

use anyhow::Context as _;
pub(crate) use release::arch::Binaries;

use crate::arch::{Arch, Facts};

pub(crate) struct CargoRun {
    pub(crate) profile: &'static str,
    /// Packages and their programs.
    pub(crate) programs: &'static [(&'static str, &'static str)],
}

/// Separate runs, because cargo unites the features of all packages that it builds at once, and the nodes' programs must not get the
/// features that the kubectl plugin and `multus-airgap` need on a workstation. These two share a run, in which one links while the other
/// compiles.
pub(crate) const CARGO_RUNS: &[CargoRun] = &[
    CargoRun {
        profile: "release",
        programs: &[("daemon", "multus-daemon"), ("distro", "multus-distro")],
    },
    CargoRun {
        profile: "shim",
        programs: &[("shim", "multus-shim"), ("plugins", "multus-cni-plugins")],
    },
    CargoRun {
        profile: "release",
        programs: &[("kubectl", "kubectl-multus"), ("airgap", "multus-airgap")],
    },
];

/// Bytes that the CNI plugins may have: they and the daemon share an image of at most 12 MB.
const PLUGINS_BUDGET: u64 = 2_500_000;
/// Bytes that the kubectl plugin may have; it is not started once per pod, as the shim is. Moving the pools of whereabouts and
/// asking all nodes for their networks took it over 8 MB, and the report of a cluster with its page over 8.5 MB.
pub(crate) const KUBECTL_BUDGET: u64 = 8_800_000;
/// Bytes that the program for airgap archives may have, with TLS and HTTP in it.
const AIRGAP_BUDGET: u64 = 8_000_000;

/// Returns a run of cargo that builds a program alone.
pub(crate) fn run_of(program: &str) -> anyhow::Result<CargoRun> {
    let mut runs = CARGO_RUNS.iter();
    let found = runs.find_map(|&CargoRun { profile, programs }| {
        let at = programs.iter().position(|(_, name)| *name == program)?;
        let programs = &programs[at..=at];
        Some(CargoRun { profile, programs })
    });
    found.with_context(|| format!("no run of cargo builds {program}"))
}

/// Returns the names of the programs, which are the same for every architecture.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let programs = CARGO_RUNS.iter().flat_map(|run| run.programs);
    programs.map(|(_, name)| *name)
}

/// Returns how many bytes a program may have, or `None` when it has no limit.
pub(crate) fn budget(arch: Arch, program: &str) -> Option<u64> {
    match program {
        "multus-shim" => Some(Facts::of(arch).shim_budget),
        "multus-cni-plugins" => Some(PLUGINS_BUDGET),
        "kubectl-multus" => Some(KUBECTL_BUDGET),
        "multus-airgap" => Some(AIRGAP_BUDGET),
        _ => None,
    }
}
