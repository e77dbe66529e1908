//! `install` on a node with a unit.

use std::fs;

use super::{path, run};

/// Puts a program where the drop-ins of these tests start one.
fn with_program(root: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let program = root.join("opt/multus-distro");
    fs::create_dir_all(root.join("opt"))?;
    fs::write(&program, "")?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
}

const UNIT: &str = "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n";

#[test]
fn remove_unstages_where_the_environment_file_of_the_unit_has_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    with_program(dir.path()).unwrap();
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    fs::create_dir_all(at("/etc/systemd/system")).unwrap();
    // What K3s' installer writes.
    let files =
        "EnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\n";
    let unit = UNIT.replace("\nExec", &format!("\n{files}Exec"));
    fs::write(at("/etc/systemd/system/k3s.service"), unit).unwrap();
    let variables = "K3S_TOKEN='x'\nK3S_DATA_DIR='/data/k3s'\n";
    fs::write(at("/etc/systemd/system/k3s.service.env"), variables).unwrap();
    let install = ["install", "--root", root, "--program", "/opt/multus-distro"];
    assert!(run(&install).status.success());
    let data = at("/data/k3s");
    let data_dir = path(&data);
    let stage = [
        "stage",
        "--multus",
        "--distro",
        "k3s",
        "--data-dir",
        data_dir,
    ];
    assert!(run(&stage).status.success());
    let doctor = String::from_utf8(run(&["doctor", "--root", root]).stdout).unwrap();
    assert!(doctor.contains("k3s at /data/k3s (its unit)"), "{doctor}");
    let output = run(&["install", "--remove", "--root", root]);
    assert!(output.status.success(), "{output:?}");
    let manifest = fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap();
    assert!(manifest.starts_with("# removed"), "{manifest}");
}

#[test]
fn environment_files_and_drop_ins_are_found_as_systemd_finds_them() {
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let write = |path: &str, text: &str| {
        let path = at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let has = |expected: &str| {
        let output = run(&["doctor", "--root", root]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(expected), "{expected}: {text}");
    };
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
    fs::create_dir_all(at("/etc/default")).unwrap();
    std::os::unix::fs::symlink(&env, at("/etc/default/server")).unwrap();
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
    fs::create_dir_all(at(null).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/null", at(null)).unwrap();
    has("rke2 at /third (its unit)");
    // The unit does not start without a file that is not optional.
    write(drop_in, "[Service]\nEnvironmentFile=/etc/none/*\n");
    has("rke2-server.service does not start without /etc/none/*");
    fs::remove_file(at(drop_in)).unwrap();
    has("rke2 at /second (its unit)");
}

#[test]
fn of_several_units_the_enabled_one_counts_unless_all_have_the_same_data() {
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let write = |path: &str, text: &str| {
        let path = at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let has = |expected: &str| {
        let output = run(&["doctor", "--root", root]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(expected), "{expected}: {text}");
    };
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
    let enable = |unit: &str| {
        fs::create_dir_all(at(enabled)).unwrap();
        let link = at(enabled).join(unit);
        std::os::unix::fs::symlink(format!("{vendor}/{unit}"), &link).unwrap();
        link
    };
    let link = enable("rke2-server.service");
    has("rke2 at /data/rke2 (its unit)");
    has("take `disable-helm-controller` out of /etc/server.yaml");
    fs::remove_file(link).unwrap();
    enable("rke2-agent.service");
    has("rke2 at /var/lib/rancher/rke2 (its unit)");
    has("rke2-agent.service starts rke2 without multus-distro");
    // A masked unit does not start, whatever wants it.
    let mask = at("/etc/systemd/system/rke2-agent.service");
    std::os::unix::fs::symlink("/dev/null", mask).unwrap();
    has("rke2 at /data/rke2 (its unit)");
}

#[test]
fn install_names_a_manifest_of_somebody_else_before_the_restart() {
    let dir = tempfile::tempdir().unwrap();
    with_program(dir.path()).unwrap();
    let manifests = dir.path().join("var/lib/rancher/k3s/server/manifests");
    fs::create_dir_all(&manifests).unwrap();
    fs::write(manifests.join("multus.yaml"), "kind: Namespace\n").unwrap();
    let units = dir.path().join("etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("k3s.service"), UNIT).unwrap();
    let root = path(dir.path());
    let output = run(&["install", "--root", root, "--program", "/opt/multus-distro"]);
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8(output.stderr).unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    with_program(dir.path()).unwrap();
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    fs::create_dir_all(at("/etc/systemd/system/other.service.d")).unwrap();
    let unit = at("/etc/systemd/system/k3s.service");
    fs::write(&unit, UNIT).unwrap();
    let vpn = ["--vpn-auth-file", "/etc/multus-vpn.auth"];
    let install = ["install", "--root", root, "--program", "/opt/multus-distro"];
    // Settings that cannot work are refused now, not at the next boot.
    let refused = |words: &str| {
        let output = run(&[&install[..], &vpn].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(words), "{error}");
    };
    refused("cannot read the VPN's settings from /etc/multus-vpn.auth");
    let file = at("/etc/multus-vpn.auth");
    fs::write(&file, "name=netmaker").unwrap();
    refused("chmod 600");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    refused("cannot use /etc/multus-vpn.auth");
    fs::write(&file, "name=tailscale").unwrap();
    assert!(run(&[&install[..], &vpn].concat()).status.success());
    // k3s-uninstall.sh removes the unit and leaves its drop-ins.
    fs::remove_file(unit).unwrap();
    let theirs = at("/etc/systemd/system/other.service.d/90-multus.conf");
    fs::write(&theirs, "[Service]\n").unwrap();
    let remove = ["install", "--remove", "--root", root];
    let output = run(&remove);
    assert!(output.status.success(), "{output:?}");
    assert!(!at("/etc/systemd/system/k3s.service.d").exists());
    assert!(!at("/etc/systemd/system/multus-vpn.service").exists());
    assert!(theirs.exists(), "a file of somebody else");
    let error = String::from_utf8(run(&remove).stderr).unwrap();
    assert!(error.contains("no unit of K3s or RKE2"), "{error}");
}

#[test]
fn remove_follows_links_inside_the_root_alone() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    with_program(dir.path()).unwrap();
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    fs::create_dir_all(at("/etc/systemd/system")).unwrap();
    fs::write(at("/etc/systemd/system/k3s.service"), UNIT).unwrap();
    let install = ["install", "--root", root, "--program", "/opt/multus-distro"];
    assert!(run(&install).status.success());
    // The path that the link names exists on this machine as well as below the root.
    let inside = at(path(outside.path()));
    for data in [outside.path(), &inside] {
        let data = path(data);
        let stage = ["stage", "--multus", "--distro", "k3s", "--data-dir", data];
        assert!(run(&stage).status.success());
    }
    fs::create_dir_all(at("/var/lib/rancher")).unwrap();
    std::os::unix::fs::symlink(outside.path(), at("/var/lib/rancher/k3s")).unwrap();
    let output = run(&["install", "--remove", "--root", root]);
    assert!(output.status.success(), "{output:?}");
    let manifest = |data: &std::path::Path| {
        fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap()
    };
    assert!(!manifest(outside.path()).starts_with("# removed"));
    assert!(manifest(&inside).starts_with("# removed"));
}

#[test]
fn install_writes_a_drop_in_and_remove_deletes_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    with_program(dir.path()).unwrap();
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let error = |args: &[&str]| String::from_utf8(run(args).stderr).unwrap();
    let install = ["install", "--root", root, "--program", "/opt/multus-distro"];
    assert!(error(&install).contains("install the distro first"));
    fs::create_dir_all(at("/etc/init.d")).unwrap();
    fs::write(at("/etc/init.d/k3s-agent"), "").unwrap();
    let openrc = error(&install);
    assert!(
        openrc.contains("put `agent --multus -- /usr/local/bin/k3s` before"),
        "{openrc}"
    );
    fs::create_dir_all(at("/etc/systemd/system")).unwrap();
    fs::write(at("/etc/systemd/system/k3s.service"), UNIT).unwrap();
    let drop_in = "/etc/systemd/system/k3s.service.d/90-multus.conf";
    let output = run(&install);
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(
        notes.contains("systemctl daemon-reload && systemctl restart k3s.service"),
        "{notes}"
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{drop_in}\n")
    );
    let text = fs::read_to_string(at(drop_in)).unwrap();
    assert!(
        text.ends_with(
            "ExecStart=/opt/multus-distro server --multus -- /usr/local/bin/k3s server\n"
        ),
        "{text}"
    );
    assert!(error(&install).contains("is up to date"));
    fs::write(at("/etc/systemd/system/k3s-agent.service"), UNIT).unwrap();
    assert!(error(&install).contains("choose the one that starts with Multus, with --unit"));
    // Removing the drop-in also unstages.
    let data = at("/var/lib/rancher/k3s");
    let stage = [
        "stage",
        "--multus",
        "--distro",
        "k3s",
        "--data-dir",
        path(&data),
    ];
    assert!(run(&stage).status.success());
    let remove = [
        "install",
        "--remove",
        "--root",
        root,
        "--unit",
        "k3s.service",
    ];
    let hint = at("/run/multus-distro/node.json");
    fs::create_dir_all(hint.parent().unwrap()).unwrap();
    fs::write(&hint, "{}").unwrap();
    let output = run(&remove);
    assert!(output.status.success(), "{output:?}");
    assert!(!hint.exists(), "the next start does not write it");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("plan: empty ")
    );
    assert!(!at("/etc/systemd/system/k3s.service.d").exists());
    let manifest = fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap();
    assert!(manifest.starts_with("# removed"));
    assert!(error(&remove).contains("has no drop-in of multus-distro"));
}
