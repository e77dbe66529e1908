//! Which of the node's container runtimes runs us: the one whose sandboxes include our own pod.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    cri::{Client, CriError},
    root::Root,
};

/// Where a distro binary of ours says where to look first; it never says what is there.
pub const HINT: &str = "/run/multus-distro/node.json";

/// Where runtimes listen.
const SOCKETS: [&str; 5] = [
    "/run/k3s/containerd/containerd.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/crio/crio.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
];

/// A runtime that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Its socket, as the node names it.
    pub socket: PathBuf,
    /// Its process.
    pub pid: u32,
    /// `containerd`, `cri-o`, …
    pub name: String,
    /// Its own version.
    pub version: String,
}

/// A socket that was looked at and not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// The socket, as the node names it.
    pub socket: PathBuf,
    /// Why not.
    pub reason: String,
}

/// What [`HINT`] holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hint {
    /// Version of this form: 1.
    pub schema: u32,
    /// `k3s` or `rke2`.
    pub distro: String,
    /// The distro's data directory.
    pub data_dir: PathBuf,
    /// The runtime's socket.
    pub cri_socket: PathBuf,
    /// The runtime's configuration file.
    pub containerd_config: PathBuf,
    /// Seconds since 1970 when it was written.
    pub started_at: u64,
    /// The distro's process.
    pub pid: u32,
}

/// Reads the hint; one that is absent, of another form or of a process that is gone is none.
pub fn hint(root: &Root) -> Option<Hint> {
    let hint: Hint = serde_json::from_slice(&root.read(HINT, 64 << 10).ok()?).ok()?;
    (hint.schema == 1 && root.exists(format!("/proc/{}", hint.pid))).then_some(hint)
}

/// The sockets to look at, the likeliest first, each once. An explicit one is the only one.
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

/// Asks each candidate that exists. Without a pod uid the first that answers is taken.
pub async fn find(
    root: &Root,
    candidates: &[PathBuf],
    pod_uid: Option<&str>,
) -> (Option<(Runtime, Client)>, Vec<Rejected>) {
    let mut rejected = Vec::new();
    for socket in candidates {
        match ask(root, socket, pod_uid).await {
            Ok(Some(found)) => return (Some(found), rejected),
            Ok(None) => rejected.push(Rejected {
                socket: socket.clone(),
                reason: "it does not run this pod".to_owned(),
            }),
            Err(error) => rejected.push(Rejected {
                socket: socket.clone(),
                reason: error.to_string(),
            }),
        }
    }
    (None, rejected)
}

async fn ask(
    root: &Root,
    socket: &Path,
    pod_uid: Option<&str>,
) -> Result<Option<(Runtime, Client)>, CriError> {
    let mut client = Client::connect(root, socket).await?;
    let version = client.version().await?;
    if let Some(uid) = pod_uid
        && !client.runs_pod(uid).await?
    {
        return Ok(None);
    }
    let runtime = Runtime {
        socket: socket.to_owned(),
        pid: client.pid,
        name: version.runtime_name,
        version: version.runtime_version,
    };
    Ok(Some((runtime, client)))
}

/// The highest CNI version whose results the runtime accepts; `None` when that is not known.
pub fn highest_cni_version(name: &str, version: &str) -> Option<&'static str> {
    let major: u32 = version
        .trim_start_matches('v')
        .split('.')
        .next()?
        .parse()
        .ok()?;
    match (name, major) {
        ("containerd", 0) => None,
        ("containerd", 1) => Some("1.0.0"),
        ("containerd", _) => Some("1.1.0"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_runtimes_accept() {
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
    fn a_hint_is_looked_at_first_and_once() {
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
    fn a_hint_of_a_process_that_is_gone_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(hint(&root), None);
        root.make_dirs("/run/multus-distro", 0o755).unwrap();
        let text = br#"{"schema":1,"distro":"k3s","dataDir":"/d","criSocket":"/s","containerdConfig":"/c","startedAt":1,"pid":7}"#;
        root.write_atomic(HINT, text, 0o644).unwrap();
        assert_eq!(hint(&root), None);
        root.make_dirs("/proc/7", 0o755).unwrap();
        assert_eq!(hint(&root).unwrap().cri_socket, Path::new("/s"));
    }

    #[tokio::test]
    async fn a_socket_that_nobody_serves_is_rejected_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let (found, rejected) = find(&root, &candidates(None, None), Some("uid")).await;
        assert!(found.is_none());
        assert_eq!(rejected.len(), SOCKETS.len());
        assert!(
            rejected[0].reason.contains("/run/k3s/containerd"),
            "{rejected:?}"
        );
    }
}
