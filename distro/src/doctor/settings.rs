//! The distro's own configuration, as far as it decides about Multus.

use super::{Examination, Node};
use crate::{
    config,
    manifest::is_disabled,
    plan::{self, Distro},
};

/// What the distro's files say that other looks go by.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) registry: String,
}

pub(super) fn look(node: &Node<'_>, found: &mut Examination) -> Settings {
    let distro = node.place.distro;
    let file = config::default_file(distro.as_str());
    let settings = match config::read(node.root, &file) {
        Ok(settings) => settings,
        Err(error) => {
            found.problem(format!("{error:#}"));
            return Settings::default();
        }
    };
    let is_on = |key: &str| settings.value(key).as_deref() == Some("true");
    let name = distro.as_str();
    let disabled = settings.words("disable");
    for manifest in plan::manifests(distro) {
        if is_disabled(&format!("{manifest}.yaml"), &disabled) {
            found.problem(format!(
                "{name} is told to disable {manifest}: take it out of `disable` in {}, and restart",
                file.display()
            ));
        }
    }
    if distro == Distro::Rke2 && settings.words("cni").iter().any(|cni| cni == "multus") {
        found.problem(format!(
            "rke2 brings its own multus, which takes the place of this one: take `multus` out of `cni` in {}, and restart",
            file.display()
        ));
    }
    if is_on("disable-helm-controller") {
        found.problem(format!(
            "{name} has no helm-controller, so nobody installs the charts: take `disable-helm-controller` out of {}, or install them with Helm",
            file.display()
        ));
    }
    if distro == Distro::K3s && settings.value("flannel-backend").as_deref() == Some("none") {
        found.note("flannel is off: pods wait until another primary network is installed");
    }
    if is_on("docker") || settings.value("container-runtime-endpoint").is_some() {
        found.note(format!(
            "the runtime is not {name}'s own: it takes no images from the agent's directory, import them by hand"
        ));
    }
    let registry = settings
        .value("system-default-registry")
        .unwrap_or_default();
    if !registry.is_empty() {
        found.fact("registry", format!("{registry}, before every image"));
    }
    Settings { registry }
}
