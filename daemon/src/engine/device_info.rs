//! Device information files: the plugin of a network with a device describes the device in one, for the pod's status.
//! They lie where other programs that follow the network standard read them. An error with one never fails ADD or DEL.

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
/// The directory in which device plugins describe their devices.
const PLUGINS_DIR: &str = "/var/run/k8s.cni.cncf.io/devinfo/dp";
/// The largest file that is read, in bytes.
const MAX: u64 = 64 << 10;

/// Returns the capability arguments of a delegate, with the path of the file if the network has a device.
pub(super) fn with_file(delegate: &Delegate, id: &ContainerId) -> Map<String, Value> {
    let mut args = delegate.capability_args.clone();
    if let Some(path) = info_path(delegate, id) {
        args.insert(CAPABILITY.to_owned(), json!(path));
    }
    args
}

/// Returns the path of the file, or `None` for a network without a device. A delegate from the result cache has another name than
/// at ADD, but its arguments hold the path.
fn info_path(delegate: &Delegate, id: &ContainerId) -> Option<String> {
    let args = &delegate.capability_args;
    let cached = args
        .get(CAPABILITY)
        .and_then(Value::as_str)
        .filter(|path| is_ours(Path::new(path)));
    match cached {
        Some(path) => Some(path.to_owned()),
        None if args.contains_key("deviceID") || delegate.requested.device_id.is_some() => {
            let name = format!("{}-{id}_{}", delegate.name, delegate.ifname);
            Some(format!("{DIR}/{}", name.replace('/', "-")))
        }
        None => None,
    }
}

fn is_ours(path: &Path) -> bool {
    path.parent() == Some(Path::new(DIR)) && path.file_name().is_some()
}

impl Engine {
    /// Copies the device plugin's file to the path that the network's plugins read, unless a file exists there.
    pub(super) fn copy_device_info(&self, delegate: &Delegate, id: &ContainerId) {
        let requested = &delegate.requested;
        let (Some(resource), Some(device), Some(path)) = (
            &requested.resource_name,
            &requested.device_id,
            info_path(delegate, id),
        ) else {
            return;
        };
        let name = format!("{resource}-{device}-device.json").replace('/', "-");
        let source = Path::new(PLUGINS_DIR).join(name);
        if self.root.exists(&path) || !self.root.exists(&source) {
            return;
        }
        let copied = self.root.read(&source, MAX).and_then(|bytes| {
            self.root.make_dirs(DIR, 0o755)?;
            // The file need not outlive a power cut, as the pod's use of the device does not either.
            let path = Path::new(&path);
            self.root.write(path, &bytes, 0o444, Durability::Volatile)
        });
        if let Err(error) = copied {
            warn!(%error, "cannot copy a device plugin's device information");
        }
    }

    /// Returns the device information of a network, if there is any.
    pub(super) fn device_info(
        &self,
        delegate: &Delegate,
        id: &ContainerId,
    ) -> Option<Map<String, Value>> {
        let path = info_path(delegate, id)?;
        let read = match self.root.read(&path, MAX) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.is_not_found() => return None,
            Err(error) => Err(error.to_string()),
        };
        read.inspect_err(|error| {
            warn!(
                path,
                error, "cannot read device information; the status omits it"
            );
        })
        .ok()
    }

    /// Removes the device information file of a detached network.
    pub(super) fn remove_device_info(&self, delegate: &Delegate, id: &ContainerId) {
        let Some(path) = info_path(delegate, id) else {
            return;
        };
        if let Err(error) = self.root.remove_volatile(&path) {
            warn!(%error, "cannot remove device information");
        }
    }
}
