//! The devices of one pod in the kubelet's list: containers in their order, devices sorted within a container.

use node::podresources::{ContainerResources, PodResources};
use plan::{Devices, PodView};

/// Returns the devices of device plugins. A resource may be listed in several parts, one for each NUMA node.
pub(super) fn devices(all: &[PodResources], pod: &PodView) -> Devices {
    let mut found = Devices::new();
    for container in containers(all, pod) {
        let mut devices_by_resource = Devices::new();
        for part in &container.devices {
            let ids = devices_by_resource
                .entry(part.resource_name.clone())
                .or_default();
            ids.extend(part.device_ids.iter().cloned());
        }
        for (resource, mut ids) in devices_by_resource {
            ids.sort();
            found.entry(resource).or_default().extend(ids);
        }
    }
    found
}

/// Returns the devices of claims as definitions named them up to upstream's 4.3.0: by the claim's name, with the CDI names of its devices.
pub(super) fn claimed(all: &[PodResources], pod: &PodView) -> Devices {
    let mut found = Devices::new();
    for claim in containers(all, pod).flat_map(|container| &container.dynamic_resources) {
        let devices = claim
            .claim_resources
            .iter()
            .flat_map(|one| &one.cdi_devices);
        let names = devices.filter_map(|device| device.name.split_once('='));
        let ids = found.entry(claim.claim_name.clone()).or_default();
        // Several containers may share a claim.
        for (_, id) in names {
            if !ids.iter().any(|known| known == id) {
                ids.push(id.to_owned());
            }
        }
    }
    found
}

fn containers<'a>(
    all: &'a [PodResources],
    pod: &'a PodView,
) -> impl Iterator<Item = &'a ContainerResources> {
    let is_it = |one: &&PodResources| one.name == pod.name && one.namespace == pod.namespace;
    all.iter().filter(is_it).flat_map(|one| &one.containers)
}

#[cfg(test)]
mod tests {
    use node::podresources::{CdiDevice, ClaimResource, ContainerDevices, DynamicResource};

    use super::*;

    fn part(resource: &str, ids: &[&str]) -> ContainerDevices {
        ContainerDevices {
            resource_name: resource.to_owned(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
        }
    }

    fn container(name: &str, devices: Vec<ContainerDevices>) -> ContainerResources {
        ContainerResources {
            name: name.to_owned(),
            devices,
            dynamic_resources: Vec::new(),
        }
    }

    fn pod() -> PodView {
        PodView {
            namespace: "shop".to_owned(),
            name: "cart".to_owned(),
            ..PodView::default()
        }
    }

    fn list(namespace: &str, containers: Vec<ContainerResources>) -> PodResources {
        PodResources {
            name: "cart".to_owned(),
            namespace: namespace.to_owned(),
            containers,
        }
    }

    #[test]
    fn containers_keep_their_order_and_numa_nodes_are_merged() {
        let all = [
            list(
                "other",
                vec![container("main", vec![part("x/fast", &["no"])])],
            ),
            list(
                "shop",
                vec![
                    container(
                        "zebra",
                        vec![
                            part("x/fast", &["9"]),
                            part("x/slow", &["s"]),
                            part("x/fast", &["3", "5"]),
                        ],
                    ),
                    container("ape", vec![part("x/fast", &["4", "1"])]),
                ],
            ),
        ];
        let found = devices(&all, &pod());
        assert_eq!(found["x/fast"], ["3", "5", "9", "1", "4"]);
        assert_eq!(found["x/slow"], ["s"]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn claims_are_found_by_their_names() {
        let mut one = container("main", vec![]);
        one.dynamic_resources = vec![DynamicResource {
            claim_name: "cart-nic".to_owned(),
            claim_resources: vec![ClaimResource {
                cdi_devices: ["vendor.example/nic=0000:18:02.5", "odd"]
                    .map(|name| CdiDevice {
                        name: name.to_owned(),
                    })
                    .to_vec(),
            }],
        }];
        let all = [list("shop", vec![one.clone(), one])];
        let found = claimed(&all, &pod());
        assert_eq!(found["cart-nic"], ["0000:18:02.5"]);
    }
}
