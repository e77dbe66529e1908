//! The image sets: charts, lock, lists and archives name the same images.

use std::fs;

use anyhow::ensure;

use super::scene::{Scene, text};
use crate::{
    report::{Ended, Report},
    workplace::{Workplace, arch},
};

pub(super) fn run(work: &Workplace, scene: &Scene, report: &mut Report) -> Result<(), Ended> {
    let helm = work.bin.join("helm");
    report.check(
        "the lock is what real Helm renders under every combination",
        || {
            let helm = text(&helm)?;
            scene
                .xtask(&["airgap", "update", "--check", "--helm", helm])
                .map(drop)
        },
    )?;
    report.check(
        "an image that the charts do not run, or one that is not locked, is named",
        || {
            let helm = text(&helm)?;
            let lock = work.dir.join("other.lock");
            let words = [
                "airgap",
                "update",
                "--check",
                "--helm",
                helm,
                "--lock",
                text(&lock)?,
            ];
            let own = "docker.io/multusrs/multus:v@VERSION@";
            fs::write(
                &lock,
                format!("core {own} built\ncore docker.io/x/y:1 built\n"),
            )?;
            scene.refused(&words, "docker.io/x/y:1 is in it, but no chart runs it")?;
            fs::write(&lock, "")?;
            let name = own.replace("@VERSION@", &work.version()?);
            scene.refused(&words, &format!("{name} is not in it"))
        },
    )?;
    report.check(
        "lists and archive name the images of the lock, and explain tells their bytes",
        || {
            let dist = text(&work.dist)?;
            let rows = scene.xtask(&["airgap", "explain", "--out", dist, "--json"])?;
            let rows: Vec<serde_json::Value> = serde_json::from_str(&rows)?;
            let names: Vec<_> = rows
                .iter()
                .filter_map(|row| row["image"].as_str())
                .collect();
            for list in [
                "k3s/image-list-multus.txt".to_owned(),
                format!("rke2/rke2-images-multus.linux-{}.txt", arch()),
            ] {
                let list = String::from_utf8(work.read(&format!("airgap/{list}"))?)?;
                ensure!(
                    list.lines().eq(names.iter().copied()),
                    "{list} is not {names:?}"
                );
            }
            for row in &rows {
                let bytes = row["archives"][0]["bytes"].as_u64();
                ensure!(bytes.is_some_and(|bytes| bytes > 1_000_000), "{row}");
            }
            Ok(())
        },
    )
}
