//! Every way in which a layout can be wrong although each blob's file name is its digest.

use archive::{
    digest::{Digest, sha256},
    layout::Layout,
    oci::{self, Descriptor, History, ImageConfig, Index, Manifest, Platform, RootFs, RunConfig},
    tar::{self, Entry},
    verify,
};

/// The parts of a layout that a case may change before they are hashed.
struct Parts {
    diff_ids: Vec<Digest>,
    platform: Platform,
    layer_type: &'static str,
    layer_size: u64,
    names: [&'static str; 2],
    stray: bool,
    drop_layer: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            diff_ids: vec![sha256(&layer())],
            platform: amd64(),
            layer_type: oci::LAYER,
            layer_size: layer().len() as u64,
            names: ["r/i:v1"; 2],
            stray: false,
            drop_layer: false,
        }
    }
}

fn amd64() -> Platform {
    Platform {
        architecture: "amd64".into(),
        os: "linux".into(),
        variant: None,
    }
}

fn layer() -> Vec<u8> {
    tar::write(&[Entry::file("bin/app", 0o755, "program")]).expect("a plain path")
}

fn layout(parts: &Parts) -> Layout {
    let mut layout = Layout::default();
    let mut blob = layout.add(parts.layer_type, layer());
    if parts.drop_layer {
        layout.blobs.remove(&blob.digest);
    }
    blob.size = parts.layer_size;
    let config = ImageConfig {
        created: "1970-01-01T00:00:00Z".into(),
        platform: amd64(),
        config: RunConfig {
            user: "0:0".into(),
            entrypoint: vec!["/bin/app".into()],
            labels: [].into(),
        },
        rootfs: RootFs {
            kind: "layers".into(),
            diff_ids: parts.diff_ids.clone(),
        },
        history: vec![History {
            created: "1970-01-01T00:00:00Z".into(),
            created_by: "test".into(),
        }],
    };
    let config = layout.add(oci::CONFIG, oci::to_bytes(&config));
    let manifest = Manifest::of(config, vec![blob]);
    let mut manifest = layout.add(oci::MANIFEST, oci::to_bytes(&manifest));
    manifest.platform = Some(parts.platform.clone());
    let index = Index::of(vec![manifest]);
    let mut image: Descriptor = layout.add(oci::INDEX, oci::to_bytes(&index));
    for (key, name) in [oci::CONTAINERD_NAME, oci::REF_NAME]
        .iter()
        .zip(parts.names)
    {
        image.annotations.insert((*key).into(), name.into());
    }
    layout.images.push(image);
    if parts.stray {
        layout.add(oci::LAYER, b"stray".to_vec());
    }
    layout
}

fn check(change: impl FnOnce(&mut Parts), expected: &str) {
    let mut parts = Parts::default();
    change(&mut parts);
    let error = verify::images(&layout(&parts))
        .expect_err(expected)
        .to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_valid_layout_yields_its_images() {
    let layout = layout(&Parts::default());
    let images = verify::images(&layout).unwrap();
    let [image] = &images[..] else {
        panic!("one image expected")
    };
    assert_eq!(image.reference, "r/i:v1");
    assert_eq!(image.platforms[0].platform, amd64());
    let found = &image.platforms[0].layers[0];
    assert_eq!(found.size, layer().len() as u64);
    assert_eq!(
        verify::unpack(found, &layout.blobs[&found.blob.digest]).unwrap(),
        layer()
    );
}

#[test]
fn each_fault_has_its_own_error() {
    check(|p| p.diff_ids = vec![sha256(b"")], "its configuration says");
    check(
        |p| p.diff_ids.clear(),
        "does not have one diff_id per layer",
    );
    check(|p| p.platform.os = "plan9".into(), "another platform");
    check(|p| p.layer_type = "text/plain", "cannot be unpacked");
    check(|p| p.layer_size = 1, "says 1");
    check(|p| p.names = ["r/i:v1", "r/i:v2"], "two that differ");
    check(|p| p.stray = true, "belongs to no image");
    check(|p| p.drop_layer = true, "is missing, which manifest");
}

#[test]
fn duplicate_image_names_are_refused() {
    let mut layout = layout(&Parts::default());
    layout.images.push(layout.images[0].clone());
    let error = verify::images(&layout).unwrap_err();
    assert_eq!(error.to_string(), "image r/i:v1 occurs twice");
}
