//! Device information files: what the plugin of a network with a device tells about that device, for the pod's status.
//! They are where the network standard's other users look for them. None keeps a pod from coming or going.

use std::path::Path;

use cni::env::ContainerId;
use node::root::Durability;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::Engine;
use crate::state::Delegate;

/// The capability argument that names the file.
const CAPABILITY: &str = "CNIDeviceInfoFile";
const DIR: &str = "/var/run/k8s.cni.cncf.io/devinfo/cni";
/// Where device plugins tell of their devices.
const PLUGINS_DIR: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";
/// No device has more to tell.
const MAX: u64 = 64 << 10;

/// The arguments that were asked for, and the file where there is a device.
pub(super) fn with_file(delegate: &Delegate, id: &ContainerId) -> Map<String, Value> {
    let mut args = delegate.capability_args.clone();
    if let Some(place) = place(delegate, id) {
        args.insert(CAPABILITY.to_owned(), json!(place));
    }
    args
}

/// Where the file of a network with a device is. The result cache knows the network by another name, and the place itself.
fn place(delegate: &Delegate, id: &ContainerId) -> Option<String> {
    let args = &delegate.capability_args;
    let kept = args
        .get(CAPABILITY)
        .and_then(Value::as_str)
        .filter(|place| is_ours(Path::new(place)));
    match kept {
        Some(place) => Some(place.to_owned()),
        None if args.contains_key("deviceID") || delegate.requested.device_id.is_some() => {
            let name = format!("{}-{id}_{}", delegate.name, delegate.ifname);
            Some(format!("{DIR}/{}", name.replace('/', "-")))
        }
        None => None,
    }
}

fn is_ours(place: &Path) -> bool {
    place.parent() == Some(Path::new(DIR)) && place.file_name().is_some()
}

impl Engine {
    /// Lays ready what the device's own plugin told the node about it. What is there already stays.
    pub(super) fn bring_device_info(&self, delegate: &Delegate, id: &ContainerId) {
        let requested = &delegate.requested;
        let (Some(resource), Some(device), Some(place)) = (
            &requested.resource_name,
            &requested.device_id,
            place(delegate, id),
        ) else {
            return;
        };
        let name = format!("{resource}-{device}-device.json").replace('/', "-");
        let source = Path::new(PLUGINS_DIR).join(name);
        if self.root.exists(&place) || !self.root.exists(&source) {
            return;
        }
        let brought = self.root.read(&source, MAX).and_then(|bytes| {
            self.root.make_dirs(DIR, 0o755)?;
            // The device itself outlives no power cut in this pod.
            let place = Path::new(&place);
            self.root.write(place, &bytes, 0o444, Durability::Volatile)
        });
        if let Err(error) = brought {
            warn!(%error, "what the node knows about a device");
        }
    }

    /// What is told about a network's device, if anything is.
    pub(super) fn device_info(
        &self,
        delegate: &Delegate,
        id: &ContainerId,
    ) -> Option<Map<String, Value>> {
        let place = place(delegate, id)?;
        let read = match self.root.read(&place, MAX) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.is_not_found() => return None,
            Err(error) => Err(error.to_string()),
        };
        read.inspect_err(|error| warn!(place, error, "the status will not tell of a device"))
            .ok()
    }

    /// Removes it with the network.
    pub(super) fn forget_device_info(&self, delegate: &Delegate, id: &ContainerId) {
        let Some(place) = place(delegate, id) else {
            return;
        };
        if let Err(error) = self.root.remove_volatile(&place) {
            warn!(%error, "what was told about a device");
        }
    }
}
