//! The licences of a sample, and lists of what is inside of its programs, images and archives: one crate in each program.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use archive::{digest::sha256, lists};
use release::{
    description::Release,
    sbom::{Item, LICENCE, NOTICES, image_stem, path, stem},
    tree::Tree,
};
use serde_json::{Value, json};

pub(super) fn licences() -> BTreeMap<String, String> {
    [
        (LICENCE, "any licence\n"),
        (NOTICES, "serde 1.0.0\n    MIT\n"),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .into()
}

/// Returns the lists of a release that has everything else.
pub(super) fn lists(release: &Release) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for arch in &release.architectures {
        let mut all = BTreeSet::from([Item {
            version: Some("1.0.0".to_owned()),
            purl: Some("pkg:cargo/serde@1.0.0".to_owned()),
            ..item("serde", sha256(b"a crate").hex())
        }]);
        let crates = all.clone();
        let bin = format!("bin/{arch}/");
        for file in &release.files {
            if let Some(name) = file.path.strip_prefix(&bin) {
                let program = item(name, file.sha256.clone());
                write(&mut tree, &stem(arch, name), &program, &crates);
                all.insert(program);
            }
        }
        for image in &release.images {
            let platforms = image.platforms.iter();
            for platform in platforms.filter(|one| one.arch == *arch) {
                let image_item = item(&image.reference, platform.manifest.hex());
                let stem = image_stem(arch, &image.reference);
                write(&mut tree, &stem, &image_item, &all);
                all.insert(image_item);
            }
        }
        let name = lists::archive_name(arch);
        let path = format!("airgap/{name}");
        let file = release.files.iter().find(|file| file.path == path);
        let file = file.context("it has an archive")?;
        let archive = item(&name, file.sha256.clone());
        write(&mut tree, &stem(arch, &name), &archive, &all);
    }
    Ok(tree)
}

fn item(name: &str, sha256: String) -> Item {
    Item {
        name: name.to_owned(),
        version: None,
        purl: None,
        sha256: Some(sha256),
        is_build_only: false,
    }
}

fn write(tree: &mut Tree, stem: &str, subject: &Item, items: &BTreeSet<Item>) {
    let components: Vec<_> = items.iter().map(component).collect();
    let document = json!({"metadata": {"component": component(subject)}, "components": components});
    tree.add(path(stem), document.to_string());
}

fn component(item: &Item) -> Value {
    json!({
        "name": item.name,
        "version": item.version,
        "purl": item.purl,
        "hashes": [{"alg": "SHA-256", "content": item.sha256}],
    })
}
