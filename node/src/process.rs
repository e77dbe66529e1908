//! The runtime as a process: the mount namespace in which delegates run, and the cgroup that is charged for them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::root::Root;

/// Handles of a running process. Those of its namespaces stay valid when it ends.
#[derive(Debug)]
pub struct Process {
    /// The process ID, as this process sees it.
    pub pid: u32,
    /// The mount namespace (`/proc/<pid>/ns/mnt`).
    pub mount_namespace: OwnedFd,
    /// The file tree of the process.
    pub tree: Root,
    /// The cgroup namespace, if that can be opened.
    pub cgroup_namespace: Option<OwnedFd>,
    /// The `cgroup.procs` files of its cgroups, opened for writing; empty where they cannot be opened.
    pub cgroup_procs: Vec<OwnedFd>,
    /// The value of its variable `PATH`, if that can be read.
    pub search_path: Option<String>,
}

/// The most bytes that are read of a process's environment.
const MAX_ENVIRONMENT: u64 = 1 << 20;

impl Process {
    /// Opens the handles of `pid`, with the cgroup files below the node's `/sys/fs/cgroup`.
    pub fn open(root: &Root, pid: u32) -> io::Result<Self> {
        let mount_namespace = File::open(format!("/proc/{pid}/ns/mnt"))?.into();
        let cgroup_namespace = File::open(format!("/proc/{pid}/ns/cgroup")).ok();
        let cgroup_namespace = cgroup_namespace.map(OwnedFd::from);
        let cgroup_procs = cgroup_procs(root, pid, cgroup_namespace.as_ref());
        let tree = Root::open(format!("/proc/{pid}/root")).map_err(|error| error.source)?;
        Ok(Self {
            pid,
            mount_namespace,
            tree,
            cgroup_namespace,
            cgroup_procs,
            search_path: search_path(pid),
        })
    }
}

fn search_path(pid: u32) -> Option<String> {
    let mut environment = Vec::new();
    File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| {
            file.take(MAX_ENVIRONMENT)
                .read_to_end(&mut environment)
                .map(drop)
        })
        .ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"PATH="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Returns the file tree of a process; `None` where the kernel does not permit it.
pub fn file_tree(root: &Root, pid: u32) -> Option<Root> {
    root.follow(format!("/proc/{pid}"), "root").ok()
}

/// Returns the start time of a process, in seconds since 1970.
pub fn start_time(root: &Root, pid: u32) -> Option<i64> {
    /// The unit of times in `/proc/<pid>/stat` on every architecture.
    const TICKS_PER_SECOND: i64 = 100;
    let read =
        |path: &str| Some(String::from_utf8_lossy(&root.read(path, 1 << 20).ok()?).into_owned());
    let own = read(&format!("/proc/{pid}/stat"))?;
    let machine = read("/proc/stat")?;
    let ticks = i64::try_from(ticks(&own)?).ok()?;
    let boot = machine
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<i64>().ok()? + ticks / TICKS_PER_SECOND)
}

/// Returns the start of a process in the kernel's ticks. With the ID it identifies the process for ever: the kernel uses an ID again.
pub fn started(pid: u32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    ticks(&String::from_utf8_lossy(&stat)).ok_or_else(|| io::Error::other("stat is cut off"))
}

/// Returns the start in the text of a process's `stat`.
fn ticks(stat: &str) -> Option<u64> {
    // The name is in parentheses and may contain any character; the start is the twentieth field after it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn open_below(root: &Root, path: &Path) -> io::Result<OwnedFd> {
    let (directory, name) = root.parent(path).map_err(|error| error.source)?;
    let file = OpenOptions::new()
        .write(true)
        .open(crate::root::proc_path(&directory).join(name))?;
    Ok(file.into())
}

/// Opens the `cgroup.procs` files of a process inside of its cgroup namespace. Only there the paths in `/proc/<pid>/cgroup` are those of
/// its `/sys/fs/cgroup`, and where cgroup2 is mounted with `nsdelegate`, as systemd does, a file that was opened in another namespace
/// accepts no process.
fn cgroup_procs(root: &Root, pid: u32, namespace: Option<&OwnedFd>) -> Vec<OwnedFd> {
    let open = || {
        // Without the permission, the paths of this namespace are used.
        let _ = namespace.map(|namespace| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ControlGroup))
        });
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let paths = procs_files(&cgroups).into_iter();
        paths
            .filter_map(|path| open_below(root, &path).ok())
            .collect()
    };
    // A namespace belongs to a thread, so a short-lived thread enters it.
    std::thread::scope(|scope| scope.spawn(open).join()).unwrap_or_default()
}

/// Returns the `cgroup.procs` files of all hierarchies: the unified one (`0::`) and each of version 1.
pub fn procs_files(cgroups: &str) -> Vec<PathBuf> {
    let lines: Vec<(&str, &str)> = cgroups
        .lines()
        .filter_map(|line| {
            line.split_once(':')
                .and_then(|(_, rest)| rest.split_once(':'))
        })
        .filter(|(_, path)| path.starts_with('/') && !path.split('/').any(|part| part == ".."))
        .collect();
    let is_unified_alone = lines.iter().all(|(controllers, _)| controllers.is_empty());
    let file = |(controllers, path): &(&str, &str)| {
        let mount = match *controllers {
            "" if is_unified_alone => String::new(),
            "" => "/unified".to_owned(),
            named => format!("/{}", named.trim_start_matches("name=")),
        };
        let path = path.trim_end_matches('/');
        PathBuf::from(format!("/sys/fs/cgroup{mount}{path}/cgroup.procs"))
    };
    lines.iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procs_files_of_both_cgroup_versions() {
        let version1 = "12:memory:/system.slice/containerd.service\n3:cpu,cpuacct:/x\n\
                        1:name=systemd:/system.slice/containerd.service\n0::/y\n";
        assert_eq!(
            procs_files(version1),
            [
                "/sys/fs/cgroup/memory/system.slice/containerd.service/cgroup.procs",
                "/sys/fs/cgroup/cpu,cpuacct/x/cgroup.procs",
                "/sys/fs/cgroup/systemd/system.slice/containerd.service/cgroup.procs",
                "/sys/fs/cgroup/unified/y/cgroup.procs",
            ]
            .map(PathBuf::from)
        );
        assert_eq!(
            procs_files("0::/system.slice/k3s.service\n"),
            [PathBuf::from(
                "/sys/fs/cgroup/system.slice/k3s.service/cgroup.procs"
            )]
        );
        assert_eq!(
            procs_files("0::/\n"),
            [PathBuf::from("/sys/fs/cgroup/cgroup.procs")]
        );
        assert!(procs_files("0::/../../other\n").is_empty());
        assert!(procs_files("").is_empty());
    }

    #[test]
    fn start_time_and_file_tree_of_this_process() {
        let root = Root::open("/").unwrap();
        let started = start_time(&root, std::process::id()).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.unwrap().as_secs().cast_signed() - started;
        assert!((-2..600).contains(&age), "{age}");
        let ticks = [(), ()].map(|()| super::started(std::process::id()).unwrap());
        assert!(ticks[0] > 0 && ticks[0] == ticks[1]);
        let tree = file_tree(&root, std::process::id()).unwrap();
        assert_eq!(tree.identity("/etc"), root.identity("/etc"));
    }

    #[test]
    fn this_process_can_be_opened() {
        let root = Root::open("/").unwrap();
        let process = Process::open(&root, std::process::id()).unwrap();
        assert_eq!(process.pid, std::process::id());
        assert_eq!(process.tree.identity("/etc"), root.identity("/etc"));
        assert_eq!(process.search_path, std::env::var("PATH").ok());
    }
}
