//! Which devices a pod has: those that device plugins gave its containers, and those that its resource claims were given.
//! The kubelet and the API server are asked only for pods with a network that wants a device.

mod checkpoint;
mod claims;
mod kubelet;
mod source;

pub use source::NodeDevices;

use std::collections::BTreeMap;

use plan::{Devices, PodView};

/// Whoever knows the devices of pods.
pub trait DeviceSource: Send + Sync {
    /// The devices of a pod of which so many are wanted, by resource; the reason when nobody can tell.
    fn of_pod(&self, pod: &PodView, wanted: &BTreeMap<String, usize>) -> Result<Devices, String>;
}

/// Knows of none: for whoever runs no pods with devices.
#[derive(Debug)]
pub struct NoDevices;

impl DeviceSource for NoDevices {
    fn of_pod(&self, _: &PodView, _: &BTreeMap<String, usize>) -> Result<Devices, String> {
        Ok(Devices::new())
    }
}

/// Whether there are as many as are wanted.
fn suffices(devices: &Devices, wanted: &BTreeMap<String, usize>) -> bool {
    let has = |resource: &String| devices.get(resource).map_or(0, Vec::len);
    wanted
        .iter()
        .all(|(resource, count)| has(resource) >= *count)
}
