//! A delta between a former release and this one: it is small, and applying it gives the full archive bit by bit.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;
use serde_json::Value;

use super::{
    agent::Agent,
    fixture::{AirgapFixture, text},
};
use crate::{
    report::{CheckFailed, Report},
    sh,
    test_env::{TestEnv, arch},
};

#[expect(
    clippy::too_many_lines,
    reason = "each check uses the result of the one before"
)]
pub(super) fn run(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let (former, delta) = (env.dir.join("former"), env.dir.join("delta"));
    let packed = format!("multus-airgap-images-{}.tar.zst", arch());
    let piece = delta.join(format!("multus-airgap-delta-{}.tar.zst", arch()));
    let full = env.dist.join("airgap").join(&packed);
    report.check("a former release with another daemon is built", || {
        make_former(env, fixture, &former)
    })?;
    report.check("the delta from it to this release is small", || {
        let (base, out) = (text(&former)?, text(&env.dist)?);
        let output = fixture.xtask(&[
            "airgap",
            "bundle",
            "--base",
            base,
            "--arch",
            arch(),
            "--out",
            out,
            "--delta",
            text(&delta)?,
            "--json",
        ])?;
        let (delta_size, full_size) = (fs::metadata(&piece)?.len(), fs::metadata(&full)?.len());
        ensure!(
            delta_size * 4 < full_size,
            "{delta_size} bytes of {full_size}"
        );
        let files: Vec<Value> = serde_json::from_str(&output)?;
        let is_delta = |one: &Value| {
            one["path"]
                .as_str()
                .is_some_and(|path| piece == Path::new(path))
                && one["size"] == delta_size
        };
        ensure!(files.iter().any(is_delta), "{files:?} has no such archive");
        Ok(())
    })?;
    report.check("both verify commands take the delta", || {
        let checked = fixture.xtask(&["airgap", "verify", text(&delta)?])?;
        ensure!(
            checked.contains("multus-airgap-delta-") && checked.contains("airgap apply"),
            "{checked}"
        );
        let mut verify = fixture.node.command(env.program("multus-distro"));
        let checked = sh::run(verify.args(["verify", text(&delta)?]))?;
        ensure!(checked.contains("docker.io/multusrs/multus:v"), "{checked}");
        Ok(())
    })?;
    let apply = |base: &Path, piece: &Path, out: &Path| {
        let args = [
            "airgap",
            "apply",
            "--base",
            text(base)?,
            text(piece)?,
            "--out",
            text(out)?,
        ];
        Ok::<_, anyhow::Error>(args.map(str::to_owned))
    };
    let base = former.join("airgap").join(&packed);
    report.check(
        "applying the delta gives the release's archives, lists and checksums bit by bit",
        || {
            let out = env.dir.join("applied");
            let args = apply(&base, &delta, &out)?;
            fixture.xtask(&args.each_ref().map(String::as_str))?;
            for ending in ["zst", "gz"] {
                let name = packed.replace("zst", ending);
                let expected = fs::read(env.dist.join("airgap").join(&name))?;
                ensure!(
                    fs::read(out.join(&name))? == expected,
                    "{name} has different bytes"
                );
            }
            let sums = format!("sha256sum-{}.txt", arch());
            let expected = env.read(&format!("airgap/{sums}"))?;
            ensure!(fs::read(out.join(&sums))? == expected, "{sums} differs");
            fixture.xtask(&["airgap", "verify", text(&out)?]).map(drop)
        },
    )?;
    report.check("images install takes what was applied", || {
        let agent = Agent::new("k3s", "k3s-applied");
        let from = env.dir.join("applied");
        sh::run(&mut agent.install_command(env, fixture, &from)?)?;
        let installed = fs::read(fixture.node.path(&agent.path(&packed)))?;
        ensure!(installed == fs::read(&full)?, "it has different bytes");
        Ok(())
    })?;
    report.check("a wrong base and a damaged delta are refused", || {
        let out = env.dir.join("never");
        let args = apply(&full, &piece, &out)?;
        fixture.ensure_refused(
            &args.each_ref().map(String::as_str),
            "the delta is for the archive",
        )?;
        let damaged = env.dir.join("damaged.tar.zst");
        let bytes = fs::read(&piece)?;
        fs::write(&damaged, &bytes[..bytes.len() - 100])?;
        let args = apply(&base, &damaged, &out)?;
        fixture.ensure_refused(&args.each_ref().map(String::as_str), "damaged")?;
        ensure!(!out.exists(), "a file was written");
        Ok(())
    })?;
    report.check(
        "verify names the first byte in which two releases differ",
        || {
            let other = env.dir.join("other-release");
            sh::run(
                Command::new("cp")
                    .arg("--recursive")
                    .args([&env.dist, &other]),
            )?;
            let program: PathBuf = other.join("bin").join(arch()).join("multus-shim");
            let mut bytes = fs::read(&program)?;
            let at = bytes.len() / 2;
            bytes[at] ^= 0xff;
            fs::write(&program, bytes)?;
            let args = ["verify", "--explain", text(&env.dist)?, text(&other)?];
            fixture.ensure_refused(&args, &format!("bin/{}/multus-shim at byte {at}:", arch()))?;
            let same =
                fixture.xtask(&["verify", "--explain", text(&env.dist)?, text(&env.dist)?])?;
            ensure!(same.starts_with("the same"), "{same}");
            Ok(())
        },
    )
}

/// Builds a release of the same programs, but for a few bytes at the end of the daemon.
fn make_former(env: &TestEnv, fixture: &AirgapFixture, former: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(former)?;
    let (from, to) = (env.dist.join("bin"), former.join("bin"));
    sh::run(Command::new("cp").arg("--recursive").args([&from, &to]))?;
    let daemon = to.join(arch()).join("multus-daemon");
    let mut daemon = fs::OpenOptions::new().append(true).open(daemon)?;
    daemon.write_all(b"another time")?;
    let out = text(former)?;
    fixture.xtask(&["images", "--arch", arch(), "--out", out])?;
    fixture
        .xtask(&["airgap", "bundle", "--arch", arch(), "--out", out])
        .map(drop)
}
