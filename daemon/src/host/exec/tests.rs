//! Running plugins with a spawner on a thread of this process.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    sync::mpsc,
    thread,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

fn script(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("plugin");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn exec() -> RuntimeExec {
    RuntimeExec::new(Arc::new(Root::open("/").unwrap()), ExecContext::default())
        .with_spawner_thread()
}

#[test]
fn plugins_are_searched_in_the_nodes_file_tree() {
    let dir = tempfile::tempdir().unwrap();
    let root = Arc::new(Root::open(dir.path()).unwrap());
    root.make_dirs("/data/hash", 0o755).unwrap();
    root.make_dirs("/data/cni", 0o755).unwrap();
    root.write_atomic("/data/hash/bridge", b"#!/bin/sh\n", 0o755)
        .unwrap();
    root.write_atomic("/data/cni/readme", b"text", 0o644)
        .unwrap();
    symlink("/data/hash/bridge", dir.path().join("data/cni/bridge")).unwrap();
    let exec = RuntimeExec::new(root, ExecContext::default());
    let dirs = [PathBuf::from("/none"), PathBuf::from("/data/cni")];
    assert_eq!(
        exec.find("bridge", &dirs).unwrap(),
        Path::new("/data/cni/bridge")
    );
    assert!(exec.find("readme", &dirs).is_err());
    assert!(exec.find("../hash/bridge", &dirs).is_err());
}

#[test]
fn plugin_gets_variables_of_cni_and_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let path = script(
        dir.path(),
        "read line; echo \"$CNI_COMMAND $line ${HOME-none} $HTTPS_PROXY ${MULTUS_DAEMON:+marked}\"",
    );
    let exec = exec().with_environment(vec![
        ("HTTPS_PROXY".into(), "proxy".into()),
        ("CNI_COMMAND".into(), "of the daemon".into()),
    ]);
    let env = [("CNI_COMMAND".to_owned(), "ADD".to_owned())];
    assert_eq!(
        exec.run(&path, &env, b"in\n").unwrap(),
        b"ADD in none proxy marked\n"
    );
}

#[test]
fn runtime_is_replaced_while_a_spawner_starts() {
    let dir = tempfile::tempdir().unwrap();
    let [began, gate] = ["began", "gate"].map(|name| dir.path().join(name));
    for fifo in [&began, &gate] {
        mknodat(CWD, fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    // It ends without entering its context, so the call fails.
    let text = format!("echo > {}; read line < {}", began.display(), gate.display());
    let spawner = script(dir.path(), &text);
    let root = Arc::new(Root::open("/").unwrap());
    let exec =
        &RuntimeExec::new(Arc::clone(&root), ExecContext::default()).with_spawner_program(spawner);
    let runtime = Arc::new(Process::open(&root, std::process::id()).unwrap());
    thread::scope(|scope| {
        let call = scope.spawn(|| exec.run(Path::new("/bin/true"), &[], b""));
        fs::read(&began).unwrap();
        let (replaced, is_replaced) = mpsc::channel();
        scope.spawn(move || {
            exec.set_runtime(runtime);
            replaced.send(()).unwrap();
        });
        let waited = is_replaced.recv_timeout(Duration::from_secs(5));
        fs::write(&gate, "\n").unwrap();
        assert_eq!(waited, Ok(()), "it must not wait for the spawner");
        assert!(call.join().unwrap().is_err());
        assert!(exec.context().runtime.is_some());
    });
}

#[test]
fn one_program_too_many_is_refused_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let [began, gate] = ["began", "gate"].map(|name| dir.path().join(name));
    for fifo in [&began, &gate] {
        mknodat(CWD, fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    let text = format!(
        "echo > {}; read line < {}; echo done",
        began.display(),
        gate.display()
    );
    let path = script(dir.path(), &text);
    // Files for one lane.
    let exec = &exec().with_file_limit(28);
    thread::scope(|scope| {
        let first = scope.spawn(|| exec.run(&path, &[], b""));
        fs::read(&began).unwrap();
        let second = exec.run(Path::new("/bin/true"), &[], b"");
        fs::write(&gate, "\n").unwrap();
        let error = second.unwrap_err().to_string();
        assert!(error.contains("limit of open files"), "{error}");
        assert_eq!(first.join().unwrap().unwrap(), b"done\n");
    });
    exec.run(Path::new("/bin/true"), &[], b"").unwrap();
}

#[test]
fn cgroups_and_namespaces_arrive_in_a_spawner_and_its_report_in_the_daemon() {
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let open = |path: &str| File::options().write(true).open(path).unwrap();
    let [refuses, accepts] = ["/dev/full", "/dev/null"].map(open);
    let [mount, cgroup] = ["mnt", "cgroup"].map(|name| File::open(format!("/proc/self/ns/{name}")));
    let (mount, cgroup) = (mount.unwrap(), cgroup.unwrap());
    let link = |file: &OwnedFd| {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        fs::read_link(path).unwrap().display().to_string()
    };
    for (namespaces, procs) in [
        ([None, None], vec![&refuses, &refuses]),
        ([None, Some(&cgroup)], vec![&refuses, &accepts]),
        ([Some(&mount), None], vec![]),
        ([Some(&mount), Some(&cgroup)], vec![&accepts]),
    ] {
        let [mount, cgroup] = namespaces.map(|one| one.map(File::as_fd));
        let files: Vec<_> = procs.iter().map(|file| file.as_fd()).collect();
        wire::send_enter(&ours, None, mount, cgroup, &files).unwrap();
        let received = wire::receive_control(&theirs).unwrap();
        let Some(wire::Control::Enter(mut enter)) = received else {
            panic!("{received:?}");
        };
        for (received, sent, kind) in [
            (&enter.mount_namespace, mount, "mnt:"),
            (&enter.cgroup_namespace, cgroup, "cgroup:"),
        ] {
            assert_eq!(received.is_some(), sent.is_some());
            assert!(
                received
                    .as_ref()
                    .is_none_or(|file| link(file).starts_with(kind))
            );
        }
        assert_eq!(enter.cgroup_procs.len(), procs.len());
        // This process stays where it is.
        (enter.mount_namespace, enter.cgroup_namespace) = (None, None);
        let report = serve::enter(&enter);
        wire::send_report(&theirs, &report).unwrap();
        let warning = wire::receive_report(&ours).unwrap().unwrap();
        // A hierarchy that cannot be entered does no harm if another one can.
        let stays = !procs.is_empty()
            && procs
                .iter()
                .all(|file| std::ptr::eq(*file, &raw const refuses));
        let warning = warning.unwrap_or_default();
        assert_eq!(
            warning.contains("cannot enter the runtime's cgroup"),
            stays,
            "{warning}"
        );
    }
    let failure = Err("no".to_owned());
    wire::send_report(&theirs, &failure).unwrap();
    assert_eq!(wire::receive_report(&ours).unwrap(), failure);
}
