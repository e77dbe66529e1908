//! A node: a network, mount and process namespace with directories of its own at the standard paths.

pub(crate) mod cgroup;
pub(crate) mod cri;
pub(crate) mod dhcp;
pub(crate) mod file_hashes;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod layout;
pub(crate) mod network;
pub(crate) mod runtime;
pub(crate) mod systemd;
pub(crate) mod thread;

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};

use self::{
    init::DIRECTORIES,
    network::{NodeNetwork, address},
};
use crate::{programs::old_kernel, sh, test_env::TestEnv};

/// Seconds after which a command in a node is killed.
const COMMAND_TIMEOUT: &str = "180";

/// A running node; dropping it kills all its processes.
pub(crate) struct Node {
    /// `n1`, `n2`, …
    pub(crate) name: String,
    pub(crate) number: u8,
    /// Files of the test about the node, outside the node.
    pub(crate) dir: PathBuf,
    log: PathBuf,
    path: String,
    parent: Child,
    init: u32,
    /// Arguments in front of every command in the node.
    prefix: Vec<OsString>,
}

/// The kernel that a node's programs see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// The machine's kernel.
    Own,
    /// The oldest supported kernel.
    Old,
}

/// A program that keeps running in a node.
pub(crate) struct Service {
    /// Its process ID in the node.
    pub(crate) pid: u32,
    /// The process ID, outside the node, of the nsenter that waits for it, and stops and goes on with it.
    parent: Pid,
}

impl Node {
    /// Starts an empty node whose PATH begins with the directories `programs`.
    pub(crate) fn start(
        env: &TestEnv,
        network: &NodeNetwork,
        number: u8,
        programs: &[&Path],
    ) -> anyhow::Result<Self> {
        let former = env.dir.join(format!("n{number}"));
        if former.exists() {
            fs::remove_dir_all(&former)
                .with_context(|| format!("cannot empty {}", former.display()))?;
        }
        Self::start_again(env, network, number, programs)
    }

    /// Starts a node that was ended, with its files.
    pub(crate) fn start_again(
        env: &TestEnv,
        network: &NodeNetwork,
        number: u8,
        programs: &[&Path],
    ) -> anyhow::Result<Self> {
        let name = format!("n{number}");
        let dir = env.dir.join(&name);
        for directory in DIRECTORIES {
            fs::create_dir_all(dir.join("root").join(directory.trim_start_matches('/')))?;
        }
        let net = network.attach(number)?;
        let mut parent = Command::new("nsenter")
            .arg(format!("--net={}", net.display()))
            .args("unshare --mount --propagation slave --pid --fork".split(' '))
            .args(["--kill-child", "--mount-proc"])
            .arg(std::env::current_exe()?)
            .arg(init::NAME)
            .arg(dir.join("root"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start a node")?;
        let mut ready = String::new();
        let stdout = parent.stdout.take().context("stdout is piped")?;
        BufReader::new(stdout).read_line(&mut ready)?;
        ensure!(ready == init::READY, "node {name} did not come up");
        let (pid, machine) = (parent.id(), std::env::var("PATH").unwrap_or_default());
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let programs = programs.iter().map(|dir| dir.display().to_string());
        let path = programs
            .chain([machine, "/usr/sbin:/sbin".to_owned()])
            .collect::<Vec<_>>()
            .join(":");
        Ok(Self {
            init: children
                .trim()
                .parse()
                .context("the node has no single first process")?,
            name,
            number,
            log: env.dir.join("log"),
            dir,
            path,
            parent,
            prefix: Vec::new(),
        })
    }

    /// Makes later commands see this kernel.
    pub(crate) fn on(mut self, kernel: Kernel) -> anyhow::Result<Self> {
        self.prefix = match kernel {
            Kernel::Own => Vec::new(),
            Kernel::Old => vec![std::env::current_exe()?.into(), old_kernel::NAME.into()],
        };
        Ok(self)
    }

    /// Returns the address of its `eth0`.
    pub(crate) fn address(&self) -> String {
        address(self.number)
    }

    /// Returns a command that runs in the node, with a timeout.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_within(COMMAND_TIMEOUT, program)
    }

    /// Does the same with a timeout of so many seconds.
    pub(crate) fn command_within(&self, seconds: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.enter();
        command
            .args(["timeout", "--kill-after=5", seconds])
            .arg(program);
        command
    }

    /// Runs a command in the node and returns its stdout.
    pub(crate) fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        let (program, arguments) = args.split_first().context("a command has a name")?;
        sh::run(self.command(program).args(arguments))
    }

    /// Returns the path of a service's log.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.log.join(format!("{}-{name}.log", self.name))
    }

    /// Starts a service; its output goes to the log of this name.
    pub(crate) fn serve(
        &self,
        name: &str,
        program: impl AsRef<OsStr>,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<Service> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(name))?;
        let pid_file = self.dir.join(format!("{name}.pid"));
        let _ = fs::remove_file(&pid_file);
        let mut command = self.enter();
        command
            .args([
                "sh",
                "-c",
                "echo $$ >\"$0.new\" && mv \"$0.new\" \"$0\" && exec \"$@\"",
            ])
            .arg(&pid_file)
            .arg(program);
        let child = set(&mut command)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} on {}", self.name))?;
        let pid = sh::until(10, &format!("{name} starts"), || {
            Ok(fs::read_to_string(&pid_file)?.trim().parse()?)
        })?;
        Ok(Service {
            pid,
            parent: Pid::from_child(&child),
        })
    }

    /// Sends a signal to a service and waits for its end.
    pub(crate) fn end(&self, service: &Service, signal: &str) -> anyhow::Result<()> {
        // kill fails for a service that is just ending by itself.
        self.signal(service, signal).or_else(|error| {
            if self.runs(service) {
                Err(error)
            } else {
                Ok(())
            }
        })?;
        sh::until(60, &format!("process {} ends", service.pid), || {
            ensure!(!self.runs(service), "it still runs");
            Ok(())
        })
    }

    /// Returns the process ID of a service outside the node.
    pub(crate) fn machine_pid(&self, service: &Service) -> anyhow::Result<u32> {
        let parent = service.parent.as_raw_nonzero();
        let path = format!("/proc/{parent}/task/{parent}/children");
        let children = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let pid = children.trim().parse();
        pid.with_context(|| format!("{}: {path} names no single process", self.name))
    }

    /// Sends a signal to a service.
    pub(crate) fn signal(&self, service: &Service, signal: &str) -> anyhow::Result<()> {
        self.run(&["kill", &format!("-{signal}"), &service.pid.to_string()])
            .map(drop)
    }

    /// Stops a service while `act` runs, which gets the service's directory in `/proc`.
    pub(crate) fn while_stopped<T>(
        &self,
        service: &Service,
        act: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let is_stopped = |stat: &Path| -> anyhow::Result<bool> {
            let stat = fs::read_to_string(stat)?;
            let state = stat.rsplit(") ").next().unwrap_or_default();
            Ok(state.starts_with('T'))
        };
        let proc = self.path(&format!("/proc/{}", service.pid));
        let parent = PathBuf::from(format!("/proc/{}/stat", service.parent.as_raw_nonzero()));
        self.signal(service, "STOP")?;
        sh::until(10, "a service stops", || {
            ensure!(is_stopped(&parent)?, "it still runs");
            Ok(())
        })?;
        let done = act(&proc);
        // nsenter continues, and lets the service continue.
        kill_process(service.parent, Signal::CONT)?;
        sh::until(10, "a service goes on", || {
            ensure!(!is_stopped(&proc.join("stat"))?, "it is stopped");
            Ok(())
        })?;
        done
    }

    /// Gives the node an `/etc` of its own, a copy of the machine's at its first start.
    pub(crate) fn separate_etc(&self) -> anyhow::Result<()> {
        if !self.path("/srv/etc").exists() {
            self.run(&["cp", "-a", "/etc", "/srv/etc"])?;
        }
        self.run(&["mount", "--bind", "/srv/etc", "/etc"]).map(drop)
    }

    /// Makes everything read-only but `/var` and file systems in memory.
    pub(crate) fn make_read_only(&self) -> anyhow::Result<()> {
        // Such systems have `/tmp` in memory; the files of the test are not part of the node.
        for directory in ["/tmp", &self.dir.display().to_string()] {
            self.run(&["mount", "--bind", directory, directory])?;
        }
        let directories = DIRECTORIES
            .iter()
            .filter(|directory| !directory.starts_with("/var/"));
        for directory in directories.chain(&["/"]) {
            self.run(&["mount", "-o", "remount,bind,ro", directory])?;
        }
        let probe = self.run(&["touch", "/opt/cni/probe"]);
        ensure!(probe.is_err(), "{}: /opt/cni can be written", self.name);
        Ok(())
    }

    /// Returns whether a service still runs.
    pub(crate) fn runs(&self, service: &Service) -> bool {
        self.path(&format!("/proc/{}", service.pid)).exists()
    }

    /// Returns the path by which this process reaches a path of the node.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// Writes a file of the node, and creates its directories.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let file = self.path(path);
        let directory = file.parent().context("a file lies in a directory")?;
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&file, content))
            .with_context(|| format!("cannot write {path} on {}", self.name))
    }

    /// Returns the names in a directory of the node, sorted; none when the directory is absent.
    pub(crate) fn list(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let Ok(entries) = fs::read_dir(self.path(path)) else {
            return Ok(Vec::new());
        };
        let mut names = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.init))
            .args(["--net", "--mount", "--pid", "--"])
            .args(&self.prefix)
            .env("PATH", &self.path);
        command
    }
}

impl Node {
    /// Kills the first process of the node, and the kernel kills all others, as in a power cut.
    pub(crate) fn power_off(&mut self) {
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.power_off();
    }
}
