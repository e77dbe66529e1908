//! Parts of a configuration in the wrong place or form, which its plugins do not read, or refuse with words of a parser.

use cni::config::{NetworkConfig, Plugin};
use serde_json::Value;

use crate::config::{Fault, get};

/// The keys of `host-device` that name the device.
const DEVICE: [&str; 4] = ["device", "hwaddr", "kernelpath", "pciBusID"];

/// Returns the faults of a network that are visible without its plugins.
pub(super) fn faults(network: &NetworkConfig, has_resource: bool) -> Vec<Fault> {
    let (kind, value) = (network.kind(), network.value());
    let mut faults = Vec::new();
    let unread: &[_] = if network.is_list {
        &["ipam", "capabilities"]
    } else {
        &["plugins"]
    };
    for key in unread.iter().filter(|key| get(value, key).is_some()) {
        let text = if network.is_list {
            format!("does not read \"{key}\" beside \"plugins\": move it into the plugin's object")
        } else {
            format!("does not read \"{key}\" beside \"type\": remove one of them")
        };
        faults.push(Fault::new(kind, true, text));
    }
    for plugin in &network.plugins {
        faults.extend(get(&plugin.value, "ipam").and_then(|ipam| ipam_fault(&plugin.kind, ipam)));
        faults.extend(name_fault(plugin));
        let is_named = DEVICE.iter().any(|key| get(&plugin.value, key).is_some());
        let is_given = has_resource || plugin.capabilities.iter().any(|one| one == "deviceID");
        if plugin.kind == "host-device" && !is_named && !is_given {
            let names = DEVICE.join(", ");
            let text = format!("has no device: write one of {names}, or the definition's resource");
            faults.push(Fault::new(&plugin.kind, true, text));
        }
    }
    faults
}

fn ipam_fault(kind: &str, ipam: &Value) -> Option<Fault> {
    let Value::Object(object) = ipam else {
        let name = ipam.as_str().unwrap_or("dhcp");
        let text = format!("refuses \"ipam\": {ipam}: write \"ipam\": {{\"type\": \"{name}\"}}");
        return Some(Fault::new(kind, true, text));
    };
    let is_flat = |sets: &Value| sets.get(0).is_some_and(Value::is_object);
    let (name, text) = match get(object, "type")?.as_str()? {
        name @ "host-local" if get(object, "ranges").is_some_and(is_flat) => {
            (name, "reads a list of lists: write \"ranges\": [[{…}]]")
        }
        name @ "static" if get(object, "address").is_some() => (
            name,
            "does not read \"address\" in \"ipam\": write \"addresses\": [{\"address\": …}]",
        ),
        name @ "static" if get(object, "gateway").is_some() => (
            name,
            "does not read \"gateway\" in \"ipam\": write it beside an address in \"addresses\"",
        ),
        _ => return None,
    };
    Some(Fault::new(name, true, text))
}

/// Returns the fault of a name that no interface can have. A longer master may be an alternative name.
fn name_fault(plugin: &Plugin) -> Option<Fault> {
    let (key, cure) = match plugin.kind.as_str() {
        "bridge" => ("bridge", "choose a shorter one"),
        "ipvlan" | "macvlan" | "vlan" => ("master", "correct it if it is not an alternative name"),
        _ => return None,
    };
    let name = get(&plugin.value, key)?.as_str()?;
    let text = format!("needs a {key} of at most 15 characters, not \"{name}\": {cure}");
    (name.len() > 15).then(|| Fault::new(&plugin.kind, key == "bridge", text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::faults;
    use super::*;

    fn network(config: &Value) -> NetworkConfig {
        let mut config = config.clone();
        config["cniVersion"] = "1.0.0".into();
        config["name"] = "n".into();
        NetworkConfig::parse(config.to_string().as_bytes()).unwrap()
    }

    /// Checks that this is the only fault.
    #[track_caller]
    fn check(config: &Value, is_refused: bool, expected: &str) {
        let found = faults(&network(config), false);
        let [fault] = &found[..] else {
            panic!("{config}: {found:?}");
        };
        assert_eq!(
            (fault.is_refused, &*fault.to_string()),
            (is_refused, expected)
        );
    }

    #[test]
    fn parts_in_the_wrong_place_are_faults() {
        check(
            &json!({"type": "bridge", "plugins": []}),
            true,
            "bridge does not read \"plugins\" beside \"type\": remove one of them",
        );
        for key in ["ipam", "capabilities"] {
            let mut list = json!({"plugins": [{"type": "macvlan"}]});
            list[key] = json!({});
            check(
                &list,
                true,
                &format!(
                    "macvlan does not read \"{key}\" beside \"plugins\": move it into the plugin's object"
                ),
            );
        }
        check(
            &json!({"type": "macvlan", "ipam": {"type": "static", "address": "10.1.2.3/24"}}),
            true,
            "static does not read \"address\" in \"ipam\": write \"addresses\": [{\"address\": …}]",
        );
    }

    #[test]
    fn parts_of_the_wrong_form_are_explained() {
        check(
            &json!({"type": "bridge", "ipam": "dhcp"}),
            true,
            "bridge refuses \"ipam\": \"dhcp\": write \"ipam\": {\"type\": \"dhcp\"}",
        );
        check(
            &json!({"type": "bridge", "IPAM": {"type": "host-local", "ranges": [{"subnet": "10.1.2.0/24"}]}}),
            true,
            "host-local reads a list of lists: write \"ranges\": [[{…}]]",
        );
        check(
            &json!({"type": "vlan", "master": "eth0", "vlanId": 4095}),
            true,
            "vlan refuses its configuration: invalid VLAN ID 4095 (must be between 0 and 4094): correct the definition",
        );
    }

    #[test]
    fn names_that_no_interface_can_have_are_faults() {
        check(
            &json!({"type": "bridge", "bridge": "sixteen-letters1"}),
            true,
            "bridge needs a bridge of at most 15 characters, not \"sixteen-letters1\": choose a shorter one",
        );
        check(
            &json!({"type": "macvlan", "master": "sixteen-letters1"}),
            false,
            "macvlan needs a master of at most 15 characters, not \"sixteen-letters1\": correct it if it is not an alternative name",
        );
    }

    #[test]
    fn device_is_named_by_a_key_or_by_the_runtime() {
        let device = |config: Value| faults(&network(&config), false).len();
        assert_eq!(
            device(json!({"type": "host-device", "pcibusid": "0000:03:02.0"})),
            0
        );
        assert_eq!(
            device(json!({"type": "host-device", "capabilities": {"deviceID": true}})),
            0
        );
        check(
            &json!({"type": "host-device"}),
            true,
            "host-device has no device: write one of device, hwaddr, kernelpath, pciBusID, or the definition's resource",
        );
    }
}
