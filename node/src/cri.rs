//! A client of the Container Runtime Interface (cri-api runtime/v1) with the few calls that the daemon needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::net::UnixStream;

use crate::{
    grpc::Channel,
    root::{Root, RootError, proc_path},
};

/// The timeout of a call; a slower runtime is asked again later.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The socket's directory cannot be reached.
    #[error(transparent)]
    Root(#[from] RootError),
    /// No process accepts connections.
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect {
        /// The socket, as the node names it.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The listening process is in a process namespace that is not visible.
    #[error(
        "the process behind {} is not visible from here: it belongs to another machine or container, or hostPID is off",
        socket.display()
    )]
    Invisible {
        /// The socket, as the node names it.
        socket: PathBuf,
    },
    /// The server does not speak gRPC.
    #[error("{} does not speak gRPC: {reason}", socket.display())]
    Transport {
        /// The socket, as the node names it.
        socket: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The server refused the call or did not answer in time.
    #[error("{} refused {method}: {reason}", socket.display())]
    Refused {
        /// The socket, as the node names it.
        socket: PathBuf,
        /// The name of the call.
        method: &'static str,
        /// The server's message.
        reason: String,
    },
}

impl CriError {
    /// Returns whether the user lacks the permission, so that root may succeed.
    pub fn is_denied(&self) -> bool {
        let source = match self {
            Self::Root(error) => &error.source,
            Self::Connect { source, .. } => source,
            Self::Invisible { .. } | Self::Transport { .. } | Self::Refused { .. } => return false,
        };
        source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// A connection to a runtime or a kubelet.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    channel: Channel,
    /// The ID of the listening process.
    pub pid: u32,
}

impl Client {
    /// Connects to the socket at the node's path `socket`.
    pub async fn connect(root: &Root, socket: &Path) -> Result<Self, CriError> {
        let (directory, name) = root.parent(socket)?;
        let refused = |source| CriError::Connect {
            socket: socket.to_owned(),
            source,
        };
        let stream = UnixStream::connect(proc_path(&directory).join(name)).await;
        let stream = stream.map_err(refused)?;
        let peer = stream.peer_cred().map_err(refused)?;
        // Zero stands for a process whose namespace is not visible from here.
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        let pid = pid.filter(|pid| *pid > 0);
        let pid = pid.ok_or_else(|| CriError::Invisible {
            socket: socket.to_owned(),
        })?;
        let channel = tokio::time::timeout(TIMEOUT, Channel::open(stream)).await;
        let reason = match channel {
            Ok(Ok(channel)) => {
                let socket = socket.to_owned();
                return Ok(Self {
                    socket,
                    channel,
                    pid,
                });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => no_answer(),
        };
        Err(CriError::Transport {
            socket: socket.to_owned(),
            reason,
        })
    }

    /// Returns name and version of the runtime.
    pub async fn version(&mut self) -> Result<VersionResponse, CriError> {
        self.call(
            "Version",
            "/runtime.v1.RuntimeService/Version",
            VersionRequest::default(),
        )
        .await
    }

    /// Returns the verbose part of the status: JSON texts by name.
    pub async fn verbose_status(&mut self) -> Result<BTreeMap<String, String>, CriError> {
        let request = StatusRequest { verbose: true };
        let response: StatusResponse = self
            .call("Status", "/runtime.v1.RuntimeService/Status", request)
            .await?;
        Ok(response.info)
    }

    /// Returns whether a sandbox belongs to this pod.
    pub async fn runs_pod(&mut self, uid: &str) -> Result<bool, CriError> {
        let labels = BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), uid.to_owned())]);
        let filter = PodSandboxFilter {
            label_selector: labels,
        };
        Ok(self.list(Some(filter)).await?.iter().any(|item| {
            item.metadata
                .as_ref()
                .is_some_and(|metadata| metadata.uid == uid)
        }))
    }

    /// Returns whether a sandbox belongs to any pod.
    pub async fn runs_pods(&mut self) -> Result<bool, CriError> {
        Ok(self.list(None).await?.iter().any(|item| {
            let metadata = item.metadata.as_ref();
            metadata.is_some_and(|metadata| !metadata.uid.is_empty())
        }))
    }

    /// Returns the IDs of all sandboxes, including those that have ended and are not removed yet.
    pub async fn sandboxes(&mut self) -> Result<BTreeSet<String>, CriError> {
        let items = self.list(None).await?;
        Ok(items.into_iter().map(|item| item.id).collect())
    }

    async fn list(
        &mut self,
        filter: Option<PodSandboxFilter>,
    ) -> Result<Vec<PodSandbox>, CriError> {
        let path = "/runtime.v1.RuntimeService/ListPodSandbox";
        let request = ListPodSandboxRequest { filter };
        let response: ListPodSandboxResponse = self.call("ListPodSandbox", path, request).await?;
        Ok(response.items)
    }

    pub(crate) async fn call<Q, A>(
        &mut self,
        method: &'static str,
        path: &'static str,
        request: Q,
    ) -> Result<A, CriError>
    where
        Q: prost::Message,
        A: prost::Message + Default,
    {
        let refused = |reason: String| CriError::Refused {
            socket: self.socket.clone(),
            method,
            reason,
        };
        let message = request.encode_to_vec();
        let call = self.channel.call(path, &message);
        let answer = tokio::time::timeout(TIMEOUT, call).await;
        let answer = answer.map_err(|_| refused(no_answer()))?;
        let answer = answer.map_err(|error| refused(error.to_string()))?;
        A::decode(&answer[..]).map_err(|error| refused(error.to_string()))
    }
}

fn no_answer() -> String {
    format!("no answer within {} s", TIMEOUT.as_secs())
}

/// cri-api `VersionRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VersionRequest {
    /// Unused by runtimes.
    #[prost(string, tag = "1")]
    pub version: String,
}

/// cri-api `VersionResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VersionResponse {
    /// `containerd`, `cri-o`, …
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// The runtime's own version, often with a `v`.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

/// cri-api `StatusRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusRequest {
    /// Whether the response has `info`.
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

/// The verbose part of cri-api `StatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    /// JSON texts by name.
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: BTreeMap<String, String>,
}

/// cri-api `ListPodSandboxRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodSandboxRequest {
    /// The sandboxes to list; all without a filter.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<PodSandboxFilter>,
}

/// cri-api `PodSandboxFilter`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxFilter {
    /// Labels that must match.
    #[prost(btree_map = "string, string", tag = "3")]
    pub label_selector: BTreeMap<String, String>,
}

/// cri-api `ListPodSandboxResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

/// The needed part of cri-api `PodSandbox`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandbox {
    /// The sandbox ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The pod that it belongs to.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
}

/// cri-api `PodSandboxMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxMetadata {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The pod's UID.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// The pod's namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_permission_counts_as_denied() {
        for (kind, expected) in [
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::ConnectionRefused, false),
        ] {
            let socket = PathBuf::from("/s");
            let source = kind.into();
            assert_eq!(CriError::Connect { socket, source }.is_denied(), expected);
        }
        let socket = PathBuf::from("/s");
        assert!(!CriError::Invisible { socket }.is_denied());
    }
}
