//! A signed release, as programs of others read it: openssl, Helm and gpgv with keys of both kinds. Suite `published` installs from a registry
//! and from a medium what is signed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

use super::fixture::{AirgapFixture, REGISTRY, text};
use crate::{
    report::{Checked, Report},
    sh, signing_key,
    test_env::TestEnv,
};

/// The repository below which the signed release is pushed, so that other checks count what is theirs alone.
const PATH: &str = "signed";

/// A copy of the release, signed with a new key.
pub(super) struct Signed {
    pub(super) dist: PathBuf,
    /// The public key.
    pub(super) key: PathBuf,
    is_ed25519: bool,
}

pub(super) fn run(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    let p256 = report.check("a release is signed with a key of openssl", || {
        Signed::new(env, fixture, false)
    })?;
    let ed25519 = report.check("a release is signed with an Ed25519 key", || {
        Signed::new(env, fixture, true)
    })?;
    report.check("openssl alone verifies the checksums", || {
        verify_sums(&p256)?;
        verify_sums(&ed25519)
    })?;
    report.check(
        "Helm and gpgv verify every chart, and refuse a changed one",
        || {
            verify_charts(env, fixture, &p256)?;
            verify_charts(env, fixture, &ed25519)
        },
    )
}

impl Signed {
    pub(super) fn new(
        env: &TestEnv,
        fixture: &AirgapFixture,
        is_ed25519: bool,
    ) -> anyhow::Result<Self> {
        let name = if is_ed25519 { "ed25519" } else { "p256" };
        let dist = env.dir.join(format!("signed-{name}"));
        sh::copy_directory(&env.dist, &dist)?;
        let (secret, key) = signing_key::make(env, name, is_ed25519)?;
        let dir = text(&dist)?;
        // The release of a suite may be one of a checkout with changes.
        let sign = ["sign", "--allow-dirty", "--dist", dir, "--key"];
        fixture.xtask(&[&sign[..], &[text(&secret)?]].concat())?;
        let verify = ["verify", "--allow-dirty", dir, "--key", text(&key)?];
        let said = fixture.xtask(&verify)?;
        ensure!(said.contains("\nsigned: "), "{said}");
        Ok(Self {
            dist,
            key,
            is_ed25519,
        })
    }

    /// Sends the release with its signatures to the registry.
    pub(super) fn push(&self, fixture: &AirgapFixture) -> anyhow::Result<()> {
        let to = format!("{REGISTRY}/{PATH}");
        let (dist, key) = (text(&self.dist)?, text(&self.key)?);
        fixture.xtask(&["airgap", "push", &to, "--dist", dist, "--key", key])?;
        Ok(())
    }

    fn charts(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut charts = Vec::new();
        for dir in fs::read_dir(self.dist.join("charts/assets"))? {
            for file in fs::read_dir(dir?.path())? {
                let path = file?.path();
                charts.extend(
                    path.extension()
                        .is_some_and(|end| end == "tgz")
                        .then_some(path),
                );
            }
        }
        ensure!(charts.len() == 6, "charts: {charts:?}");
        Ok(charts)
    }

    fn keyring(&self) -> PathBuf {
        self.dist.join("charts/keyring.gpg")
    }
}

/// Returns an image of the signed release in the registry, by its path there.
pub(super) fn reference(name: &str) -> String {
    format!("{REGISTRY}/{PATH}/{name}")
}

fn verify_sums(signed: &Signed) -> anyhow::Result<()> {
    let signature = signed.dist.with_extension("sig");
    let mut decode = Command::new("openssl");
    decode.args(["base64", "-d", "-in"]);
    decode.arg(signed.dist.join("SHA256SUMS.sig"));
    sh::run(decode.arg("-out").arg(&signature))?;
    let verify = |file: &Path| {
        let mut verify = Command::new("openssl");
        if signed.is_ed25519 {
            verify.args(["pkeyutl", "-verify", "-pubin", "-rawin", "-inkey"]);
            verify.arg(&signed.key).arg("-sigfile").arg(&signature);
            verify.arg("-in").arg(file);
        } else {
            verify.args(["dgst", "-sha256", "-verify"]);
            verify.arg(&signed.key).arg("-signature").arg(&signature);
            verify.arg(file);
        }
        sh::run(&mut verify)
    };
    verify(&signed.dist.join("SHA256SUMS"))?;
    let other = verify(&signed.dist.join("release.json"));
    ensure!(other.is_err(), "openssl accepts another file");
    Ok(())
}

fn verify_charts(env: &TestEnv, fixture: &AirgapFixture, signed: &Signed) -> anyhow::Result<()> {
    let helm = |chart: &Path| {
        let mut helm = Command::new(env.bin.join("helm"));
        helm.args(["verify", "--keyring"]).arg(signed.keyring());
        helm.arg(chart);
        helm
    };
    let charts = signed.charts()?;
    for chart in &charts {
        let said = sh::run(&mut helm(chart))?;
        ensure!(said.contains("Signed by: multus-rs releases"), "{said}");
        let mut gpgv = Command::new("gpgv");
        gpgv.arg("--keyring").arg(signed.keyring());
        sh::run(gpgv.arg(chart.with_extension("tgz.prov")))?;
    }
    let changed = &charts[0];
    let sound = fs::read(changed)?;
    let mut bytes = sound.clone();
    // The header's name of the operating system, which no reader looks at.
    bytes[9] ^= 1;
    fs::write(changed, bytes)?;
    fixture.ensure_fails(&mut helm(changed), "sha256 sum does not match")?;
    let mut verify = fixture.xtask_command(&["verify", text(&signed.dist)?], false);
    fixture.ensure_fails(&mut verify, "tgz: its sha256 is")?;
    fs::write(changed, sound)?;
    Ok(())
}
