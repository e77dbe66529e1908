//! Packs charts and manifests by the functions that publish them, so that the embedded bytes are the published ones.

use std::{env, error::Error, fs, path::PathBuf};

use chart::{BuildSettings, Distro, images, index, manifest};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={}", images::VARIABLE);
    if let Err(error) = embed() {
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
    for packed in index::pack_all(&settings)? {
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
