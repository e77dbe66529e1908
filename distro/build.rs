//! Packs charts and manifests by the functions that publish them, so that the embedded bytes are the published ones.

use std::{env, error::Error, fs, path::PathBuf};

use chart::{
    BuildSettings, Distro, images,
    index::{self, Packed},
    manifest,
};

/// The variable that names a public key in PEM, whose owner must have signed what `images install` takes.
const TRUSTED_KEY: &str = "MULTUS_TRUSTED_KEY";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={}", images::VARIABLE);
    println!("cargo::rerun-if-env-changed={TRUSTED_KEY}");
    if let Err(error) = embed().and_then(|()| embed_key()) {
        println!("cargo::error={error}");
    }
}

fn embed() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?).join("assets");
    let version = env::var("CARGO_PKG_VERSION")?;
    let settings = BuildSettings {
        version: version.as_str().into(),
        images: match env::var(images::VARIABLE) {
            Ok(prefix) => prefix.parse()?,
            Err(_) => images::ImagePrefix::DEFAULT,
        },
    };
    println!("cargo::rustc-env=MULTUS_IMAGE={}", settings.image());
    let charts = out.join("charts");
    fs::create_dir_all(&charts)?;
    let packed = index::pack_all(&settings)?;
    for packed in packed.into_iter().filter(Packed::is_of_distro) {
        let name = format!("{}-{version}.tgz", packed.name);
        fs::write(charts.join(name), packed.bytes)?;
    }
    for distro in [Distro::K3s, Distro::Rke2] {
        let dir = out.join("manifests").join(distro.as_str());
        fs::create_dir_all(&dir)?;
        let text = manifest::helm_charts(distro, &settings)?;
        fs::write(dir.join(manifest::FILE_NAME), text)?;
    }
    Ok(())
}

/// Writes the key for `include_str!`: nothing without one.
fn embed_key() -> Result<(), Box<dyn Error>> {
    let path = env::var(TRUSTED_KEY).unwrap_or_default();
    let mut text = String::new();
    if !path.is_empty() {
        println!("cargo::rerun-if-changed={path}");
        text = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {TRUSTED_KEY}={path}: {error}"))?;
    }
    fs::write(
        PathBuf::from(env::var("OUT_DIR")?).join("trusted-key.pem"),
        text,
    )?;
    Ok(())
}
