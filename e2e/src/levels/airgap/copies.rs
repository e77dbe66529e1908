//! Copies that went wrong: each is refused where it is checked and where it is installed, and the file is named.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use super::{
    installed::Agent,
    scene::{Scene, text},
};
use crate::{
    report::{Ended, Report},
    sh,
    workplace::{Workplace, arch},
};

pub(super) struct Copy {
    pub(super) dir: PathBuf,
    archive: String,
}

impl Copy {
    pub(super) fn new(work: &Workplace) -> anyhow::Result<Self> {
        let dir = work.dir.join("copy");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let from = work.dist.join("airgap");
        sh::run(Command::new("cp").arg("--recursive").args([&from, &dir]))?;
        Ok(Self {
            dir,
            archive: format!("multus-airgap-images-{}.tar.zst", arch()),
        })
    }

    fn archive(&self) -> PathBuf {
        self.dir.join(&self.archive)
    }

    /// Writes sums that fit what is there, as somebody would who repairs the wrong thing.
    fn seal(&self) -> anyhow::Result<()> {
        let sums = format!("sha256sum-{}.txt", arch());
        let old = fs::read_to_string(self.dir.join(&sums))?;
        let names = old.lines().filter_map(|line| line.split_once("  "));
        let mut new = String::new();
        for (_, name) in names {
            let bytes = fs::read(self.dir.join(name)).with_context(|| name.to_owned())?;
            let digest = crate::workplace::sha256(&bytes);
            new.extend([digest.as_str(), "  ", name, "\n"]);
        }
        Ok(fs::write(self.dir.join(sums), new)?)
    }

    /// Unpacks the archive, changes it, and packs it again.
    fn repack(&self, change: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let plain = self.dir.with_extension("tar");
        super::scene::unpack(&self.archive(), &plain)?;
        change(&plain)?;
        let mut zstd = Command::new("zstd");
        zstd.args(["--force", "--quiet", "-o"]);
        sh::run(zstd.args([&self.archive(), &plain]))?;
        fs::remove_file(self.dir.join(self.archive.replace(".zst", ".gz")))?;
        let sums = self.dir.join(format!("sha256sum-{}.txt", arch()));
        let text = fs::read_to_string(&sums)?;
        let kept: Vec<_> = text
            .lines()
            .filter(|line| !line.contains(".tar.gz"))
            .map(|line| format!("{line}\n"))
            .collect();
        fs::write(sums, kept.concat())?;
        self.seal()
    }
}

fn tar(words: &[&str], archive: &Path) -> anyhow::Result<()> {
    let (what, names) = words.split_first().context("tar is told what to do")?;
    let mut command = Command::new("tar");
    sh::run(command.args([what, "--file"]).arg(archive).args(names)).map(drop)
}

pub(super) fn run(work: &Workplace, scene: &Scene, report: &mut Report) -> Result<(), Ended> {
    report.check("a whole copy is sound", || {
        let copy = Copy::new(work)?;
        scene
            .xtask(&["airgap", "verify", text(&copy.dir)?])
            .map(drop)
    })?;
    let agent = Agent::new("k3s", "k3s-refused");
    let mut refused = |what: &str, named: Named, change: Change| {
        report.check(&format!("a copy is refused by name: {what}"), || {
            let copy = Copy::new(work)?;
            change(&copy)?;
            scene.refused(&["airgap", "verify", text(&copy.dir)?], &named(&copy)[0])?;
            let mut install = agent.install(work, scene, &copy)?;
            scene.refused_by(&mut install, &named(&copy)[1])?;
            let there = agent.images(scene)?;
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

/// The path of an archive's largest entry.
pub(super) fn largest(plain: &Path) -> anyhow::Result<String> {
    let mut tar = Command::new("tar");
    let list = sh::run(tar.args(["--list", "--verbose", "--file"]).arg(plain))?;
    let sizes = list.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        Some((
            words.get(2)?.parse::<u64>().ok()?,
            (*words.get(5)?).to_owned(),
        ))
    });
    let largest = sizes.max().context("the archive is empty")?;
    Ok(largest.1)
}
