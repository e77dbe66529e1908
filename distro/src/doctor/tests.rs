//! Nodes with one fault each, and the finding about it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use node::dirs::{CniDirs, Source};

use super::*;
use crate::{plan, stage};

/// A server of K3s without a fault, except that there is no daemon.
struct Case {
    dir: tempfile::TempDir,
}

const DATA: &str = "var/lib/rancher/k3s";

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join(DATA);
        Self::stage(&data, true);
        Self { dir }
    }

    fn stage(data: &Path, runs_agent: bool) {
        let server = Server {
            registry: "",
            runs_agent,
        };
        let files = plan::files(Distro::K3s, server).unwrap();
        stage::stage(&Root::open("/").unwrap(), data, &files).unwrap();
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn report() -> Report {
        Report {
            dirs: Some(CniDirs {
                bin_dirs: vec![PathBuf::from("/bin-dir")],
                install_dir: "/bin-dir".into(),
                conf_dir: "/conf-dir".into(),
                source: Source::CniConfig,
            }),
            ..Report::default()
        }
    }

    fn examine(&self) -> Examination {
        let root = Root::open(self.dir.path()).unwrap();
        examine(&root, &Self::report(), None, None)
    }

    #[track_caller]
    fn has_problem(&self, parts: &[&str]) {
        let found = self.examine();
        let matches = |problem: &&String| parts.iter().all(|part| problem.contains(part));
        assert_eq!(found.problems.iter().filter(matches).count(), 1, "{found}");
        assert_eq!(found.problems.len(), 1, "{found}");
    }

    #[track_caller]
    fn has_note(&self, parts: &[&str]) {
        let found = self.examine();
        let matches = |note: &&String| parts.iter().all(|part| note.contains(part));
        assert_eq!(found.notes.iter().filter(matches).count(), 1, "{found}");
        assert!(found.problems.is_empty(), "{found}");
    }
}

#[test]
fn report_of_a_healthy_server_fits_on_a_screen() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    let found = case.examine();
    assert!(
        found.problems.is_empty() && found.notes.is_empty(),
        "{found}"
    );
    let text = found.to_string();
    assert!(
        text.contains("k3s at /var/lib/rancher/k3s (the default directory)"),
        "{text}"
    );
    assert!(text.contains("3 of 3 files"), "{text}");
    assert!(text.lines().count() < 12);
}

#[test]
fn faults_of_staging_are_found() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    case.write(&format!("{DATA}/server/manifests/multus.yaml.skip"), "");
    case.has_problem(&["multus.yaml.skip", "remove it"]);

    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    case.write(&format!("{DATA}/server/manifests/mine/multus.yml"), "");
    case.has_problem(&["mine/multus.yml", "same Addon"]);

    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    fs::remove_file(
        case.dir
            .path()
            .join(DATA)
            .join("server/manifests/multus.yaml"),
    )
    .unwrap();
    case.has_problem(&["multus.yaml was deleted"]);

    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    case.write(&format!("{DATA}/server/manifests/multus.yaml"), "edited");
    case.has_note(&["was edited", "HelmChartConfig"]);
}

#[test]
fn manifest_for_a_server_without_agent_is_expected_there_alone() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    let manifest = format!("{DATA}/server/manifests/multus.yaml");
    let config = "etc/rancher/k3s/config.yaml";
    case.write(config, "disable-agent: true");
    case.has_problem(&["another `disable-agent`", &manifest]);
    Case::stage(&case.dir.path().join(DATA), false);
    let found = case.examine();
    assert!(found.problems.is_empty(), "{found}");
    case.write(config, "disable-agent: false");
    case.has_problem(&["another `disable-agent`", &manifest]);
}

#[test]
fn settings_that_prevent_multus_are_found() {
    for (text, parts) in [
        ("disable: [multus]", ["disable multus", "take it out"]),
        (
            "disable-helm-controller: true",
            ["no helm-controller", "config.yaml"],
        ),
        (
            "system-default-registry: r.example",
            ["for another registry", "multus.yaml"],
        ),
        (
            "system-default-registry: https://r.example",
            ["without a scheme", "leave https:// out"],
        ),
        ("not: [closed", ["config.yaml", "correct it"]),
    ] {
        let case = Case::new();
        case.write("conf-dir/10-primary.conflist", "");
        case.write("etc/rancher/k3s/config.yaml", text);
        case.has_problem(&parts);
    }
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    case.write("etc/rancher/k3s/config.yaml", "flannel-backend: none");
    case.has_note(&["flannel is off"]);
}

#[test]
fn settings_are_those_that_the_environment_of_the_unit_names() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    case.write(
        "etc/systemd/system/k3s.service",
        "[Service]\nEnvironment=K3S_CONFIG_FILE=/etc/k3s.yaml\nEnvironmentFile=/etc/k3s.env\nExecStart=/usr/local/bin/k3s server\n",
    );
    case.write("etc/k3s.env", "K3S_SYSTEM_DEFAULT_REGISTRY=r.example\n");
    case.write("etc/k3s.yaml", "disable-helm-controller: true");
    let found = case.examine();
    assert!(found.problems[0].contains("/etc/k3s.yaml"), "{found}");
    assert!(
        found.problems[1].contains("for another registry"),
        "{found}"
    );
}

#[test]
fn links_lead_to_where_they_lead_on_the_node() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    let data = case.dir.path().join(DATA);
    fs::create_dir(case.dir.path().join("disk")).unwrap();
    fs::rename(&data, case.dir.path().join("disk/k3s")).unwrap();
    std::os::unix::fs::symlink("/disk/k3s", &data).unwrap();
    let found = case.examine();
    assert!(found.to_string().contains("3 of 3 files"), "{found}");
}

#[test]
fn drop_in_is_compared_with_the_unit() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    let unit = "etc/systemd/system/k3s.service";
    case.write(unit, "[Service]\nExecStart=/usr/local/bin/k3s server\n");
    assert!(
        case.examine()
            .to_string()
            .contains("k3s.service starts k3s without multus-distro")
    );
    let drop_in = |command: &str| {
        let program = Path::new("/usr/local/bin/multus-distro");
        crate::unit::drop_in(program, command, &["--multus".to_owned()]).unwrap()
    };
    let drop_in_path = "etc/systemd/system/k3s.service.d/90-multus.conf";
    case.write(drop_in_path, &drop_in("/usr/local/bin/k3s server"));
    case.has_problem(&["starts /usr/local/bin/multus-distro, which is not an executable file"]);
    case.write("usr/local/bin/multus-distro", "");
    assert!(case.examine().problems.is_empty());
    case.write(drop_in_path, &drop_in("/usr/local/bin/k3s server --old"));
    case.has_problem(&["k3s.service has changed", "`multus-distro install` again"]);
}

#[test]
fn archives_and_lists_are_found() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    assert!(case.examine().to_string().contains("is pulled: no archive"));
    let images = format!("{DATA}/agent/images");
    case.write(
        &format!("{images}/multus-images.linux-{}.txt", crate::images::arch()),
        "",
    );
    case.has_note(&["has the distro pull its images"]);
    case.write(&format!("{images}/multus-airgap-images-riscv64.tar"), "");
    let found = case.examine();
    assert!(
        found.problems[0].contains("for another architecture"),
        "{found}"
    );
    assert!(found.problems[1].contains("`images install`"), "{found}");
}

#[test]
fn faults_that_affect_new_pods_are_found() {
    let case = Case::new();
    case.has_note(&["no network is configured in /conf-dir"]);
    case.write("conf-dir/00-multus.conf", "");
    case.write("conf-dir/10-primary.conflist", "");
    case.write("bin-dir/multus-shim", "");
    case.has_problem(&["no daemon answers at /run/multus/multus.sock"]);
    fs::create_dir_all(case.dir.path().join("run/multus")).unwrap();
    let socket = case.dir.path().join("run/multus/multus.sock");
    let _daemon = std::os::unix::net::UnixListener::bind(socket).unwrap();
    assert!(case.examine().problems.is_empty());
    case.write("conf-dir/00-a.conflist", "");
    case.has_problem(&["00-a.conflist comes before 00-multus.conf"]);
    fs::remove_file(case.dir.path().join("conf-dir/00-a.conflist")).unwrap();
    fs::remove_file(case.dir.path().join("bin-dir/multus-shim")).unwrap();
    case.has_problem(&["multus-shim, which is not in /bin-dir"]);
}

#[test]
fn node_without_distro_asks_for_options() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    let found = examine(&root, &Report::default(), None, None);
    assert!(found.notes[0].contains("--data-dir"), "{found}");
}

/// A daemon that answers one probe.
fn daemon(case: &Case, name: &str, status: u16, body: &'static str) -> std::thread::JoinHandle<()> {
    let dir = case.dir.path().join("run/multus");
    fs::create_dir_all(&dir).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(dir.join(name)).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 512];
        std::io::Read::read(&mut stream, &mut request).unwrap();
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        std::io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
    })
}

#[test]
fn daemon_that_is_not_ready_is_a_problem_with_its_reason() {
    let case = Case::new();
    let reason = "discovery: config.cni_conf.shimDir is /x, but the runtime itself looks for plugins in /opt/cni/bin";
    let thread = daemon(&case, "daemon-u1.sock", 500, reason);
    case.has_problem(&[
        "/run/multus/daemon-u1.sock is not ready",
        "config.cni_conf.shimDir is /x",
    ]);
    thread.join().unwrap();
    // Its socket is left, and nothing listens there.
    case.write("conf-dir/10-primary.conflist", "");
    assert!(case.examine().problems.is_empty());
}

#[test]
fn notes_of_a_daemon_are_notes() {
    let case = Case::new();
    case.write("conf-dir/10-primary.conflist", "");
    let thread = daemon(&case, "daemon-u1.sock", 200, "the CRD is not installed");
    case.has_note(&["the CRD is not installed"]);
    thread.join().unwrap();
}
