//! An operator without a checkout: a copy of `airgap/` and the program in it are all there is. It checks the medium and the release, and
//! pushes to the registry as docs/airgap.md says. What it refuses is in its own tests.

use anyhow::ensure;

use super::fixture::{AirgapFixture, PASSWORD, text};
use crate::{
    pages::Reader,
    report::{Checked, Report},
    sh,
    test_env::{TestEnv, arch},
};

/// The medium's directory and the registry, in place of those of the page.
const PAGE_VALUES: &[(&str, &str)] = &[
    ("/media/airgap", "medium"),
    (
        "registry.example:5000/team --user me",
        "127.0.0.1:5000/team --user e2e --plain-http",
    ),
];

pub(super) fn run(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    let medium = env.dir.join("medium");
    report.check(
        "the program on the medium starts, and verifies the medium and the release",
        || {
            sh::copy_directory(env.dist.join("airgap"), &medium)?;
            let program = medium.join(format!("multus-airgap-{}", arch()));
            let airgap = |args: &[&str]| sh::run(fixture.node.command(&program).args(args));
            let version = airgap(&["--version"])?;
            let expected = format!("multus-airgap v{} ({}, ", env.version()?, env.commit()?);
            ensure!(version.starts_with(&expected), "{version}");
            let checked = airgap(&["verify", text(&medium)?])?;
            let archive = format!("multus-airgap-images-{}.tar: 1 image", arch());
            ensure!(checked.contains(&archive), "{checked}");
            let checked = airgap(&["verify", "--allow-dirty", text(&env.dist)?])?;
            ensure!(checked.trim().ends_with("is undamaged"), "{checked}");
            Ok(())
        },
    )?;
    report.check("docs/airgap.md: medium and registry", || {
        let reader = Reader::new(env, "airgap")?.with_values(PAGE_VALUES);
        reader.link("medium", &medium)?;
        for step in ["medium", "push"] {
            reader.follow("docs/airgap.md", step, || {
                let mut shell = fixture.node.command("bash");
                shell
                    .env("DOCKER_CONFIG", fixture.node.dir.join("no-logins"))
                    .env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
                shell
            })?;
        }
        reader.ensure_all_followed()
    })
}
