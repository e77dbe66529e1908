//! Assigns devices to networks: the n-th network that requires a resource gets the pod's n-th device of that resource.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draft::Draft;
use super::{Attachment, PlanError};

/// Devices of a pod by resource, in the order in which networks take them.
pub type Devices = BTreeMap<String, Vec<String>>;

/// The device that a network's definition requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The resource of the device.
    pub resource: String,
    /// The device ID; `None` until a device is assigned.
    pub id: Option<String>,
}

/// Returns how many devices of each resource the attachments require.
pub fn required_devices(attachments: &[Attachment]) -> BTreeMap<String, usize> {
    let mut wanted = BTreeMap::new();
    for device in attachments.iter().filter_map(|one| one.device.as_ref()) {
        *wanted.entry(device.resource.clone()).or_default() += 1;
    }
    wanted
}

/// Assigns each network its device and writes the device ID into the configuration of each of its plugins, where they look for it.
/// Devices that other networks of the pod already use, by resource and ID, stay with those.
pub fn assign_devices(
    attachments: &mut [Attachment],
    mut devices: Devices,
    in_use: &[(&str, &str)],
) -> Result<(), PlanError> {
    let had: BTreeMap<String, usize> = devices
        .iter()
        .map(|(resource, ids)| (resource.clone(), ids.len()))
        .collect();
    for (resource, id) in in_use {
        if let Some(ids) = devices.get_mut(*resource)
            && let Some(index) = ids.iter().position(|one| one == id)
        {
            ids.remove(index);
        }
    }
    for attachment in attachments {
        let Some(device) = &mut attachment.device else {
            continue;
        };
        let ids = devices.get_mut(&device.resource);
        let id = ids.filter(|ids| !ids.is_empty()).map(|ids| ids.remove(0));
        let id = id.ok_or_else(|| PlanError::NoDevice {
            network: attachment.name.clone(),
            resource: device.resource.clone(),
            had: had.get(&device.resource).copied().unwrap_or_default(),
        })?;
        let unusable = |reason| PlanError::Device {
            network: attachment.name.clone(),
            reason,
        };
        let mut draft = Draft::parse(attachment.config.bytes()).map_err(unusable)?;
        draft.set_device(&id);
        attachment.config = Arc::new(draft.finish().map_err(unusable)?);
        device.id = Some(id);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cni::config::NetworkConfig;
    use serde_json::json;

    use super::*;

    fn attachment(name: &str, resource: Option<&str>) -> Attachment {
        let config = json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "a"}, {"type": "b", "x": 1}]});
        Attachment {
            name: name.to_owned(),
            is_default: false,
            config: Arc::new(NetworkConfig::parse(config.to_string().as_bytes()).unwrap()),
            selection: None,
            device: resource.map(|resource| Device {
                resource: resource.to_owned(),
                id: None,
            }),
        }
    }

    fn devices(all: &[(&str, &[&str])]) -> Devices {
        let owned = |ids: &[&str]| ids.iter().map(ToString::to_string).collect();
        all.iter()
            .map(|(resource, ids)| ((*resource).to_owned(), owned(ids)))
            .collect()
    }

    #[test]
    fn the_nth_network_gets_the_nth_device_of_its_resource() {
        let mut all = [
            attachment("one", Some("x/fast")),
            attachment("plain", None),
            attachment("two", Some("x/slow")),
            attachment("three", Some("x/fast")),
        ];
        assert_eq!(
            required_devices(&all).into_iter().collect::<Vec<_>>(),
            [("x/fast".into(), 2), ("x/slow".into(), 1)]
        );
        assign_devices(
            &mut all,
            devices(&[("x/fast", &["f2", "f1", "f3"]), ("x/slow", &["s1"])]),
            &[("x/other", "o1")],
        )
        .unwrap();
        let ids: Vec<_> = all
            .iter()
            .map(|one| one.device.as_ref().and_then(|d| d.id.as_deref()))
            .collect();
        assert_eq!(ids, [Some("f2"), None, Some("s1"), Some("f1")]);
        for plugin in &all[3].config.plugins {
            assert_eq!(
                (&plugin.value["deviceID"], &plugin.value["pciBusID"]),
                (&json!("f1"), &json!("f1"))
            );
        }
        assert_eq!(all[3].config.plugins[1].value["x"], 1);
        assert!(!all[1].config.plugins[0].value.contains_key("deviceID"));
    }

    #[test]
    fn too_few_devices_are_an_error_with_the_number_of_devices() {
        let mut all = [
            attachment("one", Some("x/fast")),
            attachment("two", Some("x/fast")),
        ];
        let error = assign_devices(&mut all, devices(&[("x/fast", &["f1"])]), &[])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("two") && error.contains("x/fast") && error.contains("has 1"),
            "{error}"
        );
        let mut all = [attachment("one", Some("x/fast"))];
        let error = assign_devices(&mut all, Devices::new(), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("has 0") && error.len() < 300, "{error}");
    }
}
