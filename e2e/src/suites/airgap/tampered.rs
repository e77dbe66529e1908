//! Copies that went wrong: each is refused where it is checked and where it is installed, and the file is named.

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
    report.check("a whole copy is sound", || {
        let copy = Copy::new(env)?;
        fixture
            .xtask(&["airgap", "verify", text(&copy.dir)?])
            .map(drop)
    })?;
    let agent = Agent::new("k3s", "k3s-refused");
    let mut refused = |what: &str, named: Named, change: Change| {
        report.check(&format!("a copy is refused by name: {what}"), || {
            let copy = Copy::new(env)?;
            change(&copy)?;
            fixture.refused(&["airgap", "verify", text(&copy.dir)?], &named(&copy)[0])?;
            let mut install = agent.install(env, fixture, &copy)?;
            fixture.refused_by(&mut install, &named(&copy)[1])?;
            let there = agent.images(fixture)?;
            ensure!(there.is_empty(), "{there:?} is installed");
            Ok(())
        })
    };
    let archive: Named = |copy| [copy.archive.clone(), copy.archive.clone()];
    refused("truncated", archive, half)?;
    refused("truncated, with sums to match", archive, |copy| {
        half(copy)?;
        copy.seal()
    })?;
    refused("sparse: a blob is not in it", archive, |copy| {
        copy.repack(|plain| {
            let blob = largest(plain)?;
            tar(&["--delete", &blob], plain)
        })
    })?;
    refused("sparse: a file with holes", archive, |copy| {
        copy.repack(|plain| {
            let holes = plain.with_extension("holes");
            fs::File::create(&holes)?.set_len(1 << 20)?;
            let (folder, name) = (holes.parent(), holes.file_name());
            let (folder, name) = (folder.context("a folder")?, name.context("a name")?);
            let mut command = Command::new("tar");
            command.args(["--append", "--sparse", "--file"]).arg(plain);
            sh::run(command.arg("--directory").arg(folder).arg(name)).map(drop)
        })
    })?;
    refused("sparse: its bytes are holes", archive, |copy| {
        let len = fs::metadata(copy.archive())?.len();
        fs::File::create(copy.archive())?.set_len(len)?;
        Ok(())
    })?;
    refused(
        "swapped with that of another architecture",
        |copy| {
            [
                format!("{} holds", copy.archive.replace(arch(), other())),
                format!("there is no sha256sum-{}.txt", arch()),
            ]
        },
        |copy| {
            // All that differs is the name: what is for this machine claims to be for another one.
            for entry in fs::read_dir(&copy.dir)? {
                let path = entry?.path();
                let name = path.file_name().context("a name")?.to_string_lossy();
                let swapped = path.with_file_name(name.replace(arch(), other()));
                fs::rename(&path, swapped)?;
            }
            let sums = copy.dir.join(format!("sha256sum-{}.txt", other()));
            let text = fs::read_to_string(&sums)?.replace(arch(), other());
            Ok(fs::write(sums, text)?)
        },
    )?;
    let other_form: Named = |copy| [(); 2].map(|()| copy.archive.replace(".zst", ".gz"));
    refused("swapped with its other form", other_form, |copy| {
        let gz = copy.archive().with_extension("gz");
        let bytes = fs::read(&gz)?;
        fs::rename(copy.archive(), gz)?;
        Ok(fs::write(copy.archive(), bytes)?)
    })?;
    refused(
        "renamed",
        |_| {
            [
                "images.tar.zst does not belong there".to_owned(),
                "images.tar.zst is in no sha256sum file".to_owned(),
            ]
        },
        |copy| {
            let to = copy.dir.join("images.tar.zst");
            Ok(fs::rename(copy.archive(), to)?)
        },
    )?;
    refused(
        "an extra file",
        |_| {
            [
                "notes.tar does not belong there".to_owned(),
                "notes.tar is in no sha256sum file".to_owned(),
            ]
        },
        |copy| Ok(fs::write(copy.dir.join("notes.tar"), "")?),
    )
}

/// What `airgap verify` and what `images install` must say.
type Named = fn(&Copy) -> [String; 2];
/// How a copy goes wrong.
type Change = fn(&Copy) -> anyhow::Result<()>;

fn half(copy: &Copy) -> anyhow::Result<()> {
    let bytes = fs::read(copy.archive())?;
    Ok(fs::write(copy.archive(), &bytes[..bytes.len() / 2])?)
}

fn other() -> &'static str {
    if arch() == "amd64" { "arm64" } else { "amd64" }
}
