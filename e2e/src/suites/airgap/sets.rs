//! The sets of images: charts, lock, lists and archives name the same ones.

use std::fs;

use anyhow::ensure;

use super::fixture::{AirgapFixture, text};
use crate::{
    report::{CheckFailed, Report},
    test_env::{TestEnv, arch},
};

pub(super) fn run(
    env: &TestEnv,
    fixture: &AirgapFixture,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let helm = env.bin.join("helm");
    report.check(
        "the lock has the images that real Helm renders with every combination of features",
        || {
            let helm = text(&helm)?;
            fixture
                .xtask(&["airgap", "update", "--check", "--helm", helm])
                .map(drop)
        },
    )?;
    report.check(
        "an image that no chart uses, or that is not locked, is an error and named",
        || {
            let helm = text(&helm)?;
            let lock = env.dir.join("other.lock");
            let args = [
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
            fixture.ensure_refused(&args, "docker.io/x/y:1 is in it, but no chart runs it")?;
            fs::write(&lock, "")?;
            let name = own.replace("@VERSION@", &env.version()?);
            fixture.ensure_refused(&args, &format!("{name} is not in it"))
        },
    )?;
    report.check(
        "lists and archive have the images of the lock, and explain prints their sizes",
        || {
            let dist = text(&env.dist)?;
            let rows = fixture.xtask(&["airgap", "explain", "--out", dist, "--json"])?;
            let rows: Vec<serde_json::Value> = serde_json::from_str(&rows)?;
            let names: Vec<_> = rows
                .iter()
                .filter_map(|row| row["image"].as_str())
                .collect();
            for list in [
                "k3s/image-list-multus.txt".to_owned(),
                format!("rke2/rke2-images-multus.linux-{}.txt", arch()),
            ] {
                let list = String::from_utf8(env.read(&format!("airgap/{list}"))?)?;
                ensure!(
                    list.lines().eq(names.iter().copied()),
                    "the list has {list}, explain {names:?}"
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
