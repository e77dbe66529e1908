//! `vpn plan` from outside, and the VPN's key in what the kernel shows of the process.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _, pipe},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use rustix::fs::{OFlags, fcntl_setfl};

use super::{path, run};

const AGENT: [&str; 9] = [
    "--interface",
    "ts7",
    "--address",
    "100.64.0.2",
    "--",
    "k3s",
    "agent",
    "--server",
    "https://a.tail1234.ts.net:6443",
];

fn plan(args: &[&str]) -> (Option<i32>, String, String) {
    let output = run(&[&["vpn", "plan"], args, &AGENT].concat());
    let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn plan_is_printed_as_table_json_and_arguments() {
    let args = "--node-ip=100.64.0.2\n--flannel-iface=ts7\n--flannel-conf=/var/lib/multus-vpn/net-conf.json\n";
    assert_eq!(plan(&["--args"]), (Some(0), args.to_owned(), String::new()));
    let (_, json, _) = plan(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["role"], "agent");
    assert_eq!(json["args"][1], "--flannel-iface=ts7");
    assert_eq!(json["settings"][0]["values"][0], "100.64.0.2");
    let (_, table, _) = plan(&[]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["node-ip", "100.64.0.2", "plan", "the"]);
}

#[test]
fn settings_of_the_vpn_are_checked_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vpn");
    let settings = "name=tailscale,joinKey=tskey-auth-Abc123,controlServerURL=https://h.example\n";
    fs::write(&path, settings).unwrap();
    let flags = ["--args", "--vpn-auth-file", path.to_str().unwrap()];
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    let (status, _, errors) = plan(&flags);
    assert_eq!(status, Some(0), "{errors}");
    assert!(
        errors.ends_with("tailscale at https://h.example, with a key\n"),
        "{errors}"
    );
    mode(0o644);
    let (status, _, errors) = plan(&flags);
    assert_eq!(status, Some(1));
    assert!(errors.contains("chmod 600"), "{errors}");
    fs::write(&path, "name=tailscale,Abc123").unwrap();
    mode(0o600);
    let (_, _, errors) = plan(&flags);
    assert!(errors.contains("field 2"), "{errors}");
    // A space makes two arguments of one text, and the second is repeated in the error.
    let (status, _, errors) = plan(&["--vpn-auth", "name=tailscale,", "joinKey=Abc123"]);
    assert_eq!(status, Some(2));
    assert!(
        errors.contains("unexpected argument") && !errors.contains("Abc123"),
        "{errors}"
    );
}

/// Every file below a directory, with its content and the time at which it was written.
fn files(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a file of the test") {
        let path = entry.expect("a file of the test").path();
        let meta = fs::symlink_metadata(&path).expect("a file of the test");
        let content = if meta.is_dir() {
            found.extend(files(&path));
            Vec::new()
        } else {
            fs::read(&path).expect("a file of the test")
        };
        found.insert(
            path,
            (meta.modified().expect("a file of the test"), content),
        );
    }
    found
}

/// Makes a node whose VPN is its loopback interface, with settings; returns the path of these.
fn node_on_a_vpn(root: &Path) -> PathBuf {
    let run = root.join("run/multus-vpn");
    fs::create_dir_all(&run).expect("a file of the test");
    let state = r#"{"schema": 1, "node": {"interface": "lo", "ipv4": "127.0.0.1", "ipv6": null, "dnsName": null, "mtu": 1280},
        "problem": null, "notes": [], "advertised": [], "pending": [], "lan": []}"#;
    fs::write(run.join("state.json"), state).expect("a file of the test");
    let auth = root.join("auth");
    fs::write(&auth, "name=tailscale,joinKey=tskey-auth-Abc123").expect("a file of the test");
    fs::set_permissions(&auth, fs::Permissions::from_mode(0o600)).expect("a file of the test");
    auth
}

#[test]
fn plan_writes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let auth = node_on_a_vpn(dir.path());
    let before = files(dir.path());
    for format in [&[][..], &["--json"], &["--args"]] {
        let command = ["vpn", "plan", "--root", path(dir.path())];
        let more = ["--vpn-auth-file", path(&auth), "--", "k3s", "server"];
        let output = run(&[&command, format, &more].concat());
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains("127.0.0.1"), "{printed}");
        assert_eq!(files(dir.path()), before, "{format:?}");
    }
}

#[test]
fn distro_gets_no_settings_of_the_vpn_in_its_environment() {
    let dir = tempfile::tempdir().unwrap();
    let auth = node_on_a_vpn(dir.path());
    let program = dir.path().join("k3s");
    fs::write(&program, "#!/bin/sh\nenv\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let secret = "name=tailscale,joinKey=tskey-auth-Abc123";
    let start = |options: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
            .args(["run", "--vpn-timeout=0", "--root", path(dir.path())])
            .args(options)
            .args(["--", path(&program), "agent"])
            .env("K3S_VPN_AUTH_FILE", &auth)
            .env("RKE2_VPN_AUTH_FILE", &auth)
            .env("K3S_VPN_AUTH", secret)
            .env("RKE2_VPN_AUTH", secret)
            .env("K3S_TOKEN", "t")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for options in [&[][..], &["--vpn-auth-file", path(&auth)]] {
        let environment = start(options);
        assert!(environment.contains("K3S_TOKEN=t\n"), "{environment}");
        assert!(
            !environment.contains("VPN_AUTH") && !environment.contains("Abc123"),
            "{environment}"
        );
    }
}

/// K3s brings its own VPN up by these variables, and its installation script keeps them for the unit.
#[test]
fn variables_of_k3s_own_vpn_are_left_to_k3s() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("k3s");
    fs::write(&program, "#!/bin/sh\necho $K3S_VPN_AUTH_FILE $@\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let start = |variable: &str| {
        Command::new(env!("CARGO_BIN_EXE_multus-distro"))
            .args([
                "run",
                "--multus",
                "--vpn-timeout=0",
                "--root",
                path(dir.path()),
            ])
            .args(["--", path(&program), "agent"])
            .env(variable, "/k3s.auth")
            .output()
            .unwrap()
    };
    let output = start("K3S_VPN_AUTH_FILE");
    assert_eq!(output.stdout, b"/k3s.auth agent\n", "{output:?}");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(
        notes.contains("K3S_VPN_AUTH_FILE is left to k3s"),
        "{notes}"
    );
    // RKE2 has none of its own, so that one is for this program.
    assert!(!start("RKE2_VPN_AUTH_FILE").status.success());
}

/// The program waits for room in its standard output, so that it can be looked at.
#[test]
fn key_of_an_argument_or_a_variable_is_overwritten_in_the_process() {
    let (mut reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let full = std::iter::repeat_with(|| writer.write_all(b".")).find_map(Result::err);
    assert_eq!(full.unwrap().kind(), ErrorKind::WouldBlock);
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let key = "name=tailscale,joinKey=tskey-auth-Abc123";
    let mut child = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(["vpn", "plan", "--vpn-auth", key])
        .args(AGENT)
        .env("K3S_VPN_AUTH", key)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let warning = errors.next().unwrap().unwrap();
    assert!(warning.contains("are overwritten now"), "{warning}");
    let shown = |name: &str| {
        let bytes = fs::read(format!("/proc/{}/{name}", child.id()));
        String::from_utf8(bytes.unwrap()).unwrap()
    };
    let arguments = shown("cmdline");
    let hidden = "x".repeat(key.len());
    assert!(
        arguments.contains(&format!("--vpn-auth\0{hidden}\0--interface")),
        "{arguments}"
    );
    // Another user cannot read it, since the process is not dumpable.
    if rustix::process::geteuid().is_root() {
        let variables = shown("environ");
        assert!(
            variables.contains(&format!("K3S_VPN_AUTH={hidden}\0")),
            "{variables}"
        );
    }
    let mut output = Vec::new();
    reader.read_to_end(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    let output = String::from_utf8(output).unwrap();
    let rest: Vec<String> = errors.map(Result::unwrap).collect();
    assert!(!output.contains("Abc123") && !rest.concat().contains("Abc123"));
}

#[test]
fn server_on_a_vpn_leaves_multus_as_it_is_staged_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let auth = node_on_a_vpn(dir.path());
    let program = dir.path().join("k3s");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let data = dir.path().join("var/lib/rancher/k3s");
    let server = |options: &[&str]| {
        let start = ["run", "--vpn-timeout=0", "--root", path(dir.path())];
        let output = run(&[&start, options, &["--", path(&program), "server"]].concat());
        assert!(output.status.success(), "{output:?}");
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        texts.concat()
    };
    let vpn = ["--vpn-auth-file", path(&auth)];
    let printed = server(&vpn);
    assert!(printed.contains("--node-ip=127.0.0.1"), "{printed}");
    assert!(!printed.contains("staged") && !data.exists(), "{printed}");
    server(&[&["--multus"], &vpn[..]].concat());
    let before = files(&data);
    assert!(!before.is_empty());
    let printed = server(&vpn);
    assert!(
        printed.contains("Multus stays as it is staged"),
        "{printed}"
    );
    assert!(!printed.contains("--disable"), "{printed}");
    assert_eq!(files(&data), before);
    // Without the VPN the same start removes it.
    assert!(server(&[]).contains("--disable=multus"));
}

#[test]
fn plan_is_printed_as_files_for_a_distro_that_starts_by_itself() {
    let config = "# made by `multus-distro vpn plan --config`\nnode-ip: \"100.64.0.2\"\nflannel-iface: \"ts7\"\nflannel-conf: \"/var/lib/multus-vpn/net-conf.json\"\n";
    assert_eq!(
        plan(&["--config"]),
        (Some(0), config.to_owned(), String::new())
    );
    let (_, conf, _) = plan(&["--flannel-conf", "--vpn-cluster-cidr", "10.9.0.0/16"]);
    let conf: serde_json::Value = serde_json::from_str(&conf).unwrap();
    assert_eq!(conf["Network"], "10.9.0.0/16");
}

/// Runs the lines of the page below a root of the test.
#[test]
fn lines_of_the_page_write_files_that_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    node_on_a_vpn(dir.path());
    let root = path(dir.path());
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let program = env!("CARGO_BIN_EXE_multus-distro");
    let script = format!("#!/bin/sh\nshift 2\nexec {program} vpn plan --root {root} \"$@\"\n");
    let wrapper = bin.join("multus-distro");
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let pages = docs::Pages::of_checkout().unwrap();
    let page = pages.get("docs/contributing/vpn.md").unwrap();
    let block = page.blocks.iter().find(|one| one.text.contains("--config"));
    let mut lines = block.unwrap().text.clone();
    for dir in ["/etc/rancher", "/var/lib"] {
        lines = lines.replace(&format!(" {dir}"), &format!(" {root}{dir}"));
    }
    let output = Command::new("/bin/sh")
        .args(["-e", "-c", &lines])
        .env("PATH", format!("{}:/usr/bin:/bin", path(&bin)))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let conf = fs::read(dir.path().join("var/lib/multus-vpn/net-conf.json")).unwrap();
    let conf: serde_json::Value = serde_json::from_slice(&conf).unwrap();
    assert_eq!(conf["Network"], "10.42.0.0/16");
    let plan = |root: &str| {
        let line = [
            "vpn",
            "plan",
            "--args",
            "--interface=lo",
            "--address=127.0.0.1",
        ];
        let output = run(&[&line[..], &["--root", root, "--", "k3s", "server"]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let empty = tempfile::tempdir().unwrap();
    assert!(plan(path(empty.path())).contains("--node-ip=127.0.0.1"));
    assert_eq!(plan(root), "");
}
