//! How long the ADD of each attachment took, in memory: it is for people who look at a node, and nothing rests on it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::network_report::Attached;
use cni::env::{ContainerId, IfName};

use crate::state::PodRef;

/// More than the attachments of a node. A network that is never detached must not take memory for ever.
const KEPT: usize = 4096;

/// The times of attachments that were not detached yet.
#[derive(Debug, Default)]
pub(super) struct AddDurations(Mutex<HashMap<(ContainerId, IfName), Attached>>);

impl AddDurations {
    /// An ADD of a pod's network has succeeded.
    pub(super) fn note(
        &self,
        container: &ContainerId,
        ifname: &IfName,
        pod: &PodRef,
        took: Duration,
    ) {
        let mut all = self.all();
        if all.len() >= KEPT {
            all.clear();
        }
        let attached = Attached {
            pod: format!("{}/{}", pod.namespace, pod.name),
            interface: ifname.to_string(),
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        all.insert((container.clone(), ifname.clone()), attached);
    }

    /// The attachment is detached, or will never be.
    pub(super) fn forget(&self, container: &ContainerId, ifname: &IfName) {
        self.all().remove(&(container.clone(), ifname.clone()));
    }

    /// Returns all of them, by pod and interface.
    pub(super) fn sorted(&self) -> Vec<Attached> {
        let mut all: Vec<_> = self.all().values().cloned().collect();
        all.sort_by(|one, other| (&one.pod, &one.interface).cmp(&(&other.pod, &other.interface)));
        all
    }

    fn all(&self) -> MutexGuard<'_, HashMap<(ContainerId, IfName), Attached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_attachments_and_a_flood_take_no_memory() {
        let durations = AddDurations::default();
        let ifname = IfName::parse("net1").unwrap();
        let container = |number: usize| ContainerId::parse(&format!("c{number}")).unwrap();
        let pod = PodRef::default();
        let note = |number| durations.note(&container(number), &ifname, &pod, Duration::ZERO);
        (0..KEPT).for_each(note);
        assert_eq!(durations.sorted().len(), KEPT);
        durations.forget(&container(7), &ifname);
        note(KEPT);
        assert_eq!(durations.sorted().len(), KEPT);
        note(KEPT + 1);
        assert_eq!(durations.sorted().len(), 1);
    }
}
