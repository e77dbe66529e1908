//! A client of a container runtime (cri-api runtime/v1) with the calls that the tests make.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::Context as _;
use node::grpc::Channel;
use tokio::{net::UnixStream, time::timeout};

/// `NamespaceMode.NODE`; the default is `POD`.
const NAMESPACE_NODE: i32 = 2;
/// `MountPropagation.PROPAGATION_HOST_TO_CONTAINER`.
pub(crate) const HOST_TO_CONTAINER: i32 = 1;
/// Longer than a kubelet waits.
const TIMEOUT: Duration = Duration::from_mins(4);

/// A connection to a runtime.
pub(crate) struct Client {
    threads: tokio::runtime::Runtime,
    channel: Channel,
}

impl Client {
    pub(crate) fn connect(socket: PathBuf) -> anyhow::Result<Self> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let channel = threads.block_on(async {
            let stream = UnixStream::connect(socket).await?;
            anyhow::Ok(Channel::open(stream).await?)
        })?;
        Ok(Self { threads, channel })
    }

    /// `RunPodSandbox`; returns the sandbox's ID.
    pub(crate) fn run(&mut self, config: &PodSandboxConfig) -> anyhow::Result<String> {
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
        };
        Ok(self.call::<Id>("RunPodSandbox", &request)?.id)
    }

    /// `StopPodSandbox`.
    pub(crate) fn stop(&mut self, id: &str) -> anyhow::Result<()> {
        self.call::<Empty>("StopPodSandbox", &Id::of(id)).map(drop)
    }

    /// `RemovePodSandbox`.
    pub(crate) fn remove(&mut self, id: &str) -> anyhow::Result<()> {
        self.call::<Empty>("RemovePodSandbox", &Id::of(id))
            .map(drop)
    }

    /// Returns the process ID of a sandbox.
    pub(crate) fn process(&mut self, id: &str) -> anyhow::Result<u32> {
        let request = PodSandboxStatusRequest {
            id: id.to_owned(),
            verbose: true,
        };
        let status: PodSandboxStatusResponse = self.call("PodSandboxStatus", &request)?;
        let info: serde_json::Value =
            serde_json::from_str(status.info.get("info").context("no info")?)?;
        let pid = info["pid"]
            .as_u64()
            .context("the runtime names no process")?;
        Ok(u32::try_from(pid)?)
    }

    /// Creates and starts a container; returns its ID.
    pub(crate) fn container(
        &mut self,
        sandbox: &str,
        of: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> anyhow::Result<String> {
        let request = CreateContainerRequest {
            sandbox: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(of.clone()),
        };
        let id = self.call::<Id>("CreateContainer", &request)?.id;
        self.call::<Empty>("StartContainer", &Id::of(&id))?;
        Ok(id)
    }

    fn call<A: prost::Message + Default>(
        &mut self,
        method: &str,
        request: &impl prost::Message,
    ) -> anyhow::Result<A> {
        let path = format!("/runtime.v1.RuntimeService/{method}");
        let Self { threads, channel } = self;
        let message = request.encode_to_vec();
        let call = async { timeout(TIMEOUT, channel.call(&path, &message)).await };
        let answer = threads.block_on(call)?.with_context(|| method.to_owned())?;
        Ok(A::decode(&answer[..])?)
    }
}

/// Returns the namespaces of the node, as the daemon's pod and its container have them.
pub(crate) fn node_namespaces() -> NamespaceOption {
    NamespaceOption {
        network: NAMESPACE_NODE,
        pid: NAMESPACE_NODE,
    }
}

/// Returns the configuration of a sandbox in the node's namespaces, as the daemon's pod has it.
pub(crate) fn host_network_sandbox(uid: &str) -> PodSandboxConfig {
    PodSandboxConfig::for_pod("kube-system", "multus", uid).on_node()
}

impl PodSandboxConfig {
    /// Returns the configuration of a pod's sandbox, with namespaces of its own.
    pub(crate) fn for_pod(namespace: &str, name: &str, uid: &str) -> Self {
        let labels = [("name", name), ("namespace", namespace), ("uid", uid)];
        let labels = labels.map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.into()));
        Self {
            labels: BTreeMap::from(labels),
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.to_owned(),
                namespace: namespace.to_owned(),
            }),
            linux: None,
        }
    }

    /// Puts it into the node's namespaces, privileged.
    pub(crate) fn on_node(mut self) -> Self {
        let security = SandboxSecurity {
            namespaces: Some(node_namespaces()),
            privileged: true,
        };
        let security = Some(security);
        self.linux = Some(LinuxConfig { security });
        self
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

/// Any message whose first field is an ID and whose other fields are not needed.
#[derive(Clone, PartialEq, prost::Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

impl Id {
    fn of(id: &str) -> Self {
        Self { id: id.to_owned() }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(bool, tag = "2")]
    verbose: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodSandboxStatusResponse {
    #[prost(btree_map = "string, string", tag = "2")]
    info: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    sandbox: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<PodSandboxMetadata>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) labels: BTreeMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) linux: Option<LinuxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
}

/// `LinuxPodSandboxConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxConfig {
    #[prost(message, optional, tag = "2")]
    pub(crate) security: Option<SandboxSecurity>,
}

/// `LinuxSandboxSecurityContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SandboxSecurity {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespaces: Option<NamespaceOption>,
    #[prost(bool, tag = "6")]
    pub(crate) privileged: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NamespaceOption {
    #[prost(int32, tag = "1")]
    pub(crate) network: i32,
    #[prost(int32, tag = "2")]
    pub(crate) pid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<Text>,
    #[prost(message, optional, tag = "2")]
    pub(crate) image: Option<Text>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) args: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) envs: Vec<KeyValue>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(message, optional, tag = "15")]
    pub(crate) linux: Option<ContainerLinux>,
}

/// `ContainerMetadata` and `ImageSpec`: both have a name in the first field.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container: String,
    #[prost(string, tag = "2")]
    pub(crate) host: String,
    #[prost(int32, tag = "5")]
    pub(crate) propagation: i32,
}

/// `LinuxContainerConfig`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerLinux {
    #[prost(message, optional, tag = "2")]
    pub(crate) security: Option<ContainerSecurity>,
}

/// `LinuxContainerSecurityContext`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerSecurity {
    #[prost(bool, tag = "2")]
    pub(crate) privileged: bool,
    #[prost(message, optional, tag = "3")]
    pub(crate) namespaces: Option<NamespaceOption>,
}
