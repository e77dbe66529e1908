//! The devices of a pod: those that device plugins allocated to its containers, and those that its resource claims were allocated.
//! The kubelet and the API server are queried only for pods with a network that needs a device.

pub(crate) mod checkpoint;
mod claims;
mod kubelet;
mod source;

pub use source::NodeDevices;

use std::collections::{BTreeMap, BTreeSet};

use plan::{Devices, PodView};

/// A source of pods' devices.
pub trait DeviceSource: Send + Sync {
    /// Returns the devices of a pod by resource; `required` is the number that is needed of each resource. Fails when the source cannot be read.
    fn pod_devices(
        &self,
        pod: &PodView,
        required: &BTreeMap<String, usize>,
    ) -> Result<Devices, String>;

    /// Returns the resources of which the node has devices, whoever has them now. Fails when a source cannot be read.
    fn resources(&self) -> Result<BTreeSet<String>, String>;
}

/// A source without devices.
#[derive(Debug)]
pub struct NoDevices;

impl DeviceSource for NoDevices {
    fn pod_devices(&self, _: &PodView, _: &BTreeMap<String, usize>) -> Result<Devices, String> {
        Ok(Devices::new())
    }

    fn resources(&self) -> Result<BTreeSet<String>, String> {
        Ok(BTreeSet::new())
    }
}

/// Returns whether there are as many devices as needed.
fn suffices(devices: &Devices, required: &BTreeMap<String, usize>) -> bool {
    let has = |resource: &String| devices.get(resource).map_or(0, Vec::len);
    required
        .iter()
        .all(|(resource, count)| has(resource) >= *count)
}
