//! The search for the container runtime that runs the daemon: the one whose sandboxes include the daemon's own pod.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    command_line::CommandLine,
    containerd::{self, ConfigError, Release},
    cri::{Client, CriError},
    process,
    root::Root,
};

/// The file in which `multus-distro` names the socket and the configuration to try first. It only speeds up the search: it is not a source of
/// directories.
pub const HINT: &str = "/run/multus-distro/node.json";

/// The usual sockets of runtimes.
const SOCKETS: [&str; 6] = [
    "/run/k3s/containerd/containerd.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/crio/crio.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
    "/run/cri-dockerd.sock",
];

/// The names of programs that are container runtimes.
const RUNTIMES: [&str; 3] = ["containerd", "crio", "cri-dockerd"];
/// The reason for rejecting a socket that does not exist.
pub(crate) const NOT_THERE: &str = "nothing is there";

/// A container runtime that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// The path of its socket on the node.
    pub socket: PathBuf,
    /// The ID of its process.
    pub pid: u32,
    /// Its name: `containerd`, `cri-o`, …
    pub name: String,
    /// The version of the runtime itself.
    pub version: String,
}

/// A socket, a file or a process that was checked and not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// Its path on the node.
    #[serde(rename = "place")]
    pub path: PathBuf,
    pub reason: String,
}

/// The content of [`HINT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hint {
    /// The version of this schema: 1.
    pub schema: u32,
    /// `k3s` or `rke2`.
    pub distro: String,
    /// The distro's data directory.
    pub data_dir: PathBuf,
    /// The runtime's socket.
    pub cri_socket: PathBuf,
    /// The runtime's configuration file.
    pub containerd_config: PathBuf,
    /// The time of writing, in seconds since 1970.
    pub started_at: u64,
    /// The ID of the distro's process.
    pub pid: u32,
}

impl Hint {
    /// Reads the hint that the last start wrote; `None` if it is missing or has another schema.
    pub fn last(root: &Root) -> Option<Self> {
        let hint: Self = serde_json::from_slice(&root.read(HINT, 64 << 10).ok()?).ok()?;
        (hint.schema == 1).then_some(hint)
    }

    /// Returns whether the process still runs that wrote the hint. A process that started later only has the same ID.
    pub fn is_alive(&self, root: &Root) -> bool {
        /// In seconds: the hint is written right after the process starts, but clocks are coarse.
        const LEEWAY: u64 = 5;
        let latest = i64::try_from(self.started_at.saturating_add(LEEWAY)).unwrap_or(i64::MAX);
        root.exists(format!("/proc/{}", self.pid))
            && process::start_time(root, self.pid).is_none_or(|started| started <= latest)
    }
}

/// Returns the hint of a distro that runs.
pub fn hint(root: &Root) -> Option<Hint> {
    Hint::last(root).filter(|hint| hint.is_alive(root))
}

/// Returns the sockets to try, the likeliest first, each once. An explicit one is the only one.
pub fn candidates(explicit: Option<&Path>, hint: Option<&Hint>) -> Vec<PathBuf> {
    if let Some(socket) = explicit {
        return vec![socket.to_owned()];
    }
    let mut sockets: Vec<PathBuf> = hint
        .map(|hint| hint.cri_socket.clone())
        .into_iter()
        .collect();
    for socket in SOCKETS.map(PathBuf::from) {
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

/// Tries each candidate. With a pod's UID it returns the runtime that runs the pod; without one, a runtime that runs any pod, else one that
/// answers.
pub async fn find(
    root: &Root,
    candidates: &[PathBuf],
    pod_uid: Option<&str>,
) -> (Option<(Runtime, Client)>, Vec<Rejected>) {
    let (mut found, mut rejected) = (None::<Candidate>, Vec::new());
    let mut tried = Vec::new();
    for socket in candidates {
        // One socket may have two paths, as below /run and /var/run.
        let identity = root.identity(socket);
        if identity.is_some() && tried.contains(&identity) {
            continue;
        }
        tried.push(identity);
        let reason = match connect(root, socket, pod_uid).await {
            Ok(candidate) => match (&found, pod_uid, candidate.has_pods) {
                (_, Some(_), true) => {
                    return (Some((candidate.runtime, candidate.client)), rejected);
                }
                (_, Some(_), false) => "it does not run this pod".to_owned(),
                (None, None, _) => {
                    found = Some(candidate);
                    continue;
                }
                (Some(first), None, true) if !first.has_pods => {
                    let first = found.replace(candidate);
                    rejected.extend(first.map(|first| Rejected {
                        path: first.runtime.socket,
                        reason: "it answers, but runs no pods".to_owned(),
                    }));
                    continue;
                }
                (Some(_), None, true) => {
                    "it also runs pods: name the right socket in criSocket".to_owned()
                }
                (Some(_), None, false) => "it answers, but runs no pods".to_owned(),
            },
            Err(CriError::Connect { source, .. }) if source.kind() == ErrorKind::NotFound => {
                NOT_THERE.to_owned()
            }
            Err(CriError::Root(error)) if error.is_not_found() => NOT_THERE.to_owned(),
            Err(error) if error.is_denied() => format!("{error}: run as root"),
            Err(error) => error.to_string(),
        };
        rejected.push(Rejected {
            path: socket.clone(),
            reason,
        });
    }
    let found = found.map(|candidate| (candidate.runtime, candidate.client));
    (found, rejected)
}

/// Returns the sockets of the runtimes that run on this node, and rejects the runtimes of nodes within this node.
pub fn sockets_of_processes(root: &Root) -> (Vec<PathBuf>, Vec<Rejected>) {
    let (mut sockets, mut rejected) = (Vec::new(), Vec::new());
    let names = root.list("/proc").unwrap_or_default();
    for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let Some(line) = CommandLine::of(root, pid) else {
            continue;
        };
        let program = line.program();
        if !RUNTIMES.contains(&program) {
            continue;
        }
        let mut reject = |reason: String| {
            rejected.push(Rejected {
                path: format!("/proc/{pid}").into(),
                reason,
            });
        };
        let is_ours = process::file_tree(root, pid)
            .is_none_or(|tree| tree.identity("/") == root.identity("/"));
        if !is_ours {
            reject(format!(
                "this {program} runs in a file tree of its own, like a node in a container: to examine it, use --root /proc/{pid}/root"
            ));
            continue;
        }
        match address(root, &line) {
            Ok(Some(socket)) if !sockets.contains(&socket) => sockets.push(socket),
            Ok(_) => {}
            Err(error) => reject(format!(
                "the socket of this {program} is not known: {error}"
            )),
        }
    }
    (sockets, rejected)
}

/// Returns the socket of a process, by its flags or else by its configuration file.
fn address(root: &Root, line: &CommandLine) -> Result<Option<PathBuf>, ConfigError> {
    let flag = match line.program() {
        "containerd" => line.value(&["address", "a"]),
        "crio" => line.value(&["listen"]),
        _ => line.value(&["container-runtime-endpoint"]),
    };
    if let Some(socket) = flag {
        return Ok(Some(socket.trim_start_matches("unix://").into()));
    }
    if line.program() != "containerd" {
        return Ok(None);
    }
    let config = line.value(&["config", "c"]);
    let config = config.map_or_else(|| containerd::DEFAULT_CONFIG.into(), PathBuf::from);
    match containerd::gather(root, &config, None) {
        Ok((files, release)) => Ok(Some(containerd::effective(&files, release).address())),
        Err(ConfigError::Root(error)) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

struct Candidate {
    runtime: Runtime,
    client: Client,
    /// Whether it runs the pod, or without a pod any.
    has_pods: bool,
}

async fn connect(root: &Root, socket: &Path, pod_uid: Option<&str>) -> Result<Candidate, CriError> {
    let mut client = Client::connect(root, socket).await?;
    let version = client.version().await?;
    let has_pods = match pod_uid {
        Some(uid) => client.runs_pod(uid).await?,
        None => client.runs_pods().await?,
    };
    let runtime = Runtime {
        socket: socket.to_owned(),
        pid: client.pid,
        name: version.runtime_name,
        version: version.runtime_version,
    };
    Ok(Candidate {
        runtime,
        client,
        has_pods,
    })
}

/// Returns the highest CNI version whose results the runtime accepts; `None` when that is not known.
pub fn highest_cni_version(name: &str, version: &str) -> Option<&'static str> {
    let major = Release::parse(version)?.major;
    match (name, major) {
        ("containerd", 1) => Some("1.0.0"),
        ("containerd", _) => Some("1.1.0"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_cni_version_follows_the_release() {
        for (name, version, expected) in [
            ("containerd", "1.6.20~ds1", Some("1.0.0")),
            ("containerd", "v1.7.27-k3s1", Some("1.0.0")),
            ("containerd", "v2.4.2", Some("1.1.0")),
            ("cri-o", "1.33.0", None),
            ("containerd", "unknown", None),
        ] {
            assert_eq!(
                highest_cni_version(name, version),
                expected,
                "{name} {version}"
            );
        }
    }

    #[test]
    fn socket_of_the_hint_is_tried_first_and_once() {
        let hint = Hint {
            schema: 1,
            distro: "rke2".into(),
            data_dir: "/data".into(),
            cri_socket: "/run/containerd/containerd.sock".into(),
            containerd_config: "/data/config.toml".into(),
            started_at: 1,
            pid: 1,
        };
        let sockets = candidates(None, Some(&hint));
        assert_eq!(sockets[0], hint.cri_socket);
        assert_eq!(sockets.len(), SOCKETS.len());
        assert_eq!(
            candidates(Some(Path::new("/x")), Some(&hint)),
            [Path::new("/x")]
        );
    }

    #[test]
    fn hint_of_a_process_that_ended_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(hint(&root), None);
        root.make_dirs("/run/multus-distro", 0o755).unwrap();
        let text = br#"{"schema":1,"distro":"k3s","dataDir":"/d","criSocket":"/s","containerdConfig":"/c","startedAt":1,"pid":7}"#;
        root.write_atomic(HINT, text, 0o644).unwrap();
        assert_eq!(hint(&root), None);
        root.make_dirs("/proc/7", 0o755).unwrap();
        assert_eq!(hint(&root).unwrap().cri_socket, Path::new("/s"));
        let stat = format!("7 (a) b) S {}100000 0", "0 ".repeat(18));
        root.write_atomic("/proc/stat", b"cpu 1\nbtime 0\n", 0o644)
            .unwrap();
        root.write_atomic("/proc/7/stat", stat.as_bytes(), 0o644)
            .unwrap();
        assert_eq!(hint(&root), None, "another process has the ID");
    }

    #[tokio::test]
    async fn missing_sockets_are_rejected_with_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let (found, rejected) = find(&root, &candidates(None, None), Some("uid")).await;
        assert!(found.is_none());
        assert_eq!(rejected.len(), SOCKETS.len());
        let first = &rejected[0];
        assert_eq!(first.path, Path::new("/run/k3s/containerd/containerd.sock"));
        assert_eq!(first.reason, NOT_THERE);
    }
}
