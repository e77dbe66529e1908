//! Damaged copies: verify and install refuse each one and name the file.

use std::{fs, process::Command};

use anyhow::{Context as _, ensure};

use super::{
    agent::Agent,
    copy::{Copy, largest, tar},
    fixture::{AirgapFixture, text},
};
use crate::{
    report::{CheckFailed, Report},
    sh,
    test_env::{TestEnv, arch},
};

pub(super) fn run(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    report.check("verify accepts an undamaged copy", || {
        let copy = Copy::new(env)?;
        fixture.xtask(&["verify", text(&copy.dir)?]).map(drop)
    })?;
    let agent = Agent::new("k3s", "k3s-refused");
    let mut refused = |what: &str, errors: Errors, damage: Damage| {
        report.check(&format!("a damaged copy is refused: {what}"), || {
            let copy = Copy::new(env)?;
            damage(&copy)?;
            fixture.ensure_refused(&["verify", text(&copy.dir)?], &errors(&copy)[0])?;
            let mut install = agent.install_command(env, fixture, &copy.dir)?;
            fixture.ensure_fails(&mut install, &errors(&copy)[1])?;
            let there = agent.images(fixture)?;
            ensure!(there.is_empty(), "{there:?} was installed");
            Ok(())
        })
    };
    let archive: Errors = |copy| [copy.archive.clone(), copy.archive.clone()];
    refused("truncated", archive, half)?;
    refused("truncated, with matching sums", archive, |copy| {
        half(copy)?;
        copy.rewrite_sums()
    })?;
    refused("a blob is missing", archive, |copy| {
        copy.repack(|plain| {
            let blob = largest(plain)?;
            tar(&["--delete", &blob], plain)
        })
    })?;
    refused("a sparse file inside", archive, |copy| {
        copy.repack(|plain| {
            let holes = plain.with_file_name("../holes");
            fs::File::create(&holes)?.set_len(1 << 20)?;
            let (directory, name) = (holes.parent(), holes.file_name());
            let (directory, name) = (directory.context("no directory")?, name.context("no name")?);
            let mut command = Command::new("tar");
            command.args(["--append", "--sparse", "--file"]).arg(plain);
            sh::run(command.arg("--directory").arg(directory).arg(name)).map(drop)
        })
    })?;
    refused("its bytes are replaced by holes", archive, |copy| {
        let len = fs::metadata(copy.archive())?.len();
        fs::File::create(copy.archive())?.set_len(len)?;
        Ok(())
    })?;
    refused(
        "swapped with that of another architecture",
        |copy| {
            [
                format!("{}: it holds", copy.archive.replace(arch(), other())),
                format!("there is no sha256sum-{}.txt", arch()),
            ]
        },
        |copy| {
            // Only the name differs: the archive for this machine has the name of another architecture.
            let below = ["k3s", "rke2"].map(|name| copy.dir.join(name));
            for dir in below.iter().chain([&copy.dir]) {
                for entry in fs::read_dir(dir)? {
                    let path = entry?.path();
                    let name = path.file_name().context("no name")?.to_string_lossy();
                    let swapped = path.with_file_name(name.replace(arch(), other()));
                    fs::rename(&path, swapped)?;
                }
            }
            let sums = copy.dir.join(format!("sha256sum-{}.txt", other()));
            let text = fs::read_to_string(&sums)?.replace(arch(), other());
            Ok(fs::write(sums, text)?)
        },
    )?;
    refused(
        "renamed",
        |_| [(); 2].map(|()| "images.tar does not belong there".to_owned()),
        |copy| {
            let to = copy.dir.join("images.tar");
            Ok(fs::rename(copy.archive(), to)?)
        },
    )?;
    refused(
        "an extra file",
        |_| [(); 2].map(|()| "notes.tar does not belong there".to_owned()),
        |copy| Ok(fs::write(copy.dir.join("notes.tar"), "")?),
    )?;
    explain_difference(env, fixture, report)
}

fn explain_difference(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    report.check(
        "verify names the first byte in which two releases differ",
        || {
            let other = env.dir.join("other-release");
            sh::run(
                Command::new("cp")
                    .arg("--recursive")
                    .args([&env.dist, &other]),
            )?;
            let program = other.join("bin").join(arch()).join("multus-shim");
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

/// Returns text of the errors of `airgap verify` and of `images install`.
type Errors = fn(&Copy) -> [String; 2];
type Damage = fn(&Copy) -> anyhow::Result<()>;

fn half(copy: &Copy) -> anyhow::Result<()> {
    let bytes = fs::read(copy.archive())?;
    Ok(fs::write(copy.archive(), &bytes[..bytes.len() / 2])?)
}

fn other() -> &'static str {
    if arch() == "amd64" { "arm64" } else { "amd64" }
}
