//! Level `airgap`: what carries images and charts to where there is no network, on the programs that read it: a registry with a
//! login, containerd of both generations with empty stores, skopeo, Helm.
//!
//! Everything is done with `cargo xtask`'s own program and with the files of the release; nothing is taken from a library.

mod agent;
mod copy;
mod cutting;
mod deltas;
mod installed;
mod pulled;
mod registry;
mod scene;
mod sets;
mod stores;
mod tampered;

use self::scene::Scene;
use crate::{
    report::{Ended, Report},
    tools::{Module, Needs},
    workplace::Workplace,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: &[
        ("busybox", "busybox-static"),
        ("containerd", "containerd"),
        ("curl", "curl"),
        ("docker-registry", "docker-registry"),
        ("htpasswd", "apache2-utils"),
        ("ip", "iproute2"),
        ("runc", "runc"),
        ("skopeo", "skopeo"),
        ("sysctl", "procps"),
        ("umoci", "umoci"),
        ("zstd", "zstd"),
    ],
    modules: &[Module::Containerd, Module::Helm],
};

pub(crate) fn run(work: &Workplace, report: &mut Report) -> Result<(), Ended> {
    let scene = report.check("a registry with a login answers", || Scene::start(work))?;
    sets::run(work, &scene, report)?;
    stores::import(work, &scene, report)?;
    installed::run(work, &scene, report)?;
    tampered::run(work, &scene, report)?;
    registry::run(work, &scene, report)?;
    stores::pull(work, &scene, report)?;
    pulled::run(work, &scene, report)?;
    deltas::run(work, &scene, report)
}
