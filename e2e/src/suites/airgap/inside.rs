//! The lists of what is inside of a release, as other programs read them: the library of scanners, and a registry's client for
//! those that are attached to an image.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    fixture::{AirgapFixture, PASSWORD, REGISTRY, USER, text},
    stores::listed,
};
use crate::{
    report::{Checked, Report},
    sh,
    test_env::{TestEnv, arch, sha256},
};

/// One list, as a library understands it.
#[derive(Debug)]
struct Listing {
    name: String,
    sha256: String,
    purls: BTreeSet<String>,
}

pub(super) fn run(env: &TestEnv, fixture: &AirgapFixture, report: &mut Report) -> Checked {
    report.check("the scanners' library accepts every list", || accepted(env))?;
    report.check("a list that breaks the format is refused", || {
        let list = env.read(&format!("sbom/{}/multus-shim.cdx.json", arch()))?;
        let broken = String::from_utf8(list)?.replace("\"required\"", "\"needed\"");
        let path = env.dir.join("broken.cdx.json");
        fs::write(&path, broken)?;
        let mut reader = Command::new(env.bin.join("sbom-reader"));
        fixture.ensure_fails(reader.arg(&path), "must be one of the following")
    })?;
    report.check(
        "oras finds the lists of the image in the registry, and pulls the release's bytes",
        || attached(env, fixture),
    )
}

fn accepted(env: &TestEnv) -> anyhow::Result<()> {
    let dir = env.dist.join("sbom").join(arch());
    let mut subjects = BTreeSet::new();
    for entry in fs::read_dir(&dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(subject) = name.strip_suffix(".cdx.json") {
            subjects.insert(subject.to_owned());
        }
    }
    let programs: Vec<_> = subjects
        .iter()
        .filter(|name| env.dist.join("bin").join(arch()).join(name).is_file())
        .cloned()
        .collect();
    ensure!(programs.len() >= 5, "lists of programs: {programs:?}");
    for subject in &subjects {
        let one = read(env, &dir.join(format!("{subject}.cdx.json")))?;
        ensure!(one.purls.len() > 10, "{subject}: {one:?}");
        if programs.contains(subject) {
            let program = env.read(&format!("bin/{}/{subject}", arch()))?;
            ensure!(one.sha256 == sha256(&program), "{subject}: {one:?}");
        }
    }
    let vex = read(env, &env.dist.join("sbom/vex.cdx.json"))?;
    ensure!(vex.name == "multus-rs", "{vex:?}");
    Ok(())
}

fn read(env: &TestEnv, path: &Path) -> anyhow::Result<Listing> {
    let mut reader = Command::new(env.bin.join("sbom-reader"));
    let answer: Value = serde_json::from_str(&sh::run(reader.arg(path))?)?;
    let field = |key: &str| answer[key].as_str().map(str::to_owned);
    let purls = answer["purls"].as_array().context("it lists nothing")?;
    let purls = purls.iter().filter_map(Value::as_str);
    Ok(Listing {
        name: field("name").unwrap_or_default(),
        sha256: field("sha256").unwrap_or_default(),
        purls: purls.map(str::to_owned).collect(),
    })
}

fn attached(env: &TestEnv, fixture: &AirgapFixture) -> anyhow::Result<()> {
    let logins = env.dir.join("oras-logins.json");
    let oras = |args: &[&str], input: &str| {
        let mut command = fixture.node.command(env.bin.join("oras"));
        let (name, rest) = args.split_first().context("a subcommand is named")?;
        command
            .args([*name, "--plain-http", "--registry-config"])
            .arg(&logins)
            .args(rest);
        sh::feed(&mut command, input.as_bytes())
    };
    oras(
        &["login", REGISTRY, "--username", USER, "--password-stdin"],
        PASSWORD,
    )?;
    let images = listed(env)?;
    let own = images.iter().find(|name| name.contains("/multusrs/"));
    let (name, digest) = own
        .and_then(|own| own.split_once('@'))
        .context("the release has an own image")?;
    let name = name.trim_start_matches("docker.io/");
    let repository = name.rsplit_once(':').map_or(name, |(name, _)| name);
    let image = format!("{REGISTRY}/{repository}@{digest}");
    let found: Value = serde_json::from_str(&oras(&["discover", "--format", "json", &image], "")?)?;
    let referrers = found["referrers"].as_array().context("no referrers")?;
    ensure!(referrers.len() == 1, "{found}");
    let kind = "application/vnd.cyclonedx+json";
    let one = referrers.iter().find(|one| one["artifactType"] == kind);
    let digest = one.and_then(|one| one["digest"].as_str());
    let digest = digest.with_context(|| format!("{found} has no {kind}"))?;
    let to = env.dir.join("attached");
    let artifact = format!("{REGISTRY}/{repository}@{digest}");
    oras(&["pull", "--output", text(&to)?, &artifact], "")?;
    let file = "image-multus.cdx.json";
    let pulled = fs::read(to.join(file))?;
    let published = env.read(&format!("sbom/{}/{file}", arch()))?;
    ensure!(pulled == published, "{file} has other bytes");
    Ok(())
}
