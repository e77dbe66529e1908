//! Signatures of files, images and charts, as the real cosign reads them: in its present form and in the older one.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use super::{
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
    signed::{Signed, reference},
};
use crate::{
    report::{Checked, Report},
    sh, signing_key,
    test_env::{TestEnv, arch},
};

pub(super) fn run(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    for is_ed25519 in [false, true] {
        let kind = if is_ed25519 { "Ed25519" } else { "ECDSA P-256" };
        let signed = report.check(&format!("a release is signed and pushed ({kind})"), || {
            let signed = Signed::new(env, fixture, is_ed25519)?;
            signed.push(fixture)?;
            login(env, fixture)?;
            Ok(signed)
        })?;
        report.check(
            &format!("cosign verifies files and their provenance ({kind})"),
            || blobs(env, fixture, &signed),
        )?;
        report.check(
            &format!("cosign verifies images and charts in a registry ({kind})"),
            || images(env, fixture, &signed),
        )?;
    }
    Ok(())
}

/// Returns cosign on the node, with the registry's login and without a network.
fn cosign(env: &TestEnv, fixture: &AirgapFixture, args: &[&str]) -> Command {
    let mut command = fixture.node.command(env.bin.join("cosign"));
    command
        .args(args)
        .env("HOME", &env.dir)
        .env("DOCKER_CONFIG", env.dir.join("cosign"));
    command
}

fn login(env: &TestEnv, fixture: &AirgapFixture) -> anyhow::Result<()> {
    let args = ["login", REGISTRY, "--username", USER, "--password-stdin"];
    sh::feed(&mut cosign(env, fixture, &args), PASSWORD.as_bytes()).map(drop)
}

/// The arguments of every check: the key alone decides.
fn with_key(key: &Path) -> anyhow::Result<[&str; 3]> {
    Ok(["--key", text(key)?, "--insecure-ignore-tlog=true"])
}

fn blobs(env: &TestEnv, fixture: &AirgapFixture, signed: &Signed) -> anyhow::Result<()> {
    let path = |name: &str| text(&signed.dist.join(name)).map(str::to_owned);
    let (sums, bundle) = (path("SHA256SUMS")?, path("SHA256SUMS.sigstore.json")?);
    let (signature, other) = (path("SHA256SUMS.sig")?, path("release.json")?);
    let run = |command: &str, args: &[&str]| {
        let args = [&[command], &with_key(&signed.key)?[..], args].concat();
        anyhow::Ok(cosign(env, fixture, &args))
    };
    sh::run(&mut run("verify-blob", &["--bundle", &bundle, &sums])?)?;
    sh::run(&mut run(
        "verify-blob",
        &["--signature", &signature, &sums],
    )?)?;
    let mut refused = run("verify-blob", &["--bundle", &bundle, &other])?;
    fixture.ensure_fails(&mut refused, "failed to verify signature")?;
    let mut statements = fs::read_dir(signed.dist.join("provenance"))?;
    let statement = statements.next().context("there is a statement")??.path();
    let statement = ["--type", "slsaprovenance1", "--bundle", text(&statement)?];
    let shim = path(&format!("bin/{}/multus-shim", arch()))?;
    for file in [&shim, &sums, &other] {
        let args = [&statement[..], &[file]].concat();
        sh::run(&mut run("verify-blob-attestation", &args)?)?;
    }
    let args = [&statement[..], &[&signature]].concat();
    let mut refused = run("verify-blob-attestation", &args)?;
    fixture.ensure_fails(&mut refused, "do not match digests in statement")
}

fn images(env: &TestEnv, fixture: &AirgapFixture, signed: &Signed) -> anyhow::Result<()> {
    let version = env.version()?;
    let image = reference(&format!("multusrs/multus:v{version}"));
    let chart = reference(&format!("charts/rke2-multus:{version}"));
    let run = |key: &Path, command: &str, args: &[&str]| {
        let fixed = [command, "--allow-http-registry"];
        let args = [&fixed, &with_key(key)?[..], args].concat();
        anyhow::Ok(cosign(env, fixture, &args))
    };
    for name in [&image, &chart] {
        // The bundle of cosign 3, then the tag of cosign 1 and 2.
        let said = sh::run(&mut run(&signed.key, "verify", &[name])?)?;
        ensure!(
            said.contains("https://sigstore.dev/cosign/sign/v1"),
            "{said}"
        );
        let older = ["--new-bundle-format=false", name];
        let said = sh::run(&mut run(&signed.key, "verify", &older)?)?;
        ensure!(said.contains("cosign container image signature"), "{said}");
    }
    let provenance = ["--type", "slsaprovenance1", &image];
    sh::run(&mut run(&signed.key, "verify-attestation", &provenance)?)?;
    let stranger = signing_key::make(env, "stranger", true)?.1;
    for args in [
        &[image.as_str()][..],
        &["--new-bundle-format=false", &image],
    ] {
        let refused = sh::run(&mut run(&stranger, "verify", args)?);
        ensure!(refused.is_err(), "another key is accepted: {refused:?}");
    }
    Ok(())
}
