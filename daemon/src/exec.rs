//! Running delegates where the runtime would run them: in its mount namespace, charged to its cgroup.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use cni::{
    exec::{Exec, ExecError, check_plugin_name},
    process::{self, Limits},
};
use node::{process::Process, root::Root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tracing::info;

use crate::{limits, orphans};

/// No delegate runs longer; kubelet gives up on a sandbox after four minutes.
const PLUGIN_TIME: Duration = Duration::from_mins(2);
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where delegates run at this moment.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The runtime, once it is known.
    pub runtime: Option<Arc<Process>>,
    /// A directory, in the daemon's own view, that wins over the runtime's mount namespace.
    pub chroot: Option<PathBuf>,
}

/// Runs plugins at a place that may change while the daemon runs.
#[derive(Debug)]
pub struct RuntimeExec {
    root: Arc<Root>,
    place: RwLock<Place>,
    /// What plugins carry, so that they can be told from others'.
    daemon: Option<String>,
}

impl RuntimeExec {
    /// Looks for plugins below `root`; runs them at `place`.
    pub fn new(root: Arc<Root>, place: Place) -> Self {
        Self {
            root,
            place: RwLock::new(place),
            daemon: orphans::Name::own().ok().map(|name| name.to_string()),
        }
    }

    /// From now on delegates run in this process's mount namespace.
    pub fn set_runtime(&self, runtime: Arc<Process>) {
        self.place
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .runtime = Some(runtime);
    }

    /// Where delegates run.
    pub fn place(&self) -> Place {
        self.place
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl RuntimeExec {
    /// Starts a program that outlives this daemon: charged to the runtime, and with nobody to talk to.
    pub fn start(&self, path: &Path, words: &[&str], mark: (&str, &str)) -> io::Result<Child> {
        let mut command = Command::new(path);
        command
            .args(words)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env(mark.0, mark.1)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        move_to(&mut command, self.place());
        command.spawn()
    }
}

impl Exec for RuntimeExec {
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError> {
        check_plugin_name(plugin)?;
        dirs.iter()
            .map(|dir| dir.join(plugin))
            .find(|path| self.root.is_executable(path))
            .ok_or_else(|| ExecError::NotFound {
                plugin: plugin.to_owned(),
                dirs: dirs.to_vec(),
            })
    }

    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        let mut command = Command::new(path);
        command
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .envs(env.iter().map(|(key, value)| (key, value)))
            .envs(self.daemon.iter().map(|name| (orphans::VARIABLE, name)));
        move_to(&mut command, self.place());
        let limits = Limits {
            time: Some(PLUGIN_TIME),
            ..Limits::default()
        };
        let output = process::run(&mut command, path, stdin, &limits)?;
        let talk = output.stderr.trim_ascii();
        if output.status.success() && !talk.is_empty() {
            let text = String::from_utf8_lossy(talk);
            info!(plugin = %path.display(), stderr = %text, "a plugin talks");
        }
        output.into_answer(path)
    }
}

/// Makes the child go to the place between fork and exec.
#[expect(
    unsafe_code,
    reason = "setns has to happen in the child, and that is what pre_exec is for"
)]
fn move_to(command: &mut Command, place: Place) {
    let enter = move || enter(&place);
    // SAFETY: the closure makes system calls alone: it neither allocates nor locks.
    unsafe { command.pre_exec(enter) };
}

fn enter(place: &Place) -> io::Result<()> {
    limits::give_back()?;
    if let Some(runtime) = &place.runtime {
        for procs in &runtime.cgroup_procs {
            // Charging is best effort: a plugin that is charged to us still does its work.
            let _ = rustix::io::write(procs, b"0");
        }
    }
    if let Some(chroot) = &place.chroot {
        rustix::process::chroot(chroot)?;
        rustix::process::chdir("/")?;
    } else if let Some(runtime) = &place.runtime {
        move_into_link_name_space(
            runtime.mount_namespace.as_fd(),
            Some(LinkNameSpaceType::Mount),
        )?;
    }
    Ok(())
}

/// Opens a network namespace by the path that the runtime gave, as the runtime would.
pub fn open_netns(root: &Root, place: &Place, netns: &str) -> io::Result<OwnedFd> {
    if netns.starts_with("/proc/") {
        return Ok(std::fs::File::open(netns)?.into());
    }
    let file = match &place.runtime {
        Some(runtime) => {
            Root::open(format!("/proc/{}/root", runtime.pid)).and_then(|root| root.open_file(netns))
        }
        None => root.open_file(netns),
    };
    file.map(OwnedFd::from).map_err(|error| error.source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn plugins_are_found_as_the_node_sees_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        root.make_dirs("/data/hash", 0o755).unwrap();
        root.make_dirs("/data/cni", 0o755).unwrap();
        root.write_atomic("/data/hash/bridge", b"#!/bin/sh\n", 0o755)
            .unwrap();
        root.write_atomic("/data/cni/readme", b"text", 0o644)
            .unwrap();
        symlink("/data/hash/bridge", dir.path().join("data/cni/bridge")).unwrap();
        let exec = RuntimeExec::new(root, Place::default());
        let dirs = [PathBuf::from("/none"), PathBuf::from("/data/cni")];
        assert_eq!(
            exec.find("bridge", &dirs).unwrap(),
            Path::new("/data/cni/bridge")
        );
        assert!(exec.find("readme", &dirs).is_err());
        assert!(exec.find("../hash/bridge", &dirs).is_err());
    }

    #[test]
    fn a_plugin_runs_with_its_variables_alone() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("plugin");
        std::fs::write(
            &script,
            "#!/bin/sh\nread line; echo \"$CNI_COMMAND $line ${HOME-none}\"\n",
        )
        .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let exec = RuntimeExec::new(Arc::new(Root::open("/").unwrap()), Place::default());
        let env = [("CNI_COMMAND".to_owned(), "ADD".to_owned())];
        assert_eq!(exec.run(&script, &env, b"in\n").unwrap(), b"ADD in none\n");
    }
}
