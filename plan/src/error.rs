//! The errors of planning. Each text names the network and a remedy.

use std::path::PathBuf;

use api::cause::Cause;
use cni::types::CniError;

use super::annotation::AnnotationError;
use super::family::Family;
use super::quoted::quoted;

/// The reason why a pod's networks cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// An annotation cannot be parsed.
    #[error("pod {pod}: annotation {annotation}: {source}")]
    Annotation {
        /// The pod as `namespace/name`.
        pod: String,
        /// The annotation's key.
        annotation: &'static str,
        /// The parser's error.
        source: Box<AnnotationError>,
    },
    /// The runtime's pod is not the API's: another pod of the same name was created or deleted meanwhile.
    #[error(
        "[{pod}]: expected pod UID \"{expected}\" but got \"{found}\" from Kube API: this sandbox belongs to an earlier pod of that name, and the runtime will remove it"
    )]
    OtherPod {
        /// The pod as `namespace/name`.
        pod: String,
        /// The UID that the runtime has.
        expected: String,
        /// The UID in the API.
        found: String,
    },
    /// The API does not know the pod, or no longer knows it. Its sandbox will be torn down anyway.
    #[error(
        "error configuring pod [{pod}] networking: this node does not know the pod: it was deleted, or a retry will find it"
    )]
    PodNotFound {
        /// The pod as `namespace/name`.
        pod: String,
    },
    /// The watch does not have the pod, and the API server does not tell whether it exists.
    #[error(
        "error waiting for pod: {pod} is not in the watch and the API server did not answer: {reason}"
    )]
    UnreadPod {
        /// The pod as `namespace/name`.
        pod: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// A definition does not exist.
    #[error(
        "cannot find a network-attachment-definition ({}) in namespace ({}): create it, or correct the pod's annotation",
        quoted(name),
        quoted(namespace)
    )]
    NoDefinition {
        /// The namespace of the definition.
        namespace: String,
        /// The name of the definition.
        name: String,
    },
    /// A definition does not exist, nor does the kind in this cluster.
    #[error(
        "cannot find a network-attachment-definition ({}) in namespace ({}): the CRD is not installed: install {chart}",
        quoted(name),
        quoted(namespace)
    )]
    NoCrd {
        /// The namespace of the definition.
        namespace: String,
        /// The name of the definition.
        name: String,
        /// The chart that installs the kind.
        chart: String,
    },
    /// The watch has no such definition, and the API server does not tell whether it exists.
    #[error(
        "cannot read network-attachment-definition ({name}) in namespace ({namespace}): {reason}; the pod starts once the API server answers"
    )]
    UnreadDefinition {
        /// The namespace of the definition.
        namespace: String,
        /// The name of the definition.
        name: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// A definition is in a namespace that this pod may not use.
    #[error(
        "namespace isolation enabled, annotation violates permission, pod is in namespace {pod_namespace} but refers to target namespace {}: define {} in {pod_namespace}, or let the admin add {0} to globalNamespaces",
        quoted(namespace),
        quoted(name)
    )]
    Isolation {
        /// The pod's namespace.
        pod_namespace: String,
        /// The namespace of the definition.
        namespace: String,
        /// The name of the definition.
        name: String,
    },
    /// The default network cannot be resolved.
    #[error(
        "failed to get clusterNetwork {name}{}: {}",
        in_namespace(name, namespace),
        without_path(name, cause)
    )]
    ClusterNetwork {
        /// The name or path as configured.
        name: String,
        /// The namespace of definitions that are named without one.
        namespace: String,
        /// The underlying error.
        cause: Box<PlanError>,
    },
    /// One of the additional default networks cannot be resolved.
    #[error(
        "failed to get default network {name}{}: {}",
        in_namespace(name, namespace),
        without_path(name, cause)
    )]
    DefaultNetwork {
        /// The name or path as configured.
        name: String,
        /// The namespace of definitions that are named without one.
        namespace: String,
        /// The underlying error.
        cause: Box<PlanError>,
    },
    /// A plugin is not in `allowedPlugins`.
    #[error(
        "{}: network {network} needs plugin {plugin}, which is not in allowedPlugins: add it to that option of the daemon, or choose another network",
        pod.as_ref().map_or_else(|| "every pod".to_owned(), |pod| format!("pod {pod}"))
    )]
    NotAllowed {
        /// The pod as `namespace/name`; `None` for a network that no pod selected.
        pod: Option<String>,
        /// The network's name in status and events.
        network: String,
        /// The type of the plugin.
        plugin: String,
    },
    /// The content of a definition cannot be used.
    #[error("network-attachment-definition {namespace}/{name}: {reason}")]
    Definition {
        /// The namespace of the definition.
        namespace: String,
        /// The name of the definition.
        name: String,
        /// Why not.
        reason: String,
    },
    /// An inline delegate cannot be used.
    #[error("delegates[{index}] of the multus configuration: {reason}")]
    Delegate {
        /// Position in the list.
        index: usize,
        /// Why not.
        reason: String,
    },
    /// The pod has fewer devices than its networks require.
    #[error(
        "network {network} wants one more device of {resource}, but the pod has {had}: request as many in its containers (or claims) as networks want, or select fewer networks"
    )]
    NoDevice {
        /// The network's name.
        network: String,
        /// The device plugin's or driver's resource.
        resource: String,
        /// The number of devices that the pod has.
        had: usize,
    },
    /// A device ID cannot be written into a configuration.
    #[error("network {network}: its configuration takes no device: {reason}")]
    Device {
        /// The network's name.
        network: String,
        /// Why not.
        reason: String,
    },
    /// Neither the kubelet nor the API server has reported the pod's devices.
    #[error(
        "network {network} wants a device, but the devices of pod {pod} are not known: {reason}"
    )]
    Devices {
        /// The pod as `namespace/name`.
        pod: String,
        /// The first network that requires a device.
        network: String,
        /// Why the devices are not known.
        reason: String,
    },
    /// A configuration that a request carries itself cannot be used.
    #[error("the network of the request: {reason}")]
    Explicit {
        /// Why not.
        reason: String,
    },
    /// A delegate is Multus itself.
    #[error(
        "network {network}: multus cannot be its own delegate (a plugin has type \"{kind}\"): use a network of another plugin"
    )]
    OwnDelegate {
        /// The network's name.
        network: String,
        /// The plugin's type.
        kind: String,
    },
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file or directory by its path on the node.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file does not exist, or a directory has no usable file.
    #[error("{}: {reason}", path.display())]
    NoFile {
        /// The file or directory by its path on the node.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A network other than InfiniBand is requested with a hardware address of InfiniBand.
    #[error(
        "network {network}: mac \"{mac}\" does not have 6 bytes, and only InfiniBand networks take other lengths: write it as in 02:00:00:00:00:01"
    )]
    LongMac {
        /// The network's name.
        network: String,
        /// The address as written.
        mac: String,
    },
    /// A name belongs neither to a definition nor to a configuration on disk.
    #[error(
        "getNetDelegate: cannot find network: {name}: create network-attachment-definition {namespace}/{name}, or a configuration of that name in {}", dir.display()
    )]
    NoNetwork {
        /// The name as configured.
        name: String,
        /// The namespace that was searched for a definition.
        namespace: String,
        /// The directory that was searched for a configuration.
        dir: PathBuf,
    },
    /// The default network annotation names several networks.
    #[error(
        "more than one default network is specified in annotation {}: name one",
        super::DEFAULT_NETWORK_ANNOTATION
    )]
    ManyDefaults,
    /// The default network annotation names no network.
    #[error(
        "no default network is specified in annotation {}: name one, or remove the annotation",
        super::DEFAULT_NETWORK_ANNOTATION
    )]
    NoDefault,
    /// The configurations of a pod's networks are too large together.
    #[error(
        "the configurations of the pod's networks have {bytes} bytes together, but a pod may have {limit}: select fewer networks, or smaller ones"
    )]
    TooLarge {
        /// The bytes of all configurations that were built so far.
        bytes: usize,
        limit: usize,
    },
    /// A pod requests something that no plugin of the network supports.
    #[error(
        "network {network}: no plugin serves the request for {requests}: add the capability, drop the request, or set unservedRequests to event"
    )]
    Unsupported {
        /// The network's name.
        network: String,
        /// The requested capabilities, separated by commas.
        requests: String,
    },
    /// Two default routes of one family.
    #[error(
        "multus does not support ECMP for default-route: {} {} for more than one {family} gateway: leave one",
        networks.join(" and "),
        if networks.len() > 1 { "ask" } else { "asks" }
    )]
    ManyGateways {
        /// The family with more than one gateway.
        family: Family,
        /// The networks whose selections name these gateways.
        networks: Vec<String>,
    },
    /// One network is to keep its own default routes, and another one is to have default routes too.
    #[error(
        "default-route is on {networks}, but an empty list means that only this network has default routes: leave it on one"
    )]
    DefaultRouteTwice {
        /// The networks with the key `default-route`.
        networks: String,
    },
}

/// Returns the namespace that was searched for a network; a path needs none.
fn in_namespace(name: &str, namespace: &str) -> String {
    if name.contains('/') {
        return String::new();
    }
    format!(" in namespace {namespace}")
}

/// Returns the text of the cause, without the path when that is the network's name, which the outer text already has.
fn without_path(name: &str, cause: &PlanError) -> String {
    match cause {
        PlanError::File { path, reason } | PlanError::NoFile { path, reason }
            if path.as_os_str() == name =>
        {
            reason.clone()
        }
        _ => cause.to_string(),
    }
}

impl PlanError {
    /// Returns the reason of the pod's warning event, or `None` where it is the verb's.
    pub fn event(&self) -> Option<&'static str> {
        match self {
            Self::NoDefinition { .. } | Self::NoCrd { .. } => Some("NoNetworkFound"),
            Self::ClusterNetwork { cause, .. } | Self::DefaultNetwork { cause, .. }
                if matches!(**cause, Self::NoNetwork { .. } | Self::NoFile { .. }) =>
            {
                Some("NoNetworkFound")
            }
            _ => None,
        }
    }

    /// Returns true when the text names the pod.
    pub fn names_pod(&self) -> bool {
        match self {
            Self::Annotation { .. }
            | Self::OtherPod { .. }
            | Self::PodNotFound { .. }
            | Self::UnreadPod { .. }
            | Self::Devices { .. } => true,
            Self::NotAllowed { pod, .. } => pod.is_some(),
            _ => false,
        }
    }

    /// Returns the word under which the failure is reported.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Annotation { .. } | Self::ManyDefaults | Self::NoDefault => {
                Cause::AnnotationInvalid
            }
            Self::NoDefinition { .. } | Self::NoCrd { .. } | Self::NoNetwork { .. } => {
                Cause::DefinitionMissing
            }
            Self::UnreadDefinition { .. }
            | Self::OtherPod { .. }
            | Self::PodNotFound { .. }
            | Self::UnreadPod { .. } => Cause::DaemonNotReady,
            Self::Isolation { .. } => Cause::NamespaceIsolation,
            Self::NotAllowed { .. } => Cause::PluginNotAllowed,
            Self::Unsupported { .. } => Cause::RequestUnsupported,
            Self::NoDevice { .. } | Self::Device { .. } | Self::Devices { .. } => {
                Cause::DeviceMissing
            }
            Self::ManyGateways { .. } | Self::DefaultRouteTwice { .. } => Cause::NetworksConflict,
            Self::ClusterNetwork { cause, .. } | Self::DefaultNetwork { cause, .. } => {
                cause.cause()
            }
            Self::Definition { .. }
            | Self::Delegate { .. }
            | Self::Explicit { .. }
            | Self::OwnDelegate { .. }
            | Self::File { .. }
            | Self::NoFile { .. }
            | Self::LongMac { .. }
            | Self::TooLarge { .. } => Cause::DefinitionInvalid,
        }
    }

    /// Returns the CNI code. A missing default network or definition may still appear, so the runtime should try again; any other error
    /// needs a correction.
    fn code(&self) -> u32 {
        match self {
            Self::ClusterNetwork { cause, .. } | Self::DefaultNetwork { cause, .. } => cause.code(),
            Self::NoDefinition { .. }
            | Self::NoCrd { .. }
            | Self::UnreadDefinition { .. }
            | Self::OtherPod { .. }
            | Self::PodNotFound { .. }
            | Self::UnreadPod { .. }
            | Self::NoNetwork { .. }
            | Self::File { .. }
            | Self::NoFile { .. }
            | Self::Devices { .. } => CniError::TRY_AGAIN_LATER,
            _ => CniError::INVALID_NETWORK_CONFIG,
        }
    }
}

impl From<PlanError> for CniError {
    fn from(error: PlanError) -> Self {
        CniError::new(error.code(), error.to_string())
    }
}
