//! Packs charts and manifests by the same functions that publish them, so that what is embedded is what is published.

use std::{env, fs, path::PathBuf};

use chart::{Distro, index, manifest};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("assets");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets CARGO_PKG_VERSION");
    let charts = out.join("charts");
    fs::create_dir_all(&charts).expect("OUT_DIR is writable");
    for packed in index::pack_all(&version).expect("the chart packs") {
        fs::write(
            charts.join(format!("{}-{version}.tgz", packed.name)),
            packed.bytes,
        )
        .expect("OUT_DIR is writable");
    }
    for distro in [Distro::K3s, Distro::Rke2] {
        let dir = out.join("manifests").join(distro.as_str());
        fs::create_dir_all(&dir).expect("OUT_DIR is writable");
        let text = manifest::helm_charts(distro, &version).expect("the chart packs");
        fs::write(dir.join(manifest::FILE_NAME), text).expect("OUT_DIR is writable");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
