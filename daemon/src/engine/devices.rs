//! Devices for networks that request one. Neither kubelet nor API server is asked for a pod without such a network.

use plan::{Attachment, PlanError, PodView};

use super::Engine;
use crate::state::State;

impl Engine {
    /// Assigns to each network the next device of its resource that the pod has and that no network of `state` uses.
    pub(super) fn assign_devices(
        &self,
        attachments: &mut [Attachment],
        pod: &PodView,
        state: Option<&State>,
    ) -> Result<(), PlanError> {
        let mut wanted = plan::required_devices(attachments);
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
        let devices = self.devices.pod_devices(pod, &wanted);
        let devices = devices.map_err(|reason| PlanError::Devices {
            pod: pod.title(),
            network: first_with_device(attachments),
            reason,
        })?;
        plan::assign_devices(attachments, devices, &in_use)
    }
}

/// Returns the name of the first network that requests a device; it stands for all of them in the error.
fn first_with_device(attachments: &[Attachment]) -> String {
    let mut with_device = attachments.iter().filter(|one| one.device.is_some());
    with_device
        .next()
        .map_or_else(String::new, |one| one.name.clone())
}
