//! Makes the archive of one architecture from a definition and programs, and reads it back.

use std::collections::BTreeMap;

use archive::{
    image_archive,
    layout::Layout,
    lists,
    oci::{self, Platform},
    read, verify,
};
use release::{
    bundle,
    image::{Definition, Release},
};

const DEFINITION: &str = include_str!("../../../images/multus/image.json");

fn platform(architecture: &str, variant: Option<&str>) -> Platform {
    Platform {
        architecture: architecture.into(),
        os: "linux".into(),
        variant: variant.map(Into::into),
    }
}

fn binaries(text: &str) -> BTreeMap<String, Vec<u8>> {
    ["multus-cni-plugins", "multus-daemon", "multus-shim"]
        .map(|name| (name.to_owned(), format!("{name} {text}").into_bytes()))
        .into()
}

fn release() -> Release {
    Release {
        version: "5.0.0".into(),
        created: api::time::rfc3339(0),
        documents: [("LICENSE".to_owned(), "text".to_owned())].into(),
    }
}

fn layout() -> Layout {
    let platforms = [
        (platform("amd64", None), binaries("amd64")),
        (platform("arm", Some("v7")), binaries("arm")),
    ];
    let mut layout = Layout::default();
    definition(DEFINITION)
        .add_to(&mut layout, &release(), &platforms)
        .expect("a sound image");
    layout
}

fn definition(text: &str) -> Definition {
    Definition::parse(text.as_bytes()).expect("a sound definition")
}

#[test]
fn image_has_the_files_of_its_definition() {
    let layout = layout();
    let images = verify::images(&layout).expect("sound");
    assert_eq!(images[0].reference, "docker.io/multusrs/multus:v5.0.0");
    let platforms = images[0].platforms.iter();
    let names: Vec<_> = platforms
        .map(|p| p.platform.architecture.as_str())
        .collect();
    assert_eq!(names, ["amd64", "arm"]);
    let limits = read::Limits {
        entries: 100,
        total: 1 << 20,
        links: true,
    };
    let layer = &images[0].platforms[1].layers[0];
    assert_eq!(layer.blob.media_type, oci::LAYER_GZIP);
    let tar = verify::unpack(layer, &layout.blobs[&layer.blob.digest]).expect("sound");
    let entries = read::entries(&tar, &limits).expect("a sound layer");
    let files: Vec<_> = entries
        .iter()
        .map(|entry| format!("{:o} {}", entry.mode, entry.path))
        .collect();
    assert_eq!(
        files,
        [
            "755 etc",
            "644 etc/group",
            "644 etc/passwd",
            "777 install_multus",
            "755 run",
            "755 tmp",
            "755 usr",
            "755 usr/bin",
            "777 usr/bin/multus-daemon",
            "755 usr/share",
            "755 usr/share/doc",
            "755 usr/share/doc/multus",
            "644 usr/share/doc/multus/LICENSE",
            "755 usr/src",
            "755 usr/src/multus-cni",
            "755 usr/src/multus-cni/bin",
            "755 usr/src/multus-cni/bin/multus-cni-plugins",
            "755 usr/src/multus-cni/bin/multus-daemon",
            "755 usr/src/multus-cni/bin/multus-shim",
            "777 usr/src/multus-cni/bin/passthru",
            "755 var",
            "777 var/run",
        ]
    );
}

#[test]
fn archive_is_complete_and_in_order() {
    let part = bundle::slice(&layout(), "arm").expect("has arm");
    let bytes = image_archive::write(&part).expect("an archive");
    let limits = read::Limits {
        entries: 100,
        total: 1 << 20,
        links: false,
    };
    let entries = read::entries(&bytes, &limits).expect("a sound archive");
    let paths: Vec<_> = entries.iter().map(|entry| entry.path.as_str()).collect();
    let head = [
        "oci-layout",
        "index.json",
        "manifest.json",
        "blobs",
        "blobs/sha256",
    ];
    assert_eq!(paths[..5], head);
    assert!(paths[5..].is_sorted());
    assert_eq!(paths.len(), 5 + 3, "manifest, configuration, layer");
    let docker = entries.iter().find_map(|entry| match &entry.kind {
        archive::tar::Kind::File(bytes) if entry.path == "manifest.json" => Some(bytes.clone()),
        _ => None,
    });
    let docker = String::from_utf8(docker.expect("present")).expect("text");
    assert!(docker.contains(r#""RepoTags":["docker.io/multusrs/multus:v5.0.0"]"#));
    let back = Layout::from_entries(entries).expect("a sound layout");
    assert_eq!(back, part);
    let images = verify::images(&back).expect("sound");
    assert_eq!(images[0].platforms[0].platform, platform("arm", Some("v7")));
    let list = lists::digests(&back.images);
    let expected = format!("docker.io/multusrs/multus:v5.0.0@{}\n", images[0].digest);
    assert_eq!(list, expected);
    assert_eq!(
        lists::references(&back.images),
        "docker.io/multusrs/multus:v5.0.0\n"
    );
}

#[test]
fn faults_of_a_definition_are_named() {
    let error = bundle::slice(&layout(), "s390x").expect_err("not built");
    assert!(error.to_string().ends_with("has no manifest for s390x"));

    let mut misnamed = layout();
    misnamed.images[0] = misnamed.images[0].clone().named("r.example/X:1");
    let error = bundle::slice(&misnamed, "arm").expect_err("a bad name");
    let expected = "`r.example/X:1` is not the name of an image: make the layout again with";
    assert!(error.to_string().starts_with(expected), "{error}");

    let layer = |text: &str| {
        definition(text)
            .layer(&release(), &binaries("x"))
            .map_err(|e| e.to_string())
    };
    let changed = DEFINITION.replace("\"multus-daemon\"", "\"multus-deamon\"");
    let expected = "the image needs `multus-deamon`, which was not built";
    assert_eq!(layer(&changed), Err(expected.to_owned()));
    let changed = DEFINITION.replace("passthru\": \"multus-shim\"", "passthru\": \"shim\"");
    let expected = "`/usr/src/multus-cni/bin/passthru` points at `shim`, which is not in the image";
    assert_eq!(layer(&changed), Err(expected.to_owned()));
    let changed = DEFINITION.replace("\"/run\", \"/tmp\"", "\"/run\", \"tmp\"");
    assert_eq!(layer(&changed), Err("`tmp` is not absolute".to_owned()));

    let platforms = [(platform("amd64", None), binaries("x"))];
    let error = definition(&DEFINITION.replace("12000000", "10000"))
        .add_to(&mut Layout::default(), &release(), &platforms)
        .expect_err("too large");
    let expected = "amd64: the layer has 15360 bytes uncompressed, its budget is 10000";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn unknown_keys_and_schemas_are_refused() {
    let parse = |text: &str| Definition::parse(text.as_bytes());
    assert!(parse(&DEFINITION.replace("\"links\"", "\"link\"")).is_err());
    let error = parse(&DEFINITION.replace("\"schema\": 1", "\"schema\": 2")).expect_err("newer");
    let expected = "image definition has schema 2, this program reads 1";
    assert_eq!(error.to_string(), expected);
}
