//! What becomes of a pod at its next start: by the daemon's own plan, and by what upstream does otherwise.

use cni::config::NetworkConfig;
use plan::{
    Attachment, PlanError,
    netconf::{Netconf, UnsupportedRequests},
};

use super::{
    decide::Verdict,
    installation::{Installation, Kind},
    snapshot::Pod,
};
use crate::{
    judge::{self, Known},
    remark::{Remark, Severity},
};

/// Plugins of address management that read a requested address from the plugin's arguments, without a capability.
const READ_ARGUMENTS: [&str; 2] = ["host-local", "static"];

/// What gives pods their networks today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Today {
    Nothing,
    Upstream,
    Ours,
}

impl Today {
    pub(super) fn of(installed: &[Installation<'_>]) -> Self {
        let mut kinds = installed.iter().map(|one| one.kind);
        if kinds.clone().any(|kind| kind == Kind::Ours) {
            Self::Ours
        } else if kinds.any(Kind::is_multus) {
            Self::Upstream
        } else {
            Self::Nothing
        }
    }
}

impl Pod {
    /// Whether it is there, and not only what will make it.
    pub(super) fn is_pod(&self) -> bool {
        self.object.kind == "Pod"
    }

    /// `namespace/name`, with the kind of what makes pods.
    pub(super) fn title(&self) -> String {
        let view = &self.object.view;
        match self.object.kind.as_str() {
            "Pod" => format!("{}/{}", view.namespace, view.name),
            kind => format!("{kind} {}/{}", view.namespace, view.name),
        }
    }
}

/// Returns what would fail or change; `is_unserved` says that no daemon runs on the pod's node.
pub(super) fn judge(
    pod: &Pod,
    netconf: &Netconf,
    known: &Known,
    today: Today,
    is_unserved: bool,
) -> Vec<(Verdict, String)> {
    let remarks = judge::pod(&pod.object, netconf, known);
    let mut found: Vec<_> = remarks
        .iter()
        .map(|remark| (verdict(remark), text(remark)))
        .collect();
    let networks: Vec<_> = judge::selected(&pod.object, netconf)
        .iter()
        .map(|one| format!("{}/{}", one.namespace, one.name))
        .collect();
    if networks.is_empty() || pod.object.host_network {
        return found;
    }
    let networks = networks.join(", ");
    if is_unserved {
        let text = format!(
            "node {} gets no daemon, so the pod starts there without {networks}: keep the pod off that node, or see what is said of it",
            pod.node
        );
        found.push((Verdict::Fails, text));
        return found;
    }
    let is_failing = found.iter().any(|(verdict, _)| *verdict == Verdict::Fails);
    if is_failing {
        return found;
    }
    match today {
        Today::Nothing => {
            let text = format!(
                "there is no Multus so far, so the pod runs without {networks}: it gets them when it starts again"
            );
            found.push((Verdict::Changes, text));
        }
        Today::Upstream => {
            let attachments = judge::attachments(&pod.object, netconf, known);
            let changes = changes(pod, &attachments, netconf).into_iter();
            found.extend(changes.map(|text| (Verdict::Changes, text)));
        }
        Today::Ours => {}
    }
    found
}

fn text(remark: &Remark) -> String {
    match remark {
        Remark::NotAmongFiles {
            namespace, name, ..
        } => format!(
            "network {namespace}/{name}: its definition was not read, so nothing is known of it"
        ),
        Remark::NotServed(PlanError::Unsupported { network, requests }) => format!(
            "network {network}: no plugin serves the request for {requests}; the pod starts without it, and an event says so: add the capability to the definition, or drop the request"
        ),
        remark => remark.to_string(),
    }
}

/// How bad a remark is for a pod that is there already.
fn verdict(remark: &Remark) -> Verdict {
    match (remark, remark.severity()) {
        (Remark::NotServed(_), _) => Verdict::Changes,
        // Such a pod has no further networks today, and will have none.
        (Remark::HostNetwork { .. } | Remark::Misspelt { .. } | Remark::Misplaced { .. }, _) => {
            Verdict::Note
        }
        (_, Severity::Error) => Verdict::Fails,
        _ => Verdict::Note,
    }
}

/// Where upstream does otherwise, and the pod starts all the same; `e2e/DIFFERENCES.md` has the reasons.
fn changes(pod: &Pod, attachments: &[Attachment], netconf: &Netconf) -> Vec<String> {
    let mut changes = Vec::new();
    for attachment in attachments {
        let network = &attachment.name;
        let selection = attachment.selection.as_ref();
        if selection.is_some_and(|one| one.default_route.is_some()) {
            changes.push(format!(
                "network {network} has \"default-route\": upstream leaves the primary network's default route in force, here it is replaced, and the pod's other traffic goes by that network: remove the key where that is not meant"
            ));
        }
        let has_ips = selection.is_some_and(|one| !one.ips.is_empty());
        if has_ips && !is_address_served(&attachment.config) {
            let outcome = match netconf.unsupported_requests {
                UnsupportedRequests::Error => "the pod fails",
                UnsupportedRequests::Event => {
                    "the pod starts with another one, and an event says so"
                }
                UnsupportedRequests::Silent => continue,
            };
            changes.push(format!(
                "network {network}: no plugin declares the capability ips, so that the requested address may not be given, and {outcome}: add \"capabilities\": {{\"ips\": true}} to the definition where its plugin knows it, or drop the request"
            ));
        }
        for (is_asked, capability, what) in [
            (pod.has_host_ports, "portMappings", "host ports"),
            (pod.has_bandwidth, "bandwidth", "bandwidth limits"),
        ] {
            if is_asked && !netconf.runtime_config_for_all && has(&attachment.config, capability) {
                changes.push(format!(
                    "network {network}: the pod's {what} are for the primary network alone, where upstream gives them to this one, too: set config.daemon_conf.runtimeConfigForAll to true to keep that"
                ));
            }
        }
    }
    changes
}

/// Whether a requested address reaches a plugin that can give it.
fn is_address_served(config: &NetworkConfig) -> bool {
    let mut kinds = config
        .plugins
        .iter()
        .filter_map(|plugin| plugin.value.get("ipam")?.get("type")?.as_str());
    has(config, "ips") || kinds.any(|kind| READ_ARGUMENTS.contains(&kind))
}

fn has(config: &NetworkConfig, capability: &str) -> bool {
    let mut plugins = config.plugins.iter();
    plugins.any(|plugin| plugin.capabilities.iter().any(|own| own == capability))
}
