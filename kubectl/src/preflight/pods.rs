//! Predicts what happens to a pod at its next start: by the daemon's own plan, and by the known differences from upstream.

use cni::config::NetworkConfig;
use plan::{
    Attachment, PlanError,
    netconf::{Netconf, UnsupportedRequests},
};

use super::{
    installation::{Installation, Kind},
    snapshot::ClusterPod,
    verdict::Verdict,
};
use crate::{
    diagnostic::{Diagnostic, Severity},
    validate::{self, KnownDefinitions},
};

/// IPAM plugins that read a requested address from the plugin's arguments, without a capability.
const READ_ARGUMENTS: [&str; 2] = ["host-local", "static"];

/// The implementation that attaches pods' networks at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    Absent,
    Upstream,
    Ours,
}

impl Provider {
    pub(super) fn of(installed: &[Installation<'_>]) -> Self {
        let attaching = installed.iter().filter(|one| one.attaches());
        let mut kinds = attaching.map(|one| one.kind);
        if kinds.clone().any(|kind| kind == Kind::Ours) {
            Self::Ours
        } else if kinds.any(Kind::is_multus) {
            Self::Upstream
        } else {
            Self::Absent
        }
    }
}

impl ClusterPod {
    /// Returns true for a pod, false for a controller's template.
    pub(super) fn is_pod(&self) -> bool {
        self.object.kind == "Pod"
    }

    /// Returns `namespace/name`, after the kind for a controller's template.
    pub(super) fn title(&self) -> String {
        let view = &self.object.view;
        match self.object.kind.as_str() {
            "Pod" => format!("{}/{}", view.namespace, view.name),
            kind => format!("{kind} {}/{}", view.namespace, view.name),
        }
    }
}

/// Returns what would fail or change; `is_unserved` is true when no daemon will run on the pod's node.
pub(super) fn findings(
    pod: &ClusterPod,
    netconf: &Netconf,
    known: &KnownDefinitions,
    provider: Provider,
    is_unserved: bool,
) -> Vec<(Verdict, String)> {
    let diagnostics = validate::pod(&pod.object, netconf, known);
    let mut found: Vec<_> = diagnostics
        .iter()
        .map(|diagnostic| (verdict(diagnostic), text(diagnostic)))
        .collect();
    let Some(networks) = networks(pod, netconf) else {
        return found;
    };
    if is_unserved {
        let text = format!(
            "node {} gets no daemon, so the pod starts there without {networks}: keep the pod off that node, or follow the hint of that node's finding",
            pod.object.node
        );
        found.push((Verdict::Fails, text));
        return found;
    }
    let is_failing = found.iter().any(|(verdict, _)| *verdict == Verdict::Fails);
    if is_failing {
        return found;
    }
    match provider {
        Provider::Absent => {
            let text = format!(
                "Multus is not installed yet, so the pod runs without {networks}: it gets them when it starts again"
            );
            found.push((Verdict::Changes, text));
        }
        Provider::Upstream => {
            let attachments = validate::attachments(&pod.object, netconf, known);
            let changes = changes(pod, &attachments, netconf).into_iter();
            found.extend(changes.map(|text| (Verdict::Changes, text)));
        }
        Provider::Ours => {}
    }
    found
}

/// Returns the names of the networks that a pod requests, or `None` when it gets none.
pub(super) fn networks(pod: &ClusterPod, netconf: &Netconf) -> Option<String> {
    let selected = validate::selected(&pod.object, netconf);
    let networks: Vec<_> = selected
        .iter()
        .map(|one| format!("{}/{}", one.namespace, one.name))
        .collect();
    (!networks.is_empty() && !pod.object.host_network).then(|| networks.join(", "))
}

fn text(diagnostic: &Diagnostic) -> String {
    match diagnostic {
        Diagnostic::NotAmongFiles {
            namespace, name, ..
        } => format!(
            "network {namespace}/{name}: its definition was not read, so it was not validated"
        ),
        Diagnostic::UnsupportedRequest(PlanError::Unsupported { network, requests }) => format!(
            "network {network}: no plugin serves the request for {requests}; the pod starts without it, and the daemon reports that in an event: add the capability to the definition, or drop the request"
        ),
        diagnostic => diagnostic.to_string(),
    }
}

/// Returns the verdict of a diagnostic for a pod that exists already.
fn verdict(diagnostic: &Diagnostic) -> Verdict {
    match (diagnostic, diagnostic.severity()) {
        (Diagnostic::UnsupportedRequest(_), _) => Verdict::Changes,
        // Such a pod has no additional networks now, and will have none.
        (
            Diagnostic::HostNetwork { .. }
            | Diagnostic::MisspelledAnnotation { .. }
            | Diagnostic::MisplacedAnnotation { .. },
            _,
        ) => Verdict::Note,
        (_, Severity::Error) => Verdict::Fails,
        _ => Verdict::Note,
    }
}

/// Returns the differences from upstream with which the pod starts nevertheless; `e2e/DIFFERENCES.md` has the reasons.
fn changes(pod: &ClusterPod, attachments: &[Attachment], netconf: &Netconf) -> Vec<String> {
    let mut changes = Vec::new();
    for attachment in attachments {
        let network = &attachment.name;
        let selection = attachment.selection.as_ref();
        if selection.is_some_and(|one| one.default_route.is_some()) {
            changes.push(format!(
                "network {network} has \"default-route\": upstream keeps the default network's default route in force, but here it is replaced, and the pod's other traffic uses that network: remove the key unless you want that"
            ));
        }
        let has_ips = selection.is_some_and(|one| !one.ips.is_empty());
        if has_ips && !is_address_served(&attachment.config) {
            let outcome = match netconf.unsupported_requests {
                UnsupportedRequests::Error => "the pod fails",
                UnsupportedRequests::Event => {
                    "the pod starts with another one, and the daemon reports that in an event"
                }
                UnsupportedRequests::Silent => continue,
            };
            changes.push(format!(
                "network {network}: no plugin declares the capability ips; if the network assigns another address than the requested one, {outcome}: add \"capabilities\": {{\"ips\": true}} to the definition if its plugin supports it, or drop the request"
            ));
        }
        for (is_requested, capability, feature) in [
            (pod.has_host_ports, "portMappings", "host ports"),
            (pod.has_bandwidth, "bandwidth", "bandwidth limits"),
        ] {
            if is_requested
                && !netconf.runtime_config_for_all
                && has(&attachment.config, capability)
            {
                changes.push(format!(
                    "network {network}: the pod's {feature} apply to the default network only, while upstream applies them to this one, too: set config.daemon_conf.runtimeConfigForAll to true to keep that"
                ));
            }
        }
    }
    changes
}

/// Returns true when a requested address reaches a plugin that can assign it.
fn is_address_served(config: &NetworkConfig) -> bool {
    let mut kinds = plan::plugin_types(config);
    has(config, "ips") || kinds.any(|kind| READ_ARGUMENTS.contains(&kind))
}

fn has(config: &NetworkConfig, capability: &str) -> bool {
    let mut plugins = config.plugins.iter();
    plugins.any(|plugin| plugin.capabilities.iter().any(|own| own == capability))
}
