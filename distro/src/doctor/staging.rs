//! What is staged on this server, and whether the distro takes it.

use std::fs;

use super::{Examination, Node, settings::Settings};
use crate::{
    plan::{self, Distro, MANIFESTS},
    stage::{self, Found, known},
};

pub(super) fn look(node: &Node<'_>, settings: &Settings, found: &mut Examination) {
    if !node.data("server").is_dir() {
        found.fact("staging", "none: this node is no server");
        return;
    }
    let record = match stage::read_record(&node.data("")) {
        Ok(record) => record,
        Err(error) => return found.problem(format!("{error:#}")),
    };
    // RKE2 writes its registry itself.
    let registry = match node.place.distro {
        Distro::K3s => settings.registry.as_str(),
        Distro::Rke2 => "",
    };
    let files = match plan::files(node.place.distro, registry) {
        Ok(files) => files,
        Err(error) => return found.problem(error.to_string()),
    };
    let again = "start the distro through multus-distro, or run `stage` again";
    let (mut right, mut is_off) = (0, false);
    for file in &files {
        let path = node.data(&file.path);
        let known = known(&record, &file.path);
        let present = fs::read(&path).ok();
        match stage::judge(&file.path, present.as_deref(), Some(&file.bytes), &known) {
            Found::Wanted => right += 1,
            Found::Absent if known.is_empty() => {}
            Found::Absent => found.problem(format!(
                "{} is gone: {again}, and look whether the distro is told to disable it",
                path.display()
            )),
            Found::Former => found.problem(format!(
                "{} is of another release, or for another registry: {again}",
                path.display()
            )),
            Found::Edited => found.note(format!(
                "{} was edited, which the next start undoes: change values with a HelmChartConfig",
                path.display()
            )),
            Found::Foreign => found.problem(format!(
                "{} is not ours, and nothing is staged beside it: move it to another name",
                path.display()
            )),
            Found::Removal => is_off = true,
        }
    }
    found.fact(
        "staging",
        match (right, is_off) {
            (0, true) => "taken away: `unstage --purge` removes the last file".to_owned(),
            (0, false) => "none: `stage --multus` or `server --multus` brings it".to_owned(),
            _ => format!(
                "release {}, {right} of {} files",
                env!("CARGO_PKG_VERSION"),
                files.len()
            ),
        },
    );
    let ours: Vec<_> = files
        .iter()
        .filter(|file| file.path.starts_with(MANIFESTS))
        .map(|file| node.data(&file.path))
        .collect();
    let beside = stage::beside(&node.data(MANIFESTS), &ours);
    for path in beside.skips {
        found.problem(format!(
            "{} keeps the distro from reading ours: remove it",
            path.display()
        ));
    }
    for path in beside.rivals {
        found.problem(format!(
            "{} becomes the same Addon as ours, and the two take turns: rename it",
            path.display()
        ));
    }
}
