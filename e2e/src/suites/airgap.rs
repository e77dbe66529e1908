//! Suite `airgap`: what carries images and charts to where there is no network, on the programs that read it: a registry with a
//! login, containerd of both generations with empty stores, skopeo, Helm.
//!
//! Everything is done with `cargo xtask`'s own program and with the files of the release; nothing is taken from a library.

mod agent;
mod copy;
mod deltas;
mod fixture;
mod flaky_proxy;
mod installed;
mod pulled;
mod registry;
mod sets;
mod stores;
mod tampered;

use self::fixture::AirgapFixture;
use crate::{
    programs::{Module, Needs},
    report::{CheckFailed, Report},
    test_env::TestEnv,
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

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    let fixture = report.check("a registry with a login answers", || {
        AirgapFixture::start(env)
    })?;
    sets::run(env, &fixture, report)?;
    stores::import(env, &fixture, report)?;
    installed::run(env, &fixture, report)?;
    tampered::run(env, &fixture, report)?;
    registry::run(env, &fixture, report)?;
    stores::pull(env, &fixture, report)?;
    pulled::run(env, &fixture, report)?;
    deltas::run(env, &fixture, report)
}
