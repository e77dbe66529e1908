//! Why no plan can be made. Each text names the network and what to do about it.

use std::path::PathBuf;

use cni::types::CniError;

use super::annotation::AnnotationError;
use super::routes::Family;

/// Why a pod's networks cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// An annotation that does not parse.
    #[error("pod {pod}: annotation {annotation}: {source}")]
    Annotation {
        /// The pod as `namespace/name`.
        pod: String,
        /// The annotation's key.
        annotation: &'static str,
        /// What is wrong with it.
        source: Box<AnnotationError>,
    },
    /// A definition that is not there.
    #[error(
        "cannot find a network-attachment-definition ({name}) in namespace ({namespace}): create it, or correct the pod's annotation"
    )]
    NoDefinition {
        /// Where it was looked for.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A definition of a kind that the cluster does not know.
    #[error(
        "cannot find a network-attachment-definition ({name}) in namespace ({namespace}): the CRD is not installed: install {chart}"
    )]
    NoCrd {
        /// Where it was looked for.
        namespace: String,
        /// Its name.
        name: String,
        /// The chart that brings the kind.
        chart: String,
    },
    /// A definition of a namespace that this pod may not use.
    #[error(
        "namespace isolation enabled, annotation violates permission, pod is in namespace {pod_namespace} but refers to target namespace {namespace}: define {name} in {pod_namespace}, or let the admin add {namespace} to globalNamespaces"
    )]
    Isolation {
        /// The pod's namespace.
        pod_namespace: String,
        /// The definition's.
        namespace: String,
        /// The definition's name.
        name: String,
    },
    /// The default network cannot be had.
    #[error(
        "failed to get clusterNetwork {name}{}: {}",
        place(name, namespace),
        what(name, cause)
    )]
    ClusterNetwork {
        /// As configured.
        name: String,
        /// Where definitions were looked for.
        namespace: String,
        /// Why.
        cause: Box<PlanError>,
    },
    /// One of the default networks cannot be had.
    #[error(
        "failed to get default network {name}{}: {}",
        place(name, namespace),
        what(name, cause)
    )]
    DefaultNetwork {
        /// As configured.
        name: String,
        /// Where definitions were looked for.
        namespace: String,
        /// Why.
        cause: Box<PlanError>,
    },
    /// A plugin that may not run here.
    #[error(
        "{pod}: network {network} needs plugin {plugin}, which is not in allowedPlugins: add it to that option of the daemon, or choose another network"
    )]
    NotAllowed {
        /// Whose networks these are.
        pod: String,
        /// What status and events call the network.
        network: String,
        /// The type of the plugin.
        plugin: String,
    },
    /// A definition whose content cannot be used.
    #[error("network-attachment-definition {namespace}/{name}: {reason}")]
    Definition {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// An inline delegate that cannot be used.
    #[error("delegates[{index}] of the multus configuration: {reason}")]
    Delegate {
        /// Its position.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// The pod has fewer devices than its networks want.
    #[error(
        "network {network} wants one more device of {resource}, but the pod has {had}: request as many in its containers (or claims) as networks want, or select fewer networks"
    )]
    NoDevice {
        /// The network's name.
        network: String,
        /// The resource.
        resource: String,
        /// How many the pod has.
        had: usize,
    },
    /// A configuration that takes no device.
    #[error("network {network}: its configuration takes no device: {reason}")]
    Device {
        /// The network's name.
        network: String,
        /// What is wrong.
        reason: String,
    },
    /// Nobody can tell which devices the pod has.
    #[error(
        "network {network} wants a device, and which ones pod {pod} has is not known: {reason}"
    )]
    Devices {
        /// The pod as `namespace/name`.
        pod: String,
        /// The first network that wants one.
        network: String,
        /// Why.
        reason: String,
    },
    /// A configuration that came with the request and cannot be used.
    #[error("the network to plug: {reason}")]
    Given {
        /// What is wrong.
        reason: String,
    },
    /// A network that leads back to multus.
    #[error(
        "network {network}: multus cannot be its own delegate (a plugin has type \"{kind}\"): name the network that it is to lead to"
    )]
    OwnDelegate {
        /// The network's name.
        network: String,
        /// The plugin's type.
        kind: String,
    },
    /// A file that cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file or directory, as seen on the node.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file or directory that is not there, or holds nothing.
    #[error("{}: {reason}", path.display())]
    NoFile {
        /// The file or directory, as seen on the node.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A hardware address that only InfiniBand has.
    #[error(
        "network {network}: mac \"{mac}\" does not have 6 bytes, which only networks of InfiniBand take: write it as in 02:00:00:00:00:01"
    )]
    LongMac {
        /// The network's name.
        network: String,
        /// The address as written.
        mac: String,
    },
    /// A name that is neither a definition nor a configuration on disk.
    #[error(
        "getNetDelegate: cannot find network: {name}: create network-attachment-definition {namespace}/{name}, or a configuration of that name in {}", dir.display()
    )]
    NoNetwork {
        /// The name.
        name: String,
        /// Where definitions were looked for.
        namespace: String,
        /// Where files were looked for.
        dir: PathBuf,
    },
    /// The default network annotation names several.
    #[error(
        "more than one default network is specified in annotation {}: name one",
        super::DEFAULT_NETWORK_ANNOTATION
    )]
    ManyDefaults,
    /// The default network annotation names none.
    #[error(
        "no default network is specified in annotation {}: name one, or remove the annotation",
        super::DEFAULT_NETWORK_ANNOTATION
    )]
    NoDefault,
    /// Something that a pod asks for and nobody can give.
    #[error(
        "network {network}: no plugin serves the request for {requests}: add the capability, drop the request, or set unservedRequests to event"
    )]
    Unserved {
        /// The network's name.
        network: String,
        /// The capabilities.
        requests: String,
    },
    /// Two default routes of one family.
    #[error(
        "multus does not support ECMP for default-route: {networks} ask for more than one {family} gateway: leave one"
    )]
    ManyGateways {
        /// The family.
        family: Family,
        /// Who asks.
        networks: String,
    },
    /// A network that is to keep its own default routes, and another that is to have them.
    #[error(
        "default-route is on {networks}, but an empty list means that one network alone has default routes: leave it on that one"
    )]
    DefaultRouteTwice {
        /// Who asks.
        networks: String,
    },
    /// Something that this version does not do, and therefore does not pass over.
    #[error("network {network}: {what} is not supported by this version: {cure}")]
    Unsupported {
        /// The network's name.
        network: String,
        /// What was asked for.
        what: String,
        /// What to do.
        cure: &'static str,
    },
}

/// Where a network was looked for; a path says so itself.
fn place(name: &str, namespace: &str) -> String {
    if name.contains('/') {
        return String::new();
    }
    format!(" in namespace {namespace}")
}

/// The cause, without a path that was said already.
fn what(name: &str, cause: &PlanError) -> String {
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
    /// Reason and message of the warning event that this deserves on the pod.
    pub fn event(&self) -> Option<(&'static str, String)> {
        match self {
            Self::NoDefinition { .. } | Self::NoCrd { .. } => {
                Some(("NoNetworkFound", self.to_string()))
            }
            Self::ClusterNetwork { cause, .. } | Self::DefaultNetwork { cause, .. }
                if matches!(**cause, Self::NoNetwork { .. } | Self::NoFile { .. }) =>
            {
                Some(("NoNetworkFound", self.to_string()))
            }
            _ => None,
        }
    }

    /// The CNI code: a missing primary or definition may turn up, everything else wants to be corrected.
    fn code(&self) -> u32 {
        match self {
            Self::ClusterNetwork { cause, .. } | Self::DefaultNetwork { cause, .. } => cause.code(),
            Self::NoDefinition { .. }
            | Self::NoCrd { .. }
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
