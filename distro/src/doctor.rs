//! Checks of this node: each adds its findings, with hints, to an examination, and changes nothing.

use std::path::{Path, PathBuf};

use api::DEFAULT_SOCKET_DIR;
use archive::lists;
use node::{
    discover::Report,
    examination::{self, Examination},
    root::Root,
    runtime::{self, HINT},
};
use vpn::status::findings;

use crate::{
    assets,
    detect::{self, Installation},
    images::{IMAGES_DIR, arch, references},
    manifest::is_disabled,
    node_vpn::{files::VpnFiles, report},
    plan::{self, Distro, MANIFESTS, Server},
    service::{self, Service},
    stage::{self, FileState, recorded_checks},
    unit,
};

/// The node that is examined, and the distro that was found on it.
struct Target<'a> {
    root: &'a Root,
    installation: &'a Installation,
}

impl Target<'_> {
    /// Returns a path below the data directory.
    fn data(&self, path: &str) -> PathBuf {
        self.installation.data_dir.join(path)
    }
}

/// Examines everything but the runtime, which the report covers.
pub(crate) fn examine(
    root: &Root,
    report: &Report,
    distro: Option<Distro>,
    data_dir: Option<&Path>,
) -> Examination {
    let mut found = Examination::default();
    match detect::find(root, distro, data_dir) {
        Ok(Some(installation)) => {
            let target = Target {
                root,
                installation: &installation,
            };
            let dir = installation.data_dir.display();
            found.fact(
                "distro",
                format!(
                    "{} at {dir} ({})",
                    installation.distro.as_str(),
                    installation.source
                ),
            );
            let services = detect::services(root, installation.distro, &installation.data_dir);
            let services = services.unwrap_or_else(|error| {
                found.problem(format!("{error:#}"));
                Vec::new()
            });
            let (registry, runs_agent) = check_settings(&target, services.first(), &mut found);
            let server = Server {
                registry: &registry,
                runs_agent,
            };
            check_service(&target, &services, &mut found);
            check_staging(&target, server, &mut found);
            check_images(&target, &registry, &mut found);
        }
        Ok(None) => found.note(
            "neither K3s nor RKE2 has data in its default directory: name it with --data-dir and --distro",
        ),
        Err(error) => found.problem(format!("{error:#}")),
    }
    check_vpn(root, &mut found);
    examination::check_multus(root, report, Path::new(DEFAULT_SOCKET_DIR), &mut found);
    found
}

/// Checks the distro's own configuration, as far as it affects Multus; returns the default registry, which may be empty, and whether
/// the server runs an agent.
fn check_settings(
    target: &Target<'_>,
    service: Option<&Service>,
    found: &mut Examination,
) -> (String, bool) {
    let distro = target.installation.distro;
    let settings = match service::settings(target.root, service, distro) {
        Ok(settings) => settings,
        Err(error) => {
            found.problem(format!("{error:#}"));
            return (String::new(), true);
        }
    };
    let name = distro.as_str();
    for manifest in plan::manifests(distro) {
        if is_disabled(&format!("{manifest}.yaml"), &settings.disable) {
            found.problem(format!(
                "{name} is configured to disable {manifest}: take it out of `disable` in {}, and restart",
                settings.place_text("disable")
            ));
        }
    }
    if settings.has_own_multus() {
        found.problem(format!(
            "rke2 brings its own multus, which takes the place of this one: take `multus` out of `cni` in {}, and restart",
            settings.place_text("cni")
        ));
    }
    if settings.disable_helm_controller {
        found.problem(format!(
            "{name} has no helm-controller, so nothing installs the charts: take `disable-helm-controller` out of {}, or install them with Helm",
            settings.place_text("disable-helm-controller")
        ));
    }
    if distro == Distro::K3s && settings.flannel_backend.as_deref() == Some("none") {
        found.note("flannel is off: pods wait until another default network is installed");
    }
    if settings.docker || settings.container_runtime_endpoint.is_some() {
        found.note(format!(
            "the runtime is not {name}'s own: it takes no images from the agent's directory, import them by hand"
        ));
    }
    let runs_agent = !settings.disable_agent;
    let registry = settings.registry;
    if let Err(error) = plan::registry(&registry) {
        found.problem(error);
        return (String::new(), runs_agent);
    }
    if !registry.is_empty() {
        found.fact("registry", format!("{registry}, before every image"));
    }
    (registry, runs_agent)
}

/// Checks how the distro is started: its units, our drop-in, and the hint that the last start left.
fn check_service(target: &Target<'_>, services: &[Service], found: &mut Examination) {
    let distro = target.installation.distro.as_str();
    for service in services {
        let Some(text) = &service.drop_in else {
            found.fact(
                "service",
                format!("{} starts {distro} without multus-distro", service.name),
            );
            continue;
        };
        found.fact(
            "service",
            format!("{} starts through multus-distro", service.name),
        );
        if unit::original_command(text) != Some(&service.command) {
            found.problem(format!(
                "{} has changed since its drop-in was made, and its present command is not used: run `multus-distro install` again",
                service.name
            ));
        }
        let start = unit::exec_start(std::slice::from_ref(text)).unwrap_or_default();
        let args = unit::split_args(&start);
        let program = args
            .first()
            .map(|arg| arg.trim_start_matches(['-', ':', '+', '!']));
        if let Some(program) = program.filter(|path| !target.root.is_executable(path)) {
            found.problem(format!(
                "{} starts {program}, which is not an executable file: put it there, or run `install` where it is",
                service.name
            ));
        }
    }
    if target.root.exists(Path::new(HINT)) && runtime::hint(target.root).is_none() {
        found.note(format!(
            "{HINT} is of a start that has ended: start the distro through multus-distro, or remove it"
        ));
    }
}

/// Checks what is staged on this server, and whether the distro will read it.
fn check_staging(target: &Target<'_>, mut server: Server<'_>, found: &mut Examination) {
    if !target.root.is_dir(target.data("server")) {
        found.fact("staging", "none: this node is not a server");
        return;
    }
    let record = match stage::read_record(target.root, &target.data("")) {
        Ok(record) => record,
        Err(error) => return found.problem(format!("{error:#}")),
    };
    // RKE2 writes its registry into the manifests itself.
    if target.installation.distro == Distro::Rke2 {
        server.registry = "";
    }
    let files = match plan::files(target.installation.distro, server) {
        Ok(files) => files,
        Err(error) => return found.problem(error.to_string()),
    };
    let again = "start the distro through multus-distro again";
    let (mut current, mut is_off) = (0, false);
    for file in &files {
        let path = target.data(&file.path);
        let recorded = recorded_checks(&record, &file.path);
        let present = target.root.read(&path, stage::MAX).ok();
        match stage::classify(&file.path, present.as_deref(), Some(&file.bytes), &recorded) {
            FileState::Current => current += 1,
            FileState::Absent if recorded.is_empty() => {}
            FileState::Absent => found.problem(format!(
                "{} was deleted: {again}, and check whether the distro is configured to disable it",
                path.display()
            )),
            FileState::Former => found.problem(format!(
                "{} is of another release, for another registry, or for a server with another `disable-agent`: {again}",
                path.display()
            )),
            FileState::Edited => found.note(format!(
                "{} was edited, which the next start undoes: change values with a HelmChartConfig",
                path.display()
            )),
            FileState::Foreign => found.problem(stage::foreign(&path)),
            FileState::Removal => is_off = true,
        }
    }
    found.fact(
        "staging",
        match (current, is_off) {
            (0, true) => "unstaged: `unstage --purge` removes the last file".to_owned(),
            (0, false) => "none: a start with `run --multus` stages it".to_owned(),
            _ => format!(
                "release {}, {current} of {} files",
                env!("CARGO_PKG_VERSION"),
                files.len()
            ),
        },
    );
    let staged: Vec<_> = files
        .iter()
        .filter(|file| file.path.starts_with(MANIFESTS))
        .map(|file| target.data(&file.path))
        .collect();
    for warning in stage::conflicts(target.root, &target.data(MANIFESTS), &staged).warnings() {
        found.problem(warning);
    }
}

/// Checks where this node gets the images of the charts from: archives that the distro imports, or a registry.
fn check_images(target: &Target<'_>, registry: &str, found: &mut Examination) {
    let dir = target.data(IMAGES_DIR);
    let names = target.root.list(&dir).unwrap_or_default();
    let ours: Vec<_> = names
        .iter()
        .filter_map(|name| Some((name, lists::architecture_of_archive(name)?)))
        .collect();
    let mut archived = Vec::new();
    for (name, of) in &ours {
        if *of != arch() {
            found.problem(format!(
                "{}/{name} is for another architecture than {}: remove it, and install the archive for this node",
                dir.display(),
                arch()
            ));
            continue;
        }
        match references(target.root, &dir.join(name)) {
            Ok(references) => archived.extend(references),
            Err(error) => found.problem(format!("{error:#}")),
        }
    }
    for image in assets::IMAGES {
        if archived.iter().any(|name| name == image) {
            found.fact(
                "images",
                format!("{image} is imported from {}", dir.display()),
            );
        } else if ours.is_empty() {
            let image = assets::with_registry(image, registry);
            found.fact(
                "images",
                format!("{image} is pulled: no archive is in {}", dir.display()),
            );
        } else {
            found.problem(format!(
                "no archive in {} holds {image}: run `images install` with the directory of this release",
                dir.display()
            ));
        }
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
            "{}/{name} is left of an installation that was interrupted: run it again",
            dir.display()
        ));
    }
}

/// Checks the VPN, where the node is on one.
fn check_vpn(root: &Root, found: &mut Examination) {
    if !VpnFiles::new(root).is_used() {
        return;
    }
    // Its program and the kernel would answer for another node.
    if root.name() != Path::new("/") {
        found.fact("vpn", "used; `vpn status` on the node itself examines it");
        return;
    }
    match report::report(root) {
        Ok((report, state)) => {
            found.fact("vpn", report.summary());
            for finding in findings(&report, state.as_ref()) {
                if finding.is_problem {
                    found.problem(finding.text);
                } else {
                    found.note(finding.text);
                }
            }
        }
        Err(error) => found.problem(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests;
