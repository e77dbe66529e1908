//! `sign --key FILE`: signs a release with a key file, without a network.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use archive::digest::sha256;
use cmdline::{BadUsage, counted};
use release::{
    signatures::{self, Build, Dependency, Trust},
    verify,
};
use signing::SecretKey;

use super::{checkout, verify::standard};
use crate::{description::Release, project::Project, tree::Tree, ui};

/// Sign a release with a key file, offline: its checksums, images and charts, and a statement about how it was made
///
/// The signatures lie between the files of the release, which stay as they are. The same key makes the same signatures again. `cargo xtask verify --key`, `multus-airgap verify --key`, cosign, openssl and Helm check them: docs/contributing/signing.md.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out release.key       once; openssl pkey -in release.key -pubout -out release.pub\n  cargo xtask sign --key release.key\n  cargo xtask sign --key builder.key --statement-only --builder https://ci.example/multus      a second builder of the same bytes"
)]
pub(crate) struct Args {
    /// Private key in PEM (PKCS#8), ECDSA P-256 or Ed25519, in a file that others cannot read
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Release to sign
    #[arg(long, value_name = "DIR", default_value = "dist")]
    dist: PathBuf,
    /// URI of whoever made the release, for the statement; follows from the key unless set
    #[arg(long, value_name = "URI")]
    builder: Option<String>,
    /// Write the statement alone, as a further builder of a release that its publisher signs
    #[arg(long)]
    statement_only: bool,
    /// Sign a release of a checkout with uncommitted changes, for trials
    #[arg(long)]
    allow_dirty: bool,
}

/// The permissions of users other than the owner of a file.
const OTHERS_PERMISSIONS: u32 = 0o077;
/// More than any key.
const MAX_KEY: u64 = 1 << 16;
/// The files of a commit that determine what a release consists of.
const SOURCES: [&str; 2] = ["Cargo.lock", "rust-toolchain.toml"];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let key = secret_key(&args.key)?;
    let id = key.public().id().hex();
    let builder = match &args.builder {
        Some(uri) => uri.clone(),
        None => format!("urn:multus-rs:key:{id}"),
    };
    if !is_uri(&builder) {
        let usage = format!("--builder is `{builder}`: write a URI, as https://ci.example/multus");
        return Err(BadUsage(usage).into());
    }
    let project = Project::open()?;
    let (files, former) = verify::read(&args.dist)?;
    let measures = checkout();
    let release = ui::step("verify", || {
        verify::check(&files, |release| {
            standard(release, Some(&project.commit), &measures)
        })
        .with_context(|| {
            format!(
                "{} is not a sound release, and is not signed",
                args.dist.display()
            )
        })
    })?;
    if !args.allow_dirty {
        release.check_clean()?;
    }
    let build = Build {
        builder,
        sources: sources(&project, &release)?,
    };
    let signatures_of = if args.statement_only {
        signatures::state
    } else {
        signatures::sign
    };
    let made = signatures_of(&files, &release, &key, &build)?;
    // The signatures just written pass the check of every later command, next to the statements of others.
    let mut all = former;
    if !args.statement_only {
        all.0
            .retain(|path, _| path.starts_with(signatures::PROVENANCE));
    }
    all.extend(made.clone());
    let public = key.public();
    let trust = if args.statement_only {
        Trust {
            key: None,
            attested_by: vec![public],
        }
    } else {
        Trust {
            key: Some(public),
            attested_by: Vec::new(),
        }
    };
    signatures::check(&files, &all, &release, &trust)?;
    write(&made, &args.dist, args.statement_only)?;
    for path in made.0.keys() {
        ui::data(&format!("{path}\n"))?;
    }
    ui::note(&format!(
        "{} of key {id} in {}; next: cargo xtask verify {} --key PUBLIC",
        counted(made.0.len(), "signature"),
        args.dist.display(),
        args.dist.display()
    ));
    Ok(())
}

/// Reads the key, whose bytes are in no error and no line.
pub(super) fn secret_key(path: &Path) -> anyhow::Result<SecretKey> {
    let context = || format!("cannot use the key {}", path.display());
    let file = fs::File::open(path).with_context(context)?;
    let metadata = file.metadata().with_context(context)?;
    let (mode, owner) = (metadata.mode(), metadata.uid());
    ensure!(
        is_trusted(owner, rustix::process::geteuid().as_raw()),
        "cannot use the key {}: it belongs to user {owner}, who can change it: use a copy of your own",
        path.display()
    );
    ensure!(
        mode & OTHERS_PERMISSIONS == 0,
        "cannot use the key {}: other users can read or change it (mode {:04o}): chmod 600 {}",
        path.display(),
        mode & 0o7777,
        path.display()
    );
    let mut bytes = Vec::new();
    let length = file.take(MAX_KEY).read_to_end(&mut bytes);
    ensure!(
        (length.with_context(context)? as u64) < MAX_KEY,
        "cannot use the key {}: it is larger than any key",
        path.display()
    );
    SecretKey::from_pem(&String::from_utf8_lossy(&bytes)).with_context(context)
}

/// Returns whether a user may take a key from a file of this owner.
fn is_trusted(owner: u32, user: u32) -> bool {
    owner == user || owner == 0
}

/// Returns whether a text has the form of an absolute URI.
fn is_uri(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !"<>\"{}|\\^`".contains(c);
    let scheme = text.split_once(':').filter(|(_, rest)| !rest.is_empty());
    scheme.is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    }) && text.chars().all(is_plain)
}

fn sources(project: &Project, release: &Release) -> anyhow::Result<Vec<Dependency>> {
    let digest = |path: &str| {
        Ok(Dependency {
            path: path.to_owned(),
            digest: sha256(&project.file_at(&release.commit, path)?),
        })
    };
    SOURCES.into_iter().map(digest).collect()
}

/// Writes the signatures. Those of images and charts that are no longer there are removed; statements of others stay.
fn write(made: &Tree, dist: &Path, statement_only: bool) -> anyhow::Result<()> {
    let owned: &[&str] = if statement_only {
        &[]
    } else {
        &[signatures::IMAGES]
    };
    made.update(dist, owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn key_that_others_can_read_is_refused_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let text = include_str!("../../../signing/tests/fixtures/p256.pem");
        let refused = |text: &str, mode, expected: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = format!("{:#}", secret_key(&path).unwrap_err());
            assert!(error.contains(expected), "{error}");
            let mut lines = text.lines();
            let secret = lines.nth(1).unwrap_or("none");
            assert!(!error.contains(secret), "{error}");
        };
        refused(text, 0o640, "(mode 0640): chmod 600");
        refused(text, 0o602, "(mode 0602): chmod 600");
        let half = &text[..text.len() / 2];
        refused(half, 0o600, "it is damaged");
        refused(&text.repeat(1000), 0o600, "larger than any key");
        fs::write(&path, text).unwrap();
        secret_key(&path).unwrap();
    }

    #[test]
    fn key_of_another_user_is_refused_unless_root_owns_it() {
        for (owner, user, expected) in [(7, 7, true), (0, 7, true), (8, 7, false), (8, 0, false)] {
            assert_eq!(is_trusted(owner, user), expected, "{owner} {user}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let text = include_str!("../../../signing/tests/fixtures/p256.pem");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        secret_key(&path).unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(65_533), None).is_ok() {
            let error = secret_key(&path).unwrap_err().to_string();
            assert!(error.contains("it belongs to user 65533"), "{error}");
        }
    }

    #[test]
    fn builder_is_a_uri() {
        for text in ["https://ci.example/a", "urn:x:1", "mailto:a@b"] {
            assert!(is_uri(text), "{text}");
        }
        for text in [
            "",
            "ci",
            "a b:c",
            ":x",
            "x:",
            "1x:y",
            "https://a b",
            "x:\u{e9}",
        ] {
            assert!(!is_uri(text), "{text}");
        }
    }
}
