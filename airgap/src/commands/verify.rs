//! `verify DIR`: checks a release, or a directory with archives on its way to nodes, from its files alone.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use archive::{
    lists,
    medium::{Medium, Sound},
};
use cmdline::{BadUsage, counted};
use release::{
    medium,
    signatures::{self, Report, Trust},
    source,
    verify::{self, Standard, Verified},
};
use serde_json::{Value, json};

use super::trust;
use crate::ui;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// The directory of a release, or one with archives and their checksums
    dir: PathBuf,
    #[command(flatten)]
    trust: trust::Options,
    /// Accept a release of a checkout with uncommitted changes, for trials
    #[arg(long)]
    allow_dirty: bool,
    /// Print its content as JSON
    #[arg(long)]
    json: bool,
}

/// Checks the directory. A release is judged by its own `release.json`, whatever version made it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let dir = &args.dir;
    ensure!(
        dir.is_dir(),
        "there is no directory {}: name the one of a release, or the one with its airgap files",
        dir.display()
    );
    let trust = args.trust.trust()?;
    if !source::is_release(dir) {
        return check_medium(dir, &trust, args.json);
    }
    let verified = ui::step("verify", || {
        verify::dir(dir, &trust, |_| Standard::Description)
    })?;
    if !args.allow_dirty {
        verified.release.check_clean()?;
    }
    print_release(dir, &verified, args.json)
}

/// Prints that a release is sound and who vouches for it, or its description.
pub fn print_release(dir: &Path, verified: &Verified, json: bool) -> anyhow::Result<()> {
    let Verified { release, report } = verified;
    if json {
        ui::json(&with_verdict("release", &json!(release), report))?;
    } else {
        ui::data(&format!(
            "{}: release {} of {} for {} is undamaged\n{}",
            dir.display(),
            release.version,
            counted(release.files.len() + 2, "file"),
            release.architectures.join(", "),
            trust::lines(report)
        ))?;
    }
    // The last line: checksums are not a signature.
    trust::note_unchecked(report);
    Ok(())
}

/// Returns what was checked together with who vouches for it.
fn with_verdict(name: &str, content: &Value, report: &Report) -> Value {
    let attested = report.statements.iter();
    let attested = attested.map(|one| json!({"builder": one.builder, "key": one.key}));
    json!({
        name: content,
        "checkedSignatures": !report.signed.is_empty() || !report.statements.is_empty(),
        "signed": report.signed,
        "attested": attested.collect::<Vec<_>>(),
        "unchecked": report.unchecked_statements,
    })
}

/// Returns whether the directory has the files that lie next to the archives of a release, or such an archive.
pub fn is_medium(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| {
        let arch = lists::architecture_of_sums(&name);
        arch.or(lists::architecture_of_archive(&name)).is_some()
    })
}

/// Checks a directory with archives, and prints what it holds.
pub fn check_medium(dir: &Path, trust: &Trust, json: bool) -> anyhow::Result<()> {
    if !trust.attested_by.is_empty() {
        let usage = "--attested-by is for a release: a directory with archives has no statements";
        return Err(BadUsage(usage.to_owned()).into());
    }
    let unsound = || format!("{} is not sound", dir.display());
    let medium = Medium::open(dir, None).with_context(unsound)?;
    let files = medium.signed_files().with_context(unsound)?;
    // Before anything else is believed.
    let mut report = Report::default();
    if let Some(key) = &trust.key {
        let signed = signatures::check_medium(&files, key);
        report.signed =
            signed.with_context(|| format!("{} is not to be trusted", dir.display()))?;
    }
    let sound = ui::step("verify", || medium::check(&medium)).with_context(unsound)?;
    if trust.key.is_none() {
        let mut names = files.keys();
        report.has_unchecked = names.any(|name| signatures::is_medium_signature(name));
    }
    trust::note_unchecked(&report);
    if json {
        let items: Vec<_> = sound
            .archives
            .iter()
            .map(|one| {
                let images: Vec<_> = one
                    .images
                    .iter()
                    .map(|image| json!({"reference": image.reference, "digest": image.digest}))
                    .collect();
                json!({"arch": one.architecture, "archive": one.name, "images": images})
            })
            .collect();
        return ui::json(&with_verdict("medium", &json!(items), &report));
    }
    let signed = report.signed.iter();
    let signed = signed.map(|name| format!("{name}: signed by the owner of --key\n"));
    ui::data(&lines(&sound).into_iter().chain(signed).collect::<String>())
}

/// Returns a line for each archive, and one for each program.
fn lines(sound: &Sound) -> Vec<String> {
    let mut lines = Vec::new();
    for one in &sound.archives {
        let (arch, images) = (&one.architecture, counted(one.images.len(), "image"));
        lines.push(format!("{}: {images} for {arch}, sound\n", one.name));
        let program = lists::program_name(arch);
        if sound.files.contains_key(&program) {
            lines.push(format!("{program}: static program for {arch}, sound\n"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use archive::{digest::sha256, image_archive::Image, layout::Layout, medium::SoundArchive};

    use super::*;

    #[test]
    fn images_of_each_archive_are_counted() {
        let image = Image {
            reference: "docker.io/x/y:1".to_owned(),
            digest: sha256(b"x"),
        };
        let lines_of = |images: usize| {
            let archive = SoundArchive {
                architecture: "arm".to_owned(),
                name: "a.tar".to_owned(),
                images: vec![image.clone(); images],
                layout: Layout::default(),
            };
            let sound = Sound {
                files: [].into(),
                archives: vec![archive],
            };
            lines(&sound).concat()
        };
        assert_eq!(lines_of(1), "a.tar: 1 image for arm, sound\n");
        assert_eq!(lines_of(2), "a.tar: 2 images for arm, sound\n");
    }
}
