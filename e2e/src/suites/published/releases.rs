//! The two releases, both signed with one key.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde_json::Value;

use crate::{
    checkout::{self, Checkout},
    sh, signing_key,
    test_env::TestEnv,
};

pub(super) struct Releases {
    pub(super) first: SignedRelease,
    pub(super) next: SignedRelease,
    /// The clone, which knows both versions.
    pub(super) checkout: Checkout,
    /// The publisher's public key.
    pub(super) key: PathBuf,
    /// The public key of somebody else.
    pub(super) other_key: PathBuf,
}

pub(super) struct SignedRelease {
    pub(super) version: String,
    pub(super) dist: PathBuf,
    /// The full name of the image.
    pub(super) image: String,
    /// The digest of its index.
    pub(super) digest: String,
}

impl Releases {
    pub(super) fn make(env: &TestEnv) -> anyhow::Result<Self> {
        let (secret, key) = signing_key::make(env, "publisher", false)?;
        let (_, other_key) = signing_key::make(env, "other", true)?;
        let checkout = Checkout::copy(env.dir.join("clone"))?;
        let [first, next] = ["first", "next"].map(|name| env.dir.join(name));
        sh::copy_directory(&env.dist, &first)?;
        // It is of a commit that the clone does not have.
        sign(Command::new(checkout::xtask()?), &first, &secret)?;
        let [major, minor, _] = checkout::numbers(&env.version()?)?;
        checkout.cut(&format!("{major}.{}.0", minor + 1))?;
        checkout.rehearse(&env.dist, &next)?;
        sign(checkout.xtask(&[]), &next, &secret)?;
        Ok(Self {
            first: SignedRelease::read(first)?,
            next: SignedRelease::read(next)?,
            checkout,
            key,
            other_key,
        })
    }
}

/// Signs a release, which may be one of a checkout with changes.
fn sign(mut xtask: Command, dist: &Path, secret: &Path) -> anyhow::Result<()> {
    xtask.args(["sign", "--allow-dirty", "--dist"]).arg(dist);
    sh::run(xtask.arg("--key").arg(secret)).map(drop)
}

impl SignedRelease {
    fn read(dist: PathBuf) -> anyhow::Result<Self> {
        let release: Value = serde_json::from_slice(&fs::read(dist.join("release.json"))?)?;
        let text = |value: &Value| {
            let text = value.as_str().context("release.json lacks a text")?;
            anyhow::Ok(text.to_owned())
        };
        Ok(Self {
            version: text(&release["version"])?,
            image: text(&release["images"][0]["reference"])?,
            digest: text(&release["images"][0]["digest"])?,
            dist,
        })
    }

    /// Returns the image's name without its registry, as `team/image:tag`.
    pub(super) fn path_of_image(&self) -> &str {
        self.image.split_once('/').map_or("", |(_, path)| path)
    }

    /// Returns a packed chart.
    pub(super) fn chart(&self, name: &str) -> PathBuf {
        let version = &self.version;
        let path = format!("charts/assets/{name}/{name}-{version}.tgz");
        self.dist.join(path)
    }

    /// Returns the publisher's key in the form that Helm reads.
    pub(super) fn keyring(&self) -> PathBuf {
        self.dist.join("charts/keyring.gpg")
    }
}
