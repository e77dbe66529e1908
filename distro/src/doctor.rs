//! Checks of this node: each adds its findings, with hints, to an examination, and changes nothing.

use std::{
    fmt,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use api::{CONF_NAME, DEFAULT_CNI_DIR, DEFAULT_SOCKET_DIR, PATH_READYZ, SHIM_NAME, SOCKET_NAME};
use archive::lists;
use node::{
    discover::Report,
    root::{Root, proc_path},
    runtime::{self, HINT},
};
use serde::Serialize;
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

/// The findings about everything but the runtime and its directories.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Examination {
    /// A subject, and its state.
    facts: Vec<(&'static str, String)>,
    /// Findings that deserve attention although everything works.
    notes: Vec<String>,
    /// Faults, each with a hint.
    pub(crate) problems: Vec<String>,
}

impl Examination {
    fn fact(&mut self, subject: &'static str, text: impl Into<String>) {
        self.facts.push((subject, text.into()));
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (subject, text) in &self.facts {
            writeln!(f, "{subject:<14} {text}")?;
        }
        for note in &self.notes {
            writeln!(f, "note           {note}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem        {problem}")?;
        }
        Ok(())
    }
}

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
    check_daemons(root, &mut found);
    check_network(root, report, &mut found);
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

const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// More than any answer to a readiness probe.
const MAX_PROBE_ANSWER: u64 = 64 << 10;

/// Probes the daemons of this node: there are two of them during an update, and one that is not ready stops the update.
fn check_daemons(root: &Root, found: &mut Examination) {
    let dir = Path::new(DEFAULT_SOCKET_DIR);
    let names = root.list(dir).unwrap_or_default();
    let is_daemon = |name: &&String| {
        let id = name.strip_prefix("daemon-");
        id.is_some_and(|id| id.strip_suffix(".sock").is_some())
    };
    for name in names.iter().filter(is_daemon) {
        let socket = dir.join(name);
        match probe(root, &socket) {
            Ok((200, notes)) => notes.lines().for_each(|note| found.note(note)),
            Ok((_, reason)) => found.problem(format!(
                "the daemon at {} is not ready: {}",
                socket.display(),
                reason.trim()
            )),
            // The socket of a daemon that was killed; the next daemon removes it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => found.problem(format!(
                "the daemon at {} does not answer: {error}",
                socket.display()
            )),
        }
    }
}

/// Returns status and body of a daemon's answer about its readiness.
fn probe(root: &Root, socket: &Path) -> io::Result<(u16, String)> {
    let mut stream = connect(root, socket)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    let request = format!("GET {PATH_READYZ} HTTP/1.1\r\nHost: dummy\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(MAX_PROBE_ANSWER).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}

fn connect(root: &Root, socket: &Path) -> io::Result<UnixStream> {
    let (dir, name) = root.parent(socket).map_err(|error| error.source)?;
    UnixStream::connect(proc_path(&dir).join(name))
}

/// The chart's value that sets the directory of the shim.
const SHIM_DIR_VALUE: &str = "config.cni_conf.shimDir";

/// Checks what new pods need: the configuration that the runtime reads, the shim, and a daemon that answers it.
fn check_network(root: &Root, report: &Report, found: &mut Examination) {
    let Some(dirs) = &report.dirs else { return };
    let names = root.list(&dirs.conf_dir).unwrap_or_default();
    let is_configuration = |name: &&String| {
        [".conf", ".conflist", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let first = names.iter().find(is_configuration);
    let own = [CONF_NAME.to_owned(), format!("{CONF_NAME}list")];
    let own = own.iter().find(|own| names.iter().any(|name| name == *own));
    let socket = Path::new(DEFAULT_SOCKET_DIR).join(SOCKET_NAME);
    let answers = connect(root, &socket).is_ok();
    match (own, first) {
        (None, None) => found.note(format!(
            "no network is configured in {}: Multus waits for the default network",
            dirs.conf_dir.display()
        )),
        (None, Some(_)) => found.fact("multus", "not installed on this node yet: no configuration"),
        (Some(own), Some(first)) => {
            if first != own {
                found.problem(format!(
                    "{}/{first} comes before {own}, and pods get it alone: rename it to come after, or remove it",
                    dirs.conf_dir.display()
                ));
            }
            if !root.is_executable(dirs.install_dir.join(SHIM_NAME)) {
                found.problem(format!(
                    "{own} names {SHIM_NAME}, which is not in {}: the daemon puts it there as soon as it is ready; remove {SHIM_DIR_VALUE} from the chart's values where it names another directory",
                    dirs.install_dir.display()
                ));
            }
            let state = if answers {
                "answers"
            } else {
                "does not answer"
            };
            found.fact("multus", format!("{own} is in use, the daemon {state}"));
            if !answers {
                found.problem(format!(
                    "no daemon answers at {}, and new pods wait: look at `kubectl --namespace kube-system get pods --output wide` and the logs of the multus pod of this node",
                    socket.display()
                ));
            }
        }
        (Some(_), None) => {}
    }
    let pending = api::journal::dir(Path::new(DEFAULT_CNI_DIR));
    let pending = root.list(pending).unwrap_or_default();
    if !pending.is_empty() {
        found.note(format!(
            "{} removals of pods wait for the daemon, which does them before anything else",
            pending.len()
        ));
    }
}

#[cfg(test)]
mod tests;
