//! Small images for tests: one layer with one program.

use archive::{
    digest::sha256,
    gzip,
    layout::Layout,
    oci::{self, Descriptor, ImageConfig, Index, Manifest, Platform, RootFs, RunConfig},
    tar::{self, Entry},
};

/// Adds an image for one architecture, whose program has this content; returns its manifest.
pub(crate) fn manifest(layout: &mut Layout, architecture: &str, content: &str) -> Descriptor {
    let tar = tar::write(&[Entry::file("program", 0o755, content)]).unwrap();
    let platform = Platform {
        architecture: architecture.to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let config = ImageConfig {
        created: String::new(),
        platform: platform.clone(),
        config: RunConfig::default(),
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: vec![sha256(&tar)],
        },
        history: Vec::new(),
    };
    let config = layout.add(oci::CONFIG, oci::to_bytes(&config));
    let layer = layout.add(oci::LAYER_GZIP, gzip::compress(&tar));
    let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
    let mut manifest = layout.add(oci::MANIFEST, manifest);
    manifest.platform = Some(platform);
    manifest
}

/// Returns a layout with one image under a reference, for these architectures.
pub(crate) fn layout(reference: &str, architectures: &[&str], content: &str) -> Layout {
    let mut layout = Layout::default();
    let manifests = architectures
        .iter()
        .map(|architecture| manifest(&mut layout, architecture, content))
        .collect();
    let index = layout.add(oci::INDEX, oci::to_bytes(&Index::of(manifests)));
    layout.images.push(index.named(reference));
    layout
}
