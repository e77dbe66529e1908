//! Devices for networks that want one. Nobody is asked for a pod without such a network.

use plan::{Attachment, PlanError, PodView};

use super::Engine;
use crate::state::State;

impl Engine {
    /// Gives each network the next device of its resource that the pod has and that no network of `state` has already.
    pub(super) fn give_devices(
        &self,
        attachments: &mut [Attachment],
        pod: &PodView,
        state: Option<&State>,
    ) -> Result<(), PlanError> {
        let mut wanted = plan::wanted(attachments);
        if wanted.is_empty() {
            return Ok(());
        }
        let delegates = state.into_iter().flat_map(|state| &state.delegates);
        let in_use: Vec<(&str, &str)> = delegates
            .filter_map(|delegate| {
                let requested = &delegate.requested;
                Some((
                    requested.resource_name.as_deref()?,
                    requested.device_id.as_deref()?,
                ))
            })
            .collect();
        for (resource, _) in &in_use {
            if let Some(count) = wanted.get_mut(*resource) {
                *count += 1;
            }
        }
        let devices = self.devices.of_pod(pod, &wanted);
        let devices = devices.map_err(|reason| PlanError::Devices {
            pod: format!("{}/{}", pod.namespace, pod.name),
            network: asks(attachments),
            reason,
        })?;
        plan::assign(attachments, devices, &in_use)
    }
}

/// Who wants a device; the first stands for all.
fn asks(attachments: &[Attachment]) -> String {
    let mut asking = attachments.iter().filter(|one| one.device.is_some());
    asking
        .next()
        .map_or_else(String::new, |one| one.name.clone())
}
