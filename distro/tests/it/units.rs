//! `install` on a node with a unit.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::Output,
    thread,
};

use node::{
    install::{CONFIGURATIONS_RECORD, Installation},
    record::{Hash, Record},
    root::Root,
};
use tempfile::TempDir;

use super::{path, run};

/// A node's file tree, with a program where the drop-ins of these tests start one.
struct Node(TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().expect("a directory of the test"));
        node.write("/opt/multus-distro", "");
        node.mode("/opt/multus-distro", 0o755);
        node
    }

    /// A node with K3s' unit.
    fn with_unit() -> Self {
        let node = Self::new();
        node.write(K3S, UNIT);
        node
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a file of the test")).expect("a file of the test");
        fs::write(path, text).expect("a file of the test");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).expect("a file of the test")
    }

    fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode))
            .expect("a file of the test");
    }

    /// Makes a link at the path, and the directory above it.
    fn link(&self, target: &str, at: &str) -> PathBuf {
        let at = self.at(at);
        fs::create_dir_all(at.parent().expect("a file of the test")).expect("a file of the test");
        symlink(target, &at).expect("a file of the test");
        at
    }

    fn run(&self, args: &[&str]) -> Output {
        run(&[args, &["--root", path(self.0.path())]].concat())
    }

    fn install(&self, more: &[&str]) -> Output {
        self.run(&[&["install", "--program", "/opt/multus-distro"], more].concat())
    }

    fn remove(&self, more: &[&str]) -> Output {
        self.run(&[&["uninstall"], more].concat())
    }

    /// Asserts that doctor prints a text.
    fn has(&self, expected: &str) {
        let text = String::from_utf8(self.run(&["doctor"]).stdout).expect("it writes UTF-8");
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

/// Stages into a directory of this machine.
fn stage(data: &Path) {
    let stage = ["stage", "--multus", "--distro", "k3s", "--data-dir"];
    assert!(run(&[&stage[..], &[path(data)]].concat()).status.success());
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("the program writes UTF-8")
}

const K3S: &str = "/etc/systemd/system/k3s.service";
const DROP_IN: &str = "/etc/systemd/system/k3s.service.d/90-multus.conf";
const UNIT: &str = "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n";

#[test]
fn remove_unstages_where_the_environment_file_of_the_unit_has_the_data() {
    let node = Node::new();
    // What K3s' installer writes.
    let files =
        "EnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\n";
    node.write(K3S, &UNIT.replace("\nExec", &format!("\n{files}Exec")));
    let variables = "K3S_TOKEN='x'\nK3S_DATA_DIR='/data/k3s'\n";
    node.write("/etc/systemd/system/k3s.service.env", variables);
    assert!(node.install(&[]).status.success());
    stage(&node.at("/data/k3s"));
    node.has("k3s at /data/k3s (its unit)");
    let output = node.remove(&[]);
    assert!(output.status.success(), "{output:?}");
    let manifest = node.read("/data/k3s/server/manifests/multus.yaml");
    assert!(manifest.starts_with("# removed"), "{manifest}");
}

#[test]
fn environment_files_and_drop_ins_are_found_as_systemd_finds_them() {
    let node = Node::new();
    let write = |path: &str, text: &str| node.write(path, text);
    let has = |expected: &str| node.has(expected);
    let unit = "/etc/systemd/system/rke2-server.service";
    write(
        unit,
        "[Service]\nExecStart=/bin/rke2 server\nEnvironmentFile=-/etc/sysconfig/rke2*\n",
    );
    has("rke2 at /var/lib/rancher/rke2 (its unit)");
    // Files of a pattern count in the order of their names, and hidden ones do not count.
    write("/etc/sysconfig/rke2", "RKE2_DATA_DIR=/first\n");
    write("/etc/sysconfig/rke2-server", "RKE2_DATA_DIR=/second\n");
    write("/etc/sysconfig/.rke2", "RKE2_DATA_DIR=/hidden\n");
    has("rke2 at /second (its unit)");
    // A drop-in for all units of the distro, by the name of this one, below the root.
    let outside = tempfile::tempdir().unwrap();
    let env = outside.path().join("env");
    fs::write(&env, "RKE2_DATA_DIR=/outside\n").unwrap();
    write(path(&env), "RKE2_DATA_DIR=/third\n");
    node.link(path(&env), "/etc/default/server");
    let drop_in = "/etc/systemd/system/rke2-.service.d/10-env.conf";
    write(drop_in, "[Service]\nEnvironmentFile=/etc/default/%j\n");
    has("rke2 at /third (its unit)");
    write(
        "/usr/lib/systemd/system/service.d/20-data.conf",
        "[Service]\nExecStart=\nExecStart=/bin/rke2 server --data-dir %S/%j\n",
    );
    has("rke2 at /var/lib/server (its unit)");
    // A link to /dev/null in a directory that counts more switches the drop-in off.
    let null = "/etc/systemd/system/rke2-server.service.d/20-data.conf";
    node.link("/dev/null", null);
    has("rke2 at /third (its unit)");
    // The unit does not start without a file that is not optional.
    write(drop_in, "[Service]\nEnvironmentFile=/etc/none/*\n");
    has("rke2-server.service does not start without /etc/none/*");
    fs::remove_file(node.at(drop_in)).unwrap();
    has("rke2 at /second (its unit)");
}

/// RKE2's bundle has the units of both roles, whichever the node has.
#[test]
fn enabled_one_of_several_units_gets_the_drop_in_and_the_one_with_it_loses_it() {
    let node = Node::new();
    let vendor = "/usr/local/lib/systemd/system";
    for role in ["server", "agent"] {
        let unit = format!("[Service]\nExecStart=/usr/local/bin/rke2 {role}\n");
        node.write(&format!("{vendor}/rke2-{role}.service"), &unit);
    }
    let refused = error(&node.install(&[]));
    let cure = "rke2-server.service and rke2-agent.service are installed: enable the one that starts with Multus (systemctl enable), or name it with --unit";
    assert!(refused.contains(cure), "{refused}");
    let enabled = "/etc/systemd/system/multi-user.target.wants/rke2-agent.service";
    let link = node.link(&format!("{vendor}/rke2-agent.service"), enabled);
    let output = node.install(&[]);
    let drop_in = "/etc/systemd/system/rke2-agent.service.d/90-multus.conf";
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{drop_in}\n")
    );
    // A node is often disabled before it is cleaned.
    fs::remove_file(link).unwrap();
    let removed = node.remove(&[]);
    assert!(removed.status.success(), "{removed:?}");
    assert!(!node.at(drop_in).exists());
}

#[test]
fn enabled_one_of_several_units_counts_unless_all_have_the_same_data() {
    let node = Node::new();
    let write = |path: &str, text: &str| node.write(path, text);
    let has = |expected: &str| node.has(expected);
    // RKE2's bundle has both units, each with an environment file of its own.
    let vendor = "/usr/local/lib/systemd/system";
    for role in ["server", "agent"] {
        let unit = format!(
            "[Service]\nEnvironmentFile=-{vendor}/%N.env\nExecStart=/usr/local/bin/rke2 {role}\n"
        );
        write(&format!("{vendor}/rke2-{role}.service"), &unit);
    }
    has("rke2 at /var/lib/rancher/rke2 (its unit)");
    has("rke2-server.service starts rke2 without multus-distro");
    let environment = "RKE2_DATA_DIR=/data/rke2\nRKE2_CONFIG_FILE=/etc/server.yaml\n";
    write(&format!("{vendor}/rke2-server.env"), environment);
    write(
        "/etc/server.yaml",
        "disable: [rke2-multus]\ndisable-helm-controller: true\n",
    );
    has(
        "rke2-server.service has its data in /data/rke2, and rke2-agent.service in /var/lib/rancher/rke2: \
         enable the one that starts, or name its directory, as with --distro rke2 --data-dir /data/rke2",
    );
    let enabled = "/etc/systemd/system/multi-user.target.wants";
    let enable = |unit: &str| node.link(&format!("{vendor}/{unit}"), &format!("{enabled}/{unit}"));
    let link = enable("rke2-server.service");
    has("rke2 at /data/rke2 (its unit)");
    has("take `disable-helm-controller` out of /etc/server.yaml");
    fs::remove_file(link).unwrap();
    enable("rke2-agent.service");
    has("rke2 at /var/lib/rancher/rke2 (its unit)");
    has("rke2-agent.service starts rke2 without multus-distro");
    // A masked unit does not start, whatever wants it.
    node.link("/dev/null", "/etc/systemd/system/rke2-agent.service");
    has("rke2 at /data/rke2 (its unit)");
}

#[test]
fn a_program_of_another_name_keeps_its_distro() {
    let node = Node::new();
    node.write(K3S, "[Service]\nExecStart=/opt/bin/k3s-1.33 server\n");
    let refused = node.install(&[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(error(&refused).contains("--distro"), "{refused:?}");
    assert!(!node.at(DROP_IN).exists());
    // The second one finds the distro in the drop-in of the first.
    for more in [&["--distro", "k3s"][..], &["--vpn-auth-file", "/none"], &[]] {
        node.install(more);
        let text = node.read(DROP_IN);
        let start = "/opt/multus-distro run --multus --distro k3s -- /opt/bin/k3s-1.33 server\n";
        assert!(text.ends_with(start), "{text}");
    }
    assert!(node.remove(&[]).status.success());
}

#[test]
fn an_edited_manifest_keeps_everything_until_it_may_go() {
    let node = Node::with_unit();
    node.write("/etc/vpn", "name=tailscale,joinKey=tskey-auth-Abc123");
    node.mode("/etc/vpn", 0o600);
    let output = node.install(&["--multus", "--vpn-auth-file", "/etc/vpn"]);
    assert!(output.status.success(), "{output:?}");
    stage(&node.at("/var/lib/rancher/k3s"));
    let manifest = "/var/lib/rancher/k3s/server/manifests/multus.yaml";
    node.write(manifest, "edited: true\n");
    let refused = node.remove(&[]);
    assert!(error(&refused).contains("--force"), "{refused:?}");
    let vpn_unit = node.at("/etc/systemd/system/multus-vpn.service");
    assert!(vpn_unit.exists() && node.at(DROP_IN).exists());
    assert_eq!(node.read(manifest), "edited: true\n");
    let output = node.remove(&["--force"]);
    assert!(output.status.success(), "{output:?}");
    assert!(!vpn_unit.exists() && !node.at(DROP_IN).exists());
    assert!(node.read(manifest).starts_with("# removed"));
}

/// Each of these keeps the next start from doing what was asked for.
#[test]
fn install_names_what_the_next_start_meets() {
    let other = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: multus}\nspec: {chart: rke2-multus}\n";
    for (file, text, words) in [
        ("server/manifests/own.yaml", other, "has HelmChart multus"),
        (
            "server/manifests/multus.yaml.skip",
            "",
            "from reading the staged manifest",
        ),
        (
            "../../../../etc/rancher/k3s/config.yaml",
            "vpn-auth-file: /x\n",
            "would start the VPN too",
        ),
    ] {
        let node = Node::with_unit();
        node.write("/etc/vpn", "name=tailscale,joinKey=tskey-auth-Abc123");
        node.mode("/etc/vpn", 0o600);
        node.write("/var/lib/rancher/k3s/x", "");
        node.write(&format!("/var/lib/rancher/k3s/{file}"), text);
        let output = node.install(&["--multus", "--vpn-auth-file", "/etc/vpn"]);
        assert!(output.status.success(), "{output:?}");
        let notes = error(&output);
        assert!(notes.contains(words), "{words}: {notes}");
    }
}

#[test]
fn install_names_a_manifest_of_somebody_else_before_the_restart() {
    let node = Node::with_unit();
    let manifest = "/var/lib/rancher/k3s/server/manifests/multus.yaml";
    node.write(manifest, "kind: Namespace\n");
    let output = node.install(&[]);
    assert!(output.status.success(), "{output:?}");
    let notes = error(&output);
    for words in [
        "before the restart: ",
        "multus.yaml is not of",
        "prune=false",
    ] {
        assert!(notes.contains(words), "{notes}");
    }
}

#[test]
fn remove_works_after_the_distro_was_uninstalled() {
    let node = Node::with_unit();
    let file = "/etc/multus-vpn.auth";
    let install = || node.install(&["--vpn-auth-file", file]);
    // Settings that cannot work are refused now, not at the next boot.
    let refused = |words: &str| {
        let output = install();
        let error = error(&output);
        assert!(!output.status.success() && error.contains(words), "{error}");
    };
    refused("cannot read the VPN's settings from /etc/multus-vpn.auth");
    node.write(file, "name=netmaker");
    node.mode(file, 0o644);
    refused("chmod 600");
    node.mode(file, 0o600);
    refused("cannot use /etc/multus-vpn.auth");
    node.write(file, "name=tailscale");
    assert!(install().status.success());
    // k3s-uninstall.sh removes the unit and leaves its drop-ins.
    fs::remove_file(node.at(K3S)).unwrap();
    let theirs = "/etc/systemd/system/other.service.d/90-multus.conf";
    node.write(theirs, "[Service]\n");
    let output = node.remove(&[]);
    assert!(output.status.success(), "{output:?}");
    assert!(!node.at("/etc/systemd/system/k3s.service.d").exists());
    assert!(!node.at("/etc/systemd/system/multus-vpn.service").exists());
    assert!(node.at(theirs).exists(), "a file of somebody else");
    let error = error(&node.remove(&[]));
    assert!(error.contains("no unit of K3s or RKE2"), "{error}");
}

#[test]
fn remove_deletes_the_files_of_a_daemon_that_ended_with_its_distro() {
    let node = Node::new();
    let root = Root::open(node.at("/")).unwrap();
    let files = [
        "/var/lib/multus/bin/passthru",
        "/etc/cni/net.d/00-multus.conf",
    ];
    let install = || {
        let installation = Installation::multiplexer(&root);
        let dir = Path::new("/var/lib/multus/bin");
        root.make_dirs(dir, 0o755).unwrap();
        installation.install(dir, "passthru", b"program").unwrap();
        node.write(files[1], "{}");
        let mut record = Record::read(&root, Path::new(CONFIGURATIONS_RECORD));
        record
            .set(Path::new(files[1]), &[&Hash::of(b"{}")])
            .unwrap();
    };
    install();
    // A daemon that serves is not of the distro that is gone.
    fs::create_dir_all(node.at("/run/multus")).unwrap();
    let path = node.at("/run/multus/multus.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let error = error(&node.remove(&[]));
    assert!(error.contains("no unit of K3s or RKE2"), "{error}");
    assert!(node.at(files[0]).exists() && node.at(files[1]).exists());

    drop(socket);
    // A process that another test starts has the socket as well until its program runs.
    while UnixStream::connect(&path).is_ok() {
        thread::yield_now();
    }
    let output = node.remove(&[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{}\n{}\n", files[1], files[0])
    );
    for gone in ["/var/lib/multus", "/run/multus", files[1]] {
        assert!(!node.at(gone).exists(), "{gone}");
    }

    install();
    node.write(files[1], "of somebody else");
    node.write("/var/lib/multus/note", "");
    assert!(node.remove(&[]).status.success());
    assert!(!node.at(files[0]).exists() && node.at(files[1]).exists());
    assert!(node.at("/var/lib/multus/note").exists());
}

#[test]
fn remove_follows_links_inside_the_root_alone() {
    let node = Node::with_unit();
    let outside = tempfile::tempdir().unwrap();
    assert!(node.install(&[]).status.success());
    // The path that the link names exists on this machine as well as below the root.
    let inside = node.at(path(outside.path()));
    stage(outside.path());
    stage(&inside);
    node.link(path(outside.path()), "/var/lib/rancher/k3s");
    let output = node.remove(&[]);
    assert!(output.status.success(), "{output:?}");
    let manifest =
        |data: &Path| fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap();
    assert!(!manifest(outside.path()).starts_with("# removed"));
    assert!(manifest(&inside).starts_with("# removed"));
}

#[test]
fn install_writes_a_drop_in_and_remove_deletes_it() {
    let node = Node::new();
    let installed = || error(&node.install(&[]));
    assert!(installed().contains("install the distro first"));
    node.write("/etc/init.d/k3s-agent", "");
    let openrc = installed();
    assert!(
        openrc.contains("put `run --multus -- /usr/local/bin/k3s` before"),
        "{openrc}"
    );
    node.write(K3S, UNIT);
    let drop_in = "/etc/systemd/system/k3s.service.d/90-multus.conf";
    let output = node.install(&[]);
    let notes = error(&output);
    assert!(
        notes.contains("systemctl daemon-reload && systemctl restart k3s.service"),
        "{notes}"
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{drop_in}\n")
    );
    let text = node.read(drop_in);
    assert!(
        text.ends_with("ExecStart=/opt/multus-distro run --multus -- /usr/local/bin/k3s server\n"),
        "{text}"
    );
    assert!(installed().contains("is up to date"));
    node.write("/etc/systemd/system/k3s-agent.service", UNIT);
    assert!(installed().contains("enable the one that starts with Multus"));
    // Removing the drop-in also unstages.
    stage(&node.at("/var/lib/rancher/k3s"));
    let hint = "/run/multus-distro/node.json";
    node.write(hint, "{}");
    let remove = || node.remove(&["--unit", "k3s.service"]);
    let output = remove();
    assert!(output.status.success(), "{output:?}");
    assert!(!node.at(hint).exists(), "the next start does not write it");
    assert!(error(&output).contains("plan: empty "));
    assert!(!node.at("/etc/systemd/system/k3s.service.d").exists());
    let manifest = node.read("/var/lib/rancher/k3s/server/manifests/multus.yaml");
    assert!(manifest.starts_with("# removed"));
    assert!(error(&remove()).contains("does not have a drop-in of multus-distro"));
}
