//! Where this node gets our images from: archives that the distro imports, or a registry.

use std::{fs, path::Path};

use super::{Examination, Node, settings::Settings};
use crate::{
    assets,
    commands::images::named,
    images::{CACHE, IMAGES_DIR, STEM, arch, references, stem},
};

pub(super) fn look(node: &Node<'_>, settings: &Settings, found: &mut Examination) {
    let dir = node.data(IMAGES_DIR);
    let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let is_ours = |name: &&String| name.starts_with(STEM) && stem(name).is_some();
    let ours: Vec<&String> = names.iter().filter(is_ours).collect();
    let mut held = Vec::new();
    for name in &ours {
        let of_arch = stem(name).is_some_and(|stem| stem.ends_with(&format!("-{}", arch())));
        if !of_arch {
            found.problem(format!(
                "{}/{name} is for another architecture than {}: remove it, and install this one's",
                dir.display(),
                arch()
            ));
            continue;
        }
        match references(&dir.join(name)) {
            Ok(references) => held.extend(references),
            Err(error) => found.problem(format!("{error:#}")),
        }
    }
    for image in assets::IMAGES {
        if held.iter().any(|name| name == image) {
            found.fact(
                "images",
                format!("{image} is imported from {}", dir.display()),
            );
        } else if ours.is_empty() {
            let image = named(image, &settings.registry);
            found.fact(
                "images",
                format!("{image} is pulled: no archive is in {}", dir.display()),
            );
        } else {
            found.problem(format!(
                "no archive in {} holds {image}: run `images install` with the folder of this release",
                dir.display()
            ));
        }
    }
    let mut stems: Vec<_> = ours.iter().filter_map(|name| stem(name)).collect();
    stems.dedup();
    if stems.len() < ours.len() {
        found.note(format!(
            "{} holds an archive in two forms, imported twice: remove one",
            dir.display()
        ));
    }
    let is_list = |name: &&String| {
        let is_text = Path::new(name).extension().is_some_and(|end| end == "txt");
        name.starts_with("multus-images") && is_text
    };
    for name in names.iter().filter(is_list) {
        found.note(format!(
            "{}/{name} has the distro pull its images at each start: remove it",
            dir.display()
        ));
    }
    for name in names.iter().filter(|name| name.ends_with(".multus-tmp")) {
        found.note(format!(
            "{}/{name} is left of an installation that was cut off: run it again",
            dir.display()
        ));
    }
    if !ours.is_empty() && !names.iter().any(|name| name == CACHE) {
        found.note(format!(
            "{}/{CACHE} is not there: archives are imported at every start, `images install` makes it",
            dir.display()
        ));
    }
}
