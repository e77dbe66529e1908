//! The causes why pods lack networks, the hint for each, and the texts of plugins, runtimes and daemons by which a cause is recognised.

use serde::Serialize;

/// The cause of a pod's state; scripts read its serialised name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cause {
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
    /// The annotation cannot be parsed.
    AnnotationInvalid,
    /// A definition does not exist.
    DefinitionMissing,
    /// A definition is invalid.
    DefinitionInvalid,
    /// The pod may not use a definition of another namespace.
    NamespaceIsolation,
    /// No plugin serves a request of the pod.
    RequestUnsupported,
    /// Two networks of the pod exclude each other.
    NetworksConflict,
    /// The pod has fewer devices than its networks need.
    DeviceMissing,
    /// The daemon's options forbid a plugin.
    PluginNotAllowed,
    /// A plugin is not installed on the node.
    PluginMissing,
    /// All addresses of the network are in use.
    AddressesExhausted,
    /// Another pod has the requested address.
    AddressTaken,
    /// The network does not assign the requested address.
    AddressOutOfRange,
    /// The addresses of the definition are invalid.
    AddressesInvalid,
    /// The network has no address for the pod, since neither definition nor annotation names one.
    AddressMissing,
    /// The node does not have the interface that a network builds on.
    MasterMissing,
    /// The interface that a network builds on is no Ethernet interface.
    MasterUnsuitable,
    /// No DHCP server or no DHCP daemon gives the pod a lease.
    DhcpUnreachable,
    /// A plugin did not end in time.
    PluginSlow,
    /// A plugin failed for a reason of its own.
    PluginFailed,
    /// Multus is not installed in the cluster.
    NotInstalled,
    /// No daemon runs on the node.
    DaemonMissing,
    /// The daemon does not serve pods.
    DaemonNotReady,
    /// The node's network is not ready, for another reason than Multus.
    NodeNetworkNotReady,
    /// The runtime did not call Multus for this pod.
    RuntimeBypass,
    /// The annotation was changed after the pod had started.
    AnnotatedLater,
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

    /// Returns what helps; empty when the text of the failure says it itself.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::PluginMissing => {
                "one of the common plugins is installed by the chart unless cniplugins leaves it out; put any other in one of these directories of the node or in its /var/lib/multus/bin, or choose another type in the definition"
            }
            Self::AddressesExhausted => {
                "enlarge the range of the definition's ipam, or delete pods that use it; the daemon's next start frees addresses of deleted pods"
            }
            Self::AddressTaken => "choose another address, or delete the pod that holds it",
            Self::AddressOutOfRange => {
                "choose an address of the definition's ipam, or change its subnet or range"
            }
            Self::AddressesInvalid => {
                "correct the definition's ipam: `kubectl multus lint` reports what is wrong with it"
            }
            Self::AddressMissing => {
                "write \"addresses\" into the definition's ipam, or declare \"capabilities\": {\"ips\": true} in the definition and request \"ips\" in the pod's annotation"
            }
            Self::RequestUnsupported => {
                "declare the capability in the definition, as in \"capabilities\": {\"ips\": true}, if its plugin supports it, or drop the request from the pod's annotation"
            }
            Self::MasterMissing => {
                "name an interface in the definition that the node has (`ip link` on the node lists them), or keep the pod off this node"
            }
            Self::MasterUnsuitable => {
                "name a master in the definition that carries Ethernet (`ip link` on the node shows link/ether), not the interface of a VPN or tunnel"
            }
            Self::DhcpUnreachable => {
                "set the chart's manifests.dhcpDaemonSet to true, and make sure that a DHCP server answers on this network"
            }
            Self::PluginSlow => {
                "find out what the plugin waits for: the daemon's log has its output"
            }
            Self::NotInstalled => {
                "install the chart again: its daemons also detach the networks of pods that were deleted meanwhile; to go on without Multus, remove the pod's annotation, and before the next uninstallation run `multus-daemon uninstall --detach` on the nodes, or set config.daemon_conf.detachOnUninstall"
            }
            Self::NodeNetworkNotReady => {
                "check the pods of the cluster's default network on that node, and run `multus-distro doctor` there; pods start once the node is Ready"
            }
            Self::DaemonMissing => {
                "find out why its DaemonSet has no pod on this node: check `kubectl get daemonset,pod -A -l tier=node -o wide`, tolerations, nodeSelector and architecture"
            }
            Self::DaemonNotReady => {
                "check the daemon's log; on the node `multus-distro doctor` reports what is wrong and what helps"
            }
            Self::RuntimeBypass => {
                "delete the pod, so that it is created again; if that changes nothing, `multus-distro doctor` on the node reports which configuration its runtime uses"
            }
            Self::AnnotatedLater => {
                "delete the pod, so that it is created again with these networks, or set the chart's dynamicNetworksController.enabled to true"
            }
            Self::NotScheduled => "add the resources that the scheduler misses, or request less",
            Self::HostNetwork => "remove hostNetwork, or the annotation",
            Self::PluginFailed => {
                "the plugin's own message is above; the daemon's log has more under the id"
            }
            // The texts of the other causes end with a hint themselves.
            _ => "",
        }
    }
}

/// Parts of messages, in lower case, by which a cause is recognised; the first match decides.
/// A message of our own daemon or shim that changes there has to change here, too.
const MESSAGES: &[(Cause, &[&str])] = &[
    (
        Cause::DefinitionMissing,
        &[
            "cannot find a network-attachment-definition",
            "cannot find network:",
        ],
    ),
    (Cause::NamespaceIsolation, &["namespace isolation enabled"]),
    (Cause::PluginNotAllowed, &["allowedplugins"]),
    (
        Cause::RequestUnsupported,
        &[
            "no plugin serves the request",
            "serves the pod's request",
            "did not give",
        ],
    ),
    (
        Cause::DeviceMissing,
        &[
            "wants one more device",
            "the devices of pod",
            "takes no device",
        ],
    ),
    (
        Cause::DaemonNotReady,
        &[
            "failed to find plugin \"multus-shim\"",
            "failed to find plugin \"multus\"",
        ],
    ),
    (
        Cause::PluginMissing,
        &[
            "is in none of",
            "failed to find plugin",
            "could not find plugin",
        ],
    ),
    (
        Cause::AddressTaken,
        &[
            "is not available in range set",
            "has already been allocated",
            "address already in use",
            "is already allocated",
        ],
    ),
    (
        Cause::AddressOutOfRange,
        &["failed to allocate all requested ips", "is not in range"],
    ),
    (
        Cause::AddressesInvalid,
        &[
            "invalid cidr address",
            "has host bits set",
            "no ip ranges specified",
            "too small to allocate from",
            "not in network",
            "invalid range set",
            "invalid subnet",
        ],
    ),
    (
        Cause::AddressMissing,
        &[
            "no ip addresses configured",
            "ipam plugin returned missing ip config",
        ],
    ),
    (
        Cause::AddressesExhausted,
        &[
            "no ip addresses available",
            "no addresses available",
            "no available ip",
            "no free ip",
            "could not allocate ip",
            "failed to allocate for range",
            "range set is full",
        ],
    ),
    (
        Cause::DhcpUnreachable,
        &[
            "dhcp.sock",
            "no more tries",
            "no dhcp",
            "error calling dhcp",
        ],
    ),
    (
        Cause::MasterUnsuitable,
        &[
            "no ethernet interface",
            "has to be an ethernet interface",
            "failed to create macvlan: invalid argument",
            "failed to create ipvlan: invalid argument",
        ],
    ),
    (
        Cause::MasterMissing,
        &[
            "failed to lookup master",
            "lookup master",
            "master interface",
            "link not found",
            "no such network interface",
            "failed to find host device",
            "failed to lookup \"",
            "no such device",
        ],
    ),
    (
        Cause::NetworksConflict,
        &["already exists", "default-route", "ecmp"],
    ),
    (
        Cause::DaemonNotReady,
        &[
            "multus daemon at",
            "multus.sock",
            "this node is not known yet",
            "pods and networks are not known yet",
            "earlier deletions come first",
            "have you checked that your default network is ready",
        ],
    ),
    (
        Cause::NodeNetworkNotReady,
        &[
            "cni plugin not initialized",
            "cni config uninitialized",
            "network plugin is not ready",
            "no network config found in",
            "no networks found in",
        ],
    ),
    (
        Cause::PluginSlow,
        &[
            "did not end within",
            "context deadline exceeded",
            "timed out",
        ],
    ),
    (
        Cause::AnnotationInvalid,
        &[
            "annotation k8s.v1.cni.cncf.io",
            "annotation v1.multus-cni.io",
            "invalid network object",
        ],
    ),
    (
        Cause::DefinitionInvalid,
        &[
            "network-attachment-definition ",
            "own delegate",
            "cniversion",
        ],
    ),
];

/// Returns the cause that the text of a failure names; [`Cause::PluginFailed`] when no message is recognised.
pub(super) fn of_text(text: &str) -> Cause {
    let text = text.to_lowercase();
    let matches = |(_, parts): &&(Cause, &[&str])| parts.iter().any(|part| text.contains(part));
    MESSAGES
        .iter()
        .find(matches)
        .map_or(Cause::PluginFailed, |(cause, _)| *cause)
}
