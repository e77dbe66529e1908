//! Attachments as the state has them before anything is run.

use cni::env::IfName;
use cni::types::CniError;
use plan::netconf::Netconf;
use plan::{Attachment, PodView};

use super::{Request, invocation};
use crate::state::{Delegate, Progress, State};

/// The state of a pod. A name that no interface can have is an error.
pub(super) fn state(
    request: &Request,
    netconf: &Netconf,
    pod: &PodView,
    attachments: &[Attachment],
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
        pod: pod.into(),
        delegates: delegates.collect::<Result<_, CniError>>()?,
        untold: false,
        failing_since: None,
        rebooted: false,
    })
}

/// One network of it.
pub(super) fn delegate(attachment: &Attachment, ifname: IfName, netconf: &Netconf) -> Delegate {
    Delegate {
        name: attachment.name.clone(),
        ifname,
        config: attachment.config.clone(),
        requested: invocation::requested(attachment),
        capability_args: invocation::capability_args(attachment, netconf),
        args: None,
        progress: Progress::Planned,
        displaced: Vec::new(),
    }
}
