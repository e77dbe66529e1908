//! The state of planned attachments, before any plugin runs.

use std::sync::Arc;

use cni::env::IfName;
use cni::types::CniError;
use plan::netconf::Netconf;
use plan::{Attachment, PodView};

use super::{ContainerRequest, invocation};
use crate::state::{Delegate, Progress, State};

/// Returns the state of a pod in which all attachments are planned and a status is to be written if `status_pending` says so, or an error when an interface name is invalid.
pub(super) fn state(
    request: &ContainerRequest,
    netconf: &Netconf,
    pod: &PodView,
    attachments: &[Attachment],
    status_pending: bool,
) -> Result<State, CniError> {
    let delegates = attachments.iter().enumerate().map(|(index, attachment)| {
        let ifname = attachment.ifname(index, request.ifname.as_str());
        let ifname = IfName::parse(&ifname)
            .map_err(|error| CniError::new(CniError::INVALID_NETWORK_CONFIG, error.to_string()))?;
        Ok(delegate(attachment, ifname, netconf))
    });
    Ok(State {
        container_id: request.container_id.clone(),
        ifname: request.ifname.clone(),
        netns: request.netns.clone(),
        netns_process: request.netns.as_deref().and_then(netns_process),
        pod: pod.into(),
        delegates: delegates.collect::<Result<_, CniError>>()?,
        status_pending,
        failing_since: None,
        rebooted: false,
    })
}

/// Returns the start of the process whose ID is in the path of a network namespace.
pub(super) fn netns_process(netns: &str) -> Option<u64> {
    let (pid, _) = netns.strip_prefix("/proc/")?.split_once('/')?;
    node::process::started(pid.parse().ok()?).ok()
}

pub(super) fn delegate(attachment: &Attachment, ifname: IfName, netconf: &Netconf) -> Delegate {
    Delegate {
        name: attachment.name.clone(),
        ifname,
        config: Arc::clone(&attachment.config),
        requested: invocation::requested(attachment),
        capability_args: invocation::capability_args(attachment, netconf),
        args: None,
        progress: Progress::Planned,
        displaced: Vec::new(),
    }
}
