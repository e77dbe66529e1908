//! The kubelet's checkpoint file of devices, for nodes where the kubelet does not listen: `kubelet_internal_checkpoint`.

use std::collections::BTreeMap;

use plan::Devices;
use serde::Deserialize;

/// The path below the kubelet's directory.
pub(super) const FILE: &str = "device-plugins/kubelet_internal_checkpoint";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct File {
    data: Data,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: Ids,
}

/// Device ids by NUMA node; a plain list up to Kubernetes 1.19.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Ids {
    ByNode(BTreeMap<String, Option<Vec<String>>>),
    Plain(Option<Vec<String>>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::Plain(None)
    }
}

/// Returns the devices of a pod in the file's text. Containers are in the file's order, since it has no other.
pub(crate) fn devices(text: &[u8], uid: &str) -> Result<Devices, String> {
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut by_container: Vec<((String, String), Vec<String>)> = Vec::new();
    for entry in file.data.pod_device_entries.unwrap_or_default() {
        if entry.pod_uid != uid {
            continue;
        }
        let mut ids: Vec<String> = match entry.device_ids {
            Ids::ByNode(nodes) => nodes.into_values().flatten().flatten().collect(),
            Ids::Plain(ids) => ids.unwrap_or_default(),
        };
        let key = (entry.resource_name, entry.container_name);
        match by_container.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => known.append(&mut ids),
            None => by_container.push((key, ids)),
        }
    }
    let mut found = Devices::new();
    for ((resource, _), mut ids) in by_container {
        ids.sort();
        found.entry(resource).or_default().extend(ids);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_formats_are_parsed() {
        let file = json!({"Data": {"PodDeviceEntries": [
            {"PodUID": "u", "ContainerName": "b", "ResourceName": "x/fast", "DeviceIDs": {"1": ["9"], "0": ["8", "3"]}, "AllocResp": ""},
            {"PodUID": "u", "ContainerName": "a", "ResourceName": "x/fast", "DeviceIDs": ["1"]},
            {"PodUID": "v", "ContainerName": "a", "ResourceName": "x/fast", "DeviceIDs": {"-1": ["7"]}},
            {"PodUID": "u", "ContainerName": "a", "ResourceName": "x/slow", "DeviceIDs": {"0": null}},
        ], "RegisteredDevices": {}}, "Checksum": 1});
        let found = devices(file.to_string().as_bytes(), "u").unwrap();
        assert_eq!(found["x/fast"], ["3", "8", "9", "1"]);
        assert!(found["x/slow"].is_empty());
        assert!(
            devices(b"{\"Data\":{\"PodDeviceEntries\":null}}", "u")
                .unwrap()
                .is_empty()
        );
        assert!(devices(b"{", "u").is_err());
    }
}
