//! Devices of resource claims (resource.k8s.io/v1): a claim says which device of which pool it was given, and the driver's slices say
//! in two attributes which resource that is for networks, and what plugins call it. Reading objects only; somebody else fetches them.

use serde_json::Value;

/// The resource that definitions name.
const RESOURCE: &str = "k8s.cni.cncf.io/resourceName";
/// What plugins call the device.
const DEVICE: &str = "k8s.cni.cncf.io/deviceID";

/// A claim of a pod, and what is known of it in the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// Its name.
    pub(super) name: String,
    /// The requests of it that stand for resources of containers, with those; empty for a claim that the pod itself names.
    pub(super) extended: Vec<(String, String)>,
}

/// A device that a claim was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) request: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
}

/// A device as networks know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) resource: String,
    pub(super) id: String,
}

/// The claims of a pod, in its order. Those that it names itself stand in its spec alone, those made from templates have their names
/// in its status.
pub(super) fn of_pod(pod: &Value) -> Vec<Claim> {
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

/// What a claim was given; `None` as long as it was given nothing.
pub(super) fn given(claim: &Value) -> Option<Vec<Given>> {
    let results = claim["status"]["allocation"].get("devices")?;
    let of = |one: &Value, key| text(&one[key]).unwrap_or_default();
    let results = list(&results["results"]).map(|one| Given {
        request: of(one, "request"),
        driver: of(one, "driver"),
        pool: of(one, "pool"),
        device: of(one, "device"),
    });
    Some(results.collect())
}

/// What the slices say of a device: `Err` where none knows it, `Ok(None)` where it is nothing for networks.
pub(super) fn known(slices: &Value, given: &Given) -> Result<Option<Known>, ()> {
    let of_pool = list(&slices["items"]).filter(|slice| {
        let spec = &slice["spec"];
        spec["driver"] == given.driver.as_str() && spec["pool"]["name"] == given.pool.as_str()
    });
    // While a driver renews its pool, slices of both generations are there.
    let generation = |slice: &&Value| slice["spec"]["pool"]["generation"].as_i64();
    let mut of_pool: Vec<&Value> = of_pool.collect();
    of_pool.sort_by_key(|slice| std::cmp::Reverse(generation(slice)));
    let mut devices = of_pool
        .iter()
        .flat_map(|slice| list(&slice["spec"]["devices"]));
    let device = devices
        .find(|one| one["name"] == given.device.as_str())
        .ok_or(())?;
    let attribute = |name: &str| text(&device["attributes"][name]["string"]);
    Ok(match (attribute(RESOURCE), attribute(DEVICE)) {
        (Some(resource), Some(id)) => Some(Known { resource, id }),
        _ => None,
    })
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
    fn a_pod_names_its_claims() {
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
        let claims = of_pod(&pod);
        let names: Vec<_> = claims.iter().map(|claim| claim.name.as_str()).collect();
        assert_eq!(names, ["cart-own", "cart-nic", "cart-extended"]);
        assert_eq!(
            claims[2].extended,
            [("container-0-request-0".into(), "x/fast".into())]
        );
        assert!(of_pod(&json!({})).is_empty());
    }

    #[test]
    fn a_claim_without_allocation_was_given_nothing() {
        assert_eq!(given(&json!({"status": {}})), None);
        assert_eq!(given(&json!({"status": {"allocation": {}}})), None);
        let claim = json!({"status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": "d", "pool": "p", "device": "one"},
        ]}}}});
        let given = given(&claim).unwrap();
        assert_eq!(
            (given[0].pool.as_str(), given[0].device.as_str()),
            ("p", "one")
        );
    }

    #[test]
    fn the_newest_slice_tells_of_a_device() {
        let slice = |generation: i64, id: Option<&str>| {
            let mut attributes = json!({"other": {"int": 1}, RESOURCE: {"string": "x/fast"}});
            if let Some(id) = id {
                attributes[DEVICE] = json!({"string": id});
            }
            json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": generation},
                "devices": [{"name": "one", "attributes": attributes}]}})
        };
        let one = Given {
            request: "r".into(),
            driver: "d".into(),
            pool: "p".into(),
            device: "one".into(),
        };
        let slices = json!({"items": [slice(1, Some("old")), slice(2, Some("0000:18:02.5"))]});
        let found = known(&slices, &one).unwrap().unwrap();
        assert_eq!(
            (found.resource.as_str(), found.id.as_str()),
            ("x/fast", "0000:18:02.5")
        );
        assert_eq!(known(&json!({"items": [slice(1, None)]}), &one), Ok(None));
        let other = Given {
            device: "two".into(),
            ..one
        };
        assert_eq!(known(&slices, &other), Err(()));
    }
}
