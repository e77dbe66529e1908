//! Suite `airgap`: archives and registries for clusters without a network, read by real programs: a registry with a login, both
//! versions of containerd with empty stores, skopeo, podman, Helm, and the libraries of K3s' and RKE2's agents.
//!
//! The suite runs the program of `cargo xtask` and `multus-airgap`, and uses the files of the release; it calls no library of ours.

mod cosign;
mod exports;
mod fixture;
mod images;
mod inside;
mod operator;
mod published;
mod registry;
mod signed;
mod stores;

use self::fixture::AirgapFixture;
use crate::{
    programs::{Module, Needs},
    report::{Checked, Report},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "busybox containerd curl docker-registry git gpgv htpasswd ip openssl podman runc skopeo sysctl umoci",
    modules: &[
        Module::Containerd,
        Module::Helm,
        Module::MirrorReader,
        Module::Oras,
        Module::SbomReader,
    ],
};

/// The programs of the checks with cosign, which takes minutes to build.
pub(crate) const COSIGN_NEEDS: Needs = Needs {
    debian: "busybox docker-registry curl htpasswd ip openssl sysctl",
    modules: &[Module::Cosign],
};

/// Suite `cosign`: signatures in a registry and of files, read by the real cosign.
pub(crate) fn run_cosign(env: &TestEnv, report: &mut Report) -> Checked {
    let fixture = report.check("a registry with a login answers", || {
        AirgapFixture::start(env)
    })?;
    cosign::run(env, &fixture, report)
}

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let fixture = report.check("a registry with a login answers", || {
        AirgapFixture::start(env)
    })?;
    images::run(env, report)?;
    stores::import(env, &fixture, report)?;
    registry::run(env, &fixture, report)?;
    inside::run(env, &fixture, report)?;
    stores::pull(env, &fixture, report)?;
    exports::run(env, &fixture, report)?;
    operator::run(env, &fixture, report)?;
    published::run(env, &fixture, report)?;
    signed::run(env, &fixture, report)
}
