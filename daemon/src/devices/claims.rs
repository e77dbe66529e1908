//! Devices of resource claims (resource.k8s.io/v1): the status of a claim names device and pool that it was allocated, and two attributes in
//! the driver's slices name the resource for networks, and the device ID for plugins. This module only parses objects; `source` reads them.

use serde_json::Value;

/// The attribute with the resource that definitions name.
const RESOURCE: &str = "k8s.cni.cncf.io/resourceName";
/// The attribute with the device ID for plugins.
const DEVICE: &str = "k8s.cni.cncf.io/deviceID";

/// A claim of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// The name of the claim.
    pub(super) name: String,
    /// Its requests that stand for extended resources of containers, each with its resource; empty for a claim that the pod names.
    pub(super) extended: Vec<(String, String)>,
}

/// A device that a claim was allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocated {
    pub(super) request: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkDevice {
    pub(super) resource: String,
    pub(super) id: String,
}

/// Returns the claims of a pod, in its order. The names of claims from templates are in its status, those of other claims in its spec.
pub(super) fn pod_claims(pod: &Value) -> Vec<Claim> {
    let status = &pod["status"];
    let made = |name: &Value| {
        let made = list(&status["resourceClaimStatuses"]).find(|one| one["name"] == *name)?;
        text(&made["resourceClaimName"])
    };
    let named = list(&pod["spec"]["resourceClaims"]).filter_map(|one| {
        Some(Claim {
            name: text(&one["resourceClaimName"]).or_else(|| made(&one["name"]))?,
            extended: Vec::new(),
        })
    });
    let extended = &status["extendedResourceClaimStatus"];
    let extended = text(&extended["resourceClaimName"]).map(|name| Claim {
        name,
        extended: list(&extended["requestMappings"])
            .filter_map(|one| Some((text(&one["requestName"])?, text(&one["resourceName"])?)))
            .collect(),
    });
    named.chain(extended).collect()
}

/// Returns the devices that a claim was allocated, or `None` as long as it has no allocation.
pub(super) fn allocated(claim: &Value) -> Option<Vec<Allocated>> {
    let results = claim["status"]["allocation"].get("devices")?;
    let of = |one: &Value, key| text(&one[key]).unwrap_or_default();
    let results = list(&results["results"]).map(|one| Allocated {
        request: of(one, "request"),
        driver: of(one, "driver"),
        pool: of(one, "pool"),
        device: of(one, "device"),
    });
    Some(results.collect())
}

/// Returns resource and ID of a device in the slices: `Err` if no slice has the device, `Ok(None)` if it has no attributes for networks.
pub(super) fn network_device(
    slices: &Value,
    allocated: &Allocated,
) -> Result<Option<NetworkDevice>, ()> {
    let pool_slices = list(&slices["items"]).filter(|slice| {
        let spec = &slice["spec"];
        spec["driver"] == allocated.driver.as_str()
            && spec["pool"]["name"] == allocated.pool.as_str()
    });
    // While a driver renews its pool, slices of both generations exist.
    let generation = |slice: &&Value| slice["spec"]["pool"]["generation"].as_i64();
    let mut pool_slices: Vec<&Value> = pool_slices.collect();
    pool_slices.sort_by_key(|slice| std::cmp::Reverse(generation(slice)));
    let mut devices = pool_slices
        .iter()
        .flat_map(|slice| list(&slice["spec"]["devices"]));
    let device = devices
        .find(|one| one["name"] == allocated.device.as_str())
        .ok_or(())?;
    let attribute = |name: &str| text(&device["attributes"][name]["string"]);
    Ok(match (attribute(RESOURCE), attribute(DEVICE)) {
        (Some(resource), Some(id)) => Some(NetworkDevice { resource, id }),
        _ => None,
    })
}

/// Returns the resources for networks of the devices in the slices.
pub(super) fn resources(slices: &Value) -> impl Iterator<Item = String> {
    let devices = list(&slices["items"]).flat_map(|slice| list(&slice["spec"]["devices"]));
    devices.filter_map(|device| text(&device["attributes"][RESOURCE]["string"]))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_of_a_pod_are_found() {
        let pod = json!({"spec": {"resourceClaims": [
            {"name": "own", "resourceClaimName": "cart-own"},
            {"name": "nic", "resourceClaimTemplateName": "nics"},
            {"name": "none", "resourceClaimTemplateName": "nothing"},
            {"name": "late", "resourceClaimTemplateName": "nics"},
        ]}, "status": {
            "resourceClaimStatuses": [{"name": "none"}, {"name": "nic", "resourceClaimName": "cart-nic"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "cart-extended", "requestMappings": [
                {"containerName": "main", "resourceName": "x/fast", "requestName": "container-0-request-0"},
            ]},
        }});
        let claims = pod_claims(&pod);
        let names: Vec<_> = claims.iter().map(|claim| claim.name.as_str()).collect();
        assert_eq!(names, ["cart-own", "cart-nic", "cart-extended"]);
        assert_eq!(
            claims[2].extended,
            [("container-0-request-0".into(), "x/fast".into())]
        );
        assert!(pod_claims(&json!({})).is_empty());
    }

    #[test]
    fn claim_without_allocation_has_no_devices() {
        assert_eq!(allocated(&json!({"status": {}})), None);
        assert_eq!(allocated(&json!({"status": {"allocation": {}}})), None);
        let claim = json!({"status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": "d", "pool": "p", "device": "one"},
        ]}}}});
        let allocated = allocated(&claim).unwrap();
        assert_eq!(
            (allocated[0].pool.as_str(), allocated[0].device.as_str()),
            ("p", "one")
        );
    }

    #[test]
    fn newest_slice_of_a_pool_is_used() {
        let slice = |generation: i64, id: Option<&str>| {
            let mut attributes = json!({"other": {"int": 1}, RESOURCE: {"string": "x/fast"}});
            if let Some(id) = id {
                attributes[DEVICE] = json!({"string": id});
            }
            json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": generation},
                "devices": [{"name": "one", "attributes": attributes}]}})
        };
        let one = Allocated {
            request: "r".into(),
            driver: "d".into(),
            pool: "p".into(),
            device: "one".into(),
        };
        let slices = json!({"items": [slice(1, Some("old")), slice(2, Some("0000:18:02.5"))]});
        let found = network_device(&slices, &one).unwrap().unwrap();
        assert_eq!(
            (found.resource.as_str(), found.id.as_str()),
            ("x/fast", "0000:18:02.5")
        );
        assert_eq!(
            network_device(&json!({"items": [slice(1, None)]}), &one),
            Ok(None)
        );
        let other = Allocated {
            device: "two".into(),
            ..one
        };
        assert_eq!(network_device(&slices, &other), Err(()));
    }
}
