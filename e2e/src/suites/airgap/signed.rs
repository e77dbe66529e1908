//! A signed release, as programs of others read it: openssl, Helm and gpgv with keys of both kinds, and `multus-distro` on a node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

use super::fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text};
use crate::{
    report::{CheckFailed, Report},
    sh, signing_key,
    test_env::{TestEnv, arch},
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

pub(super) fn run(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
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
    )?;
    report.check("Helm pulls a chart from a registry and verifies it", || {
        p256.push(fixture)?;
        pull_chart(env, fixture, &p256)
    })?;
    report.check(
        "with a key multus-distro installs what its owner signed, and nothing else",
        || install(env, fixture, &p256, &ed25519),
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
        let mut copy = Command::new("cp");
        sh::run(copy.arg("--recursive").args([&env.dist, &dist]))?;
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

fn pull_chart(env: &TestEnv, fixture: &AirgapFixture, signed: &Signed) -> anyhow::Result<()> {
    let logins = env.dir.join("helm-signed.json");
    let helm = |args: &[&str], input: &str| {
        let mut command = fixture.node.command(env.bin.join("helm"));
        command.args(args).arg("--registry-config").arg(&logins);
        sh::feed(&mut command, input.as_bytes())
    };
    helm(
        &[
            "registry",
            "login",
            REGISTRY,
            "--plain-http",
            "--username",
            USER,
            "--password-stdin",
        ],
        PASSWORD,
    )?;
    let to = env.dir.join("pulled-signed");
    fs::create_dir_all(&to)?;
    let chart = format!("oci://{}", reference("charts/k3s-multus"));
    let keyring = signed.keyring();
    let said = helm(
        &[
            "pull",
            &chart,
            "--plain-http",
            "--version",
            &env.version()?,
            "--verify",
            "--keyring",
            text(&keyring)?,
            "--destination",
            text(&to)?,
        ],
        "",
    )?;
    ensure!(said.contains("Signed by: multus-rs releases"), "{said}");
    Ok(())
}

fn install(
    env: &TestEnv,
    fixture: &AirgapFixture,
    signed: &Signed,
    other: &Signed,
) -> anyhow::Result<()> {
    let data = env.dir.join("signed-data");
    let command = |dist: &Path, key: &Path| -> anyhow::Result<Command> {
        let mut command = Command::new(env.program("multus-distro"));
        let airgap = dist.join("airgap");
        command.args(["images", "install", text(&airgap)?, "--distro", "k3s"]);
        command.args(["--data-dir", text(&data)?, "--key", text(key)?]);
        Ok(command)
    };
    let signature = format!("sha256sum-{}.txt.sig", arch());
    fixture.ensure_fails(
        &mut command(&env.dist, &signed.key)?,
        &format!("{signature} is missing"),
    )?;
    let expected = "it is not by this key over these bytes";
    fixture.ensure_fails(&mut command(&signed.dist, &other.key)?, expected)?;
    ensure!(!data.exists(), "something was installed");
    sh::run(&mut command(&signed.dist, &signed.key)?)?;
    let images = fs::read_dir(data.join("agent/images"))?;
    ensure!(images.count() == 1, "one archive is installed");
    Ok(())
}
