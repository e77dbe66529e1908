//! The causes of pods' states, and the hint for each.

use api::cause::Cause as FailureCause;
use serde::Serialize;

/// The cause of a pod's state; scripts read its serialised name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// The pod has all networks that it requests.
    Healthy,
    /// The pod requests no networks.
    NothingRequested,
    /// The pod has ended or is being deleted.
    Ended,
    /// The networks are being attached.
    BeingAttached,
    /// The scheduler found no node.
    NotScheduled,
    /// The pod uses the node's network.
    HostNetwork,
    /// Multus ignores the annotation.
    AnnotationIgnored,
    /// Multus is not installed in the cluster.
    NotInstalled,
    /// No daemon runs on the node.
    DaemonMissing,
    /// The runtime did not call Multus for this pod.
    RuntimeBypass,
    /// The annotation was changed after the pod had started.
    AnnotatedLater,
    /// A failure, as daemon, shim or runtime report it.
    #[serde(untagged)]
    Failure(FailureCause),
}

impl From<FailureCause> for Cause {
    fn from(cause: FailureCause) -> Self {
        Self::Failure(cause)
    }
}

impl Cause {
    /// Returns true when there is nothing to do.
    pub(super) fn is_healthy(self) -> bool {
        let healthy = [
            Self::Healthy,
            Self::NothingRequested,
            Self::Ended,
            Self::BeingAttached,
        ];
        healthy.contains(&self)
    }

    /// Returns true when another node may have what the pod's node lacks, or what the pod waits for.
    pub(super) fn is_of_node(self) -> bool {
        let of_node = [
            FailureCause::PluginMissing,
            FailureCause::MasterMissing,
            FailureCause::MasterUnsuitable,
            FailureCause::DeviceMissing,
            FailureCause::DhcpUnreachable,
        ];
        match self {
            Self::Failure(cause) => of_node.contains(&cause),
            cause => cause == Self::NotScheduled,
        }
    }

    /// Returns what helps; empty when the explanation says it itself.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Failure(cause) => failure_hint(cause),
            Self::NotInstalled => {
                "install the chart again: its daemons also detach the networks of pods that were deleted meanwhile; to go on without Multus, remove the pod's annotation, and before the next uninstallation run `multus-daemon uninstall --detach` on the nodes, or set config.daemon_conf.detachOnUninstall"
            }
            Self::DaemonMissing => {
                "find out why its DaemonSet has no pod on this node: check `kubectl get daemonset,pod -A -l tier=node -o wide`, tolerations, nodeSelector and architecture"
            }
            Self::RuntimeBypass => {
                "delete the pod, so that it is created again; if that changes nothing, `multus-distro doctor` on the node reports which configuration its runtime uses"
            }
            Self::AnnotatedLater => {
                "delete the pod, so that it is created again with these networks, or set the chart's dynamicNetworksController.enabled to true"
            }
            Self::NotScheduled => "add the resources that the scheduler misses, or request less",
            Self::HostNetwork => "remove hostNetwork, or the annotation",
            Self::Healthy
            | Self::NothingRequested
            | Self::Ended
            | Self::BeingAttached
            | Self::AnnotationIgnored => "",
        }
    }
}

/// Returns what helps after a failure; empty when its text ends with a hint. There is no arm for all others: a new cause needs its own.
fn failure_hint(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::PluginMissing => {
            "one of the common plugins is installed by the chart unless cniplugins leaves it out; put any other in one of these directories of the node or in its /var/lib/multus/bin, or choose another type in the definition"
        }
        FailureCause::AddressesExhausted => {
            "enlarge the range of the definition's ipam, or delete pods that use it; the daemon's next start frees addresses of deleted pods, and `kubectl multus ipam` shows who has those of multus-ipam"
        }
        FailureCause::AddressTaken => "choose another address, or delete the pod that holds it",
        FailureCause::AddressOutOfRange => {
            "choose an address of the definition's ipam, or change its subnet or range"
        }
        FailureCause::AddressesInvalid => {
            "correct the definition's ipam: `kubectl multus lint` reports what is wrong with it"
        }
        FailureCause::AddressMissing => {
            "write \"addresses\" into the definition's ipam, or declare \"capabilities\": {\"ips\": true} in the definition and request \"ips\" in the pod's annotation"
        }
        FailureCause::RequestUnsupported => {
            "declare the capability in the definition, as in \"capabilities\": {\"ips\": true}, if its plugin supports it, or drop the request from the pod's annotation"
        }
        FailureCause::MasterMissing => {
            "name an interface in the definition that the node has (`ip link` on the node lists them), or keep the pod off this node"
        }
        FailureCause::MasterUnsuitable => {
            "name a master in the definition that carries Ethernet (`ip link` on the node shows link/ether), not the interface of a VPN or tunnel"
        }
        FailureCause::DriverMissing => {
            "load the driver into the node's kernel (`modprobe macvlan`, `modprobe ipvlan`, `modprobe 8021q`), or choose another type in the definition"
        }
        FailureCause::DhcpUnreachable => {
            "set the chart's manifests.dhcpDaemonSet to true, and make sure that a DHCP server answers on this network"
        }
        FailureCause::PluginSlow => {
            "find out what the plugin waits for: the daemon's log has its output"
        }
        FailureCause::NodeNetworkNotReady => {
            "check the pods of the cluster's default network on that node, and run `multus-distro doctor` there; pods start once the node is Ready"
        }
        FailureCause::DaemonNotReady => {
            "check the daemon's log; on the node `multus-distro doctor` reports what is wrong and what helps"
        }
        FailureCause::PluginFailed => {
            "the plugin's own message is above; the daemon's log has more under the id"
        }
        FailureCause::DaemonFailed => {
            "check the node's disk and the daemon's log, which has more under the id"
        }
        FailureCause::AnnotationInvalid
        | FailureCause::DefinitionMissing
        | FailureCause::DefinitionInvalid
        | FailureCause::NamespaceIsolation
        | FailureCause::NetworksConflict
        | FailureCause::DeviceMissing
        | FailureCause::ClaimUnusable
        | FailureCause::PluginNotAllowed => "",
    }
}
