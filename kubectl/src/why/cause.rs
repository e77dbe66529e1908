//! Why pods lack networks, and which texts of plugins, runtimes and daemons tell of which cause.

use serde::Serialize;

/// What is the matter; the words are for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cause {
    /// All is there.
    Well,
    /// Nothing was asked for.
    NothingAsked,
    /// It has ended, or is about to.
    Ended,
    /// Its networks are being attached.
    BeingAttached,
    /// No node was found.
    NotScheduled,
    /// It lives in the node's network.
    HostNetwork,
    /// An annotation that nobody reads.
    AnnotationMisspelt,
    /// An annotation that cannot be read.
    AnnotationInvalid,
    /// A definition is not there.
    DefinitionMissing,
    /// A definition cannot be used.
    DefinitionBroken,
    /// A definition of a namespace that is closed to the pod.
    NamespaceIsolation,
    /// The pod wants what no plugin gives.
    RequestUnserved,
    /// Networks of the pod are in each other's way.
    NetworksConflict,
    /// The pod has fewer devices than its networks want.
    DeviceMissing,
    /// A plugin may not run.
    PluginNotAllowed,
    /// A plugin is not on the node.
    PluginMissing,
    /// No address is left.
    AddressesExhausted,
    /// Another pod has the address that was requested.
    AddressTaken,
    /// The network does not give out the address that was requested.
    AddressOutside,
    /// The addresses of the definition cannot be used.
    AddressesInvalid,
    /// The network has no address for the pod, since neither definition nor annotation names one.
    AddressMissing,
    /// An interface of the node that a network builds on is not there.
    MasterMissing,
    /// Nobody gives the pod a lease.
    DhcpUnreachable,
    /// A plugin did not end in time.
    PluginSlow,
    /// A plugin failed for a reason of its own.
    PluginFailed,
    /// There is no Multus in the cluster (any more).
    NotInstalled,
    /// There is no daemon on the node.
    DaemonMissing,
    /// The daemon does not serve pods.
    DaemonNotReady,
    /// The node's network is not ready, for another reason than Multus.
    NodeNetworkNotReady,
    /// The runtime has not asked Multus.
    RuntimeBypass,
    /// The annotation was changed after the pod had started.
    AnnotatedLater,
}

impl Cause {
    /// Whether there is nothing to do.
    pub(super) fn is_well(self) -> bool {
        let well = [
            Self::Well,
            Self::NothingAsked,
            Self::Ended,
            Self::BeingAttached,
        ];
        well.contains(&self)
    }

    /// What helps, where the text of the failure does not say.
    pub(super) fn cure(self) -> &'static str {
        match self {
            Self::PluginMissing => {
                "put the plugin into one of these directories of the node or into its /var/lib/multus/bin, or choose another type in the definition"
            }
            Self::AddressesExhausted => {
                "enlarge the range of the definition's ipam, or delete pods that use it; addresses of pods that are gone are freed by the daemon's next start"
            }
            Self::AddressTaken => "choose another address, or delete the pod that holds it",
            Self::AddressOutside => {
                "choose an address of the definition's ipam, or change its subnet or range"
            }
            Self::AddressesInvalid => {
                "correct the definition's ipam: `kubectl multus lint` names what is wrong with it"
            }
            Self::AddressMissing => {
                "write \"addresses\" into the definition's ipam, or have the definition declare \"capabilities\": {\"ips\": true} and the pod's annotation request \"ips\""
            }
            Self::RequestUnserved => {
                "declare the capability in the definition, as in \"capabilities\": {\"ips\": true}, where its plugin knows it; or drop the request from the pod's annotation"
            }
            Self::MasterMissing => {
                "name an interface in the definition that the node has (`ip link` on it), or keep the pod off this node"
            }
            Self::DhcpUnreachable => {
                "set the chart's manifests.dhcpDaemonSet, and see that a DHCP server answers on this network"
            }
            Self::PluginSlow => "see what the plugin waits for: the daemon's log has its words",
            Self::NotInstalled => {
                "install the chart again: its daemons also detach what pods from before leave behind; where Multus is to stay away, remove the pod's annotation, and next time run `multus-daemon uninstall --detach` on the nodes, or set config.daemon_conf.detachOnUninstall, before the chart is uninstalled"
            }
            Self::NodeNetworkNotReady => {
                "see the pods of the primary CNI on that node, and `multus-distro doctor` there; pods start once the node is Ready"
            }
            Self::DaemonMissing => {
                "see why its DaemonSet has no pod on this node: `kubectl get daemonset,pod -A -l tier=node -o wide`, tolerations, nodeSelector and architecture"
            }
            Self::DaemonNotReady => {
                "see the daemon's log; on the node `multus-distro doctor` says what is wrong and what helps"
            }
            Self::RuntimeBypass => {
                "delete the pod, so that it is made again; when that changes nothing, `multus-distro doctor` on the node says which configuration its runtime uses"
            }
            Self::AnnotatedLater => {
                "delete the pod, so that it is made again with them, or set the chart's dynamicNetworksController.enabled"
            }
            Self::NotScheduled => "give the cluster what the scheduler misses, or ask for less",
            Self::HostNetwork => "remove hostNetwork, or the annotation",
            Self::PluginFailed => {
                "the plugin's own words are above; the daemon's log has more under the id"
            }
            // The texts say it.
            _ => "",
        }
    }
}

/// Words in small letters that tell of a cause; the first that fits counts.
const WORDS: &[(Cause, &[&str])] = &[
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
        Cause::RequestUnserved,
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
        Cause::AddressOutside,
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
        Cause::DefinitionBroken,
        &[
            "network-attachment-definition ",
            "own delegate",
            "cniversion",
        ],
    ),
];

/// The cause that a text tells of.
pub(super) fn of_text(text: &str) -> Cause {
    let text = text.to_lowercase();
    let fits = |words: &&(Cause, &[&str])| words.1.iter().any(|word| text.contains(word));
    WORDS
        .iter()
        .find(fits)
        .map_or(Cause::PluginFailed, |(cause, _)| *cause)
}
