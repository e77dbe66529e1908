//! The sources of devices: the kubelet's socket, its checkpoint where it does not listen, and the API server for claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use node::{
    podresources::{self, ContainerDevices, PodResources},
    root::Root,
};
use plan::{Devices, PodView};
use serde_json::Value;
use tokio::runtime::Handle;
use tracing::warn;

use super::{DeviceSource, checkpoint, claims, kubelet, suffices};
use crate::cluster::Cluster;

/// The path of claims and slices.
const API: &str = "/apis/resource.k8s.io/v1";
/// The maximum size of a checkpoint file; larger than any.
const MAX_CHECKPOINT: u64 = 16 << 20;

/// The devices of this node's pods.
pub struct NodeDevices {
    /// The node.
    pub root: Arc<Root>,
    /// The kubelet's directory.
    pub kubelet_dir: PathBuf,
    /// This node's name.
    pub node: String,
    /// Unset until the daemon has access to the API server.
    pub cluster: Arc<OnceLock<Cluster>>,
    /// Runs the calls to the kubelet.
    pub runtime: Handle,
}

impl DeviceSource for NodeDevices {
    fn pod_devices(
        &self,
        pod: &PodView,
        wanted: &BTreeMap<String, usize>,
    ) -> Result<Devices, String> {
        let listed = self.listed()?;
        let mut found = match &listed {
            Some(all) => kubelet::devices(all, pod),
            None => self.checkpointed(pod)?,
        };
        if suffices(&found, wanted) {
            return Ok(found);
        }
        for (resource, id) in self.claimed(pod)? {
            found.entry(resource).or_default().push(id);
        }
        if let (false, Some(all)) = (suffices(&found, wanted), &listed) {
            for (claim, ids) in kubelet::claimed(all, pod) {
                found.entry(claim).or_insert(ids);
            }
        }
        Ok(found)
    }

    fn resources(&self) -> Result<BTreeSet<String>, String> {
        let socket = self.kubelet_dir.join(podresources::SOCKET);
        if !self.root.exists(&socket) {
            return Err(format!(
                "kubelet does not listen at {}, so its devices are not known",
                socket.display()
            ));
        }
        let devices = self
            .runtime
            .block_on(podresources::allocatable(&self.root, &socket));
        let devices = devices.map_err(|error| format!("{error}: see the kubelet's log"))?;
        let has_device = |one: &ContainerDevices| !one.device_ids.is_empty();
        let of_plugins = devices.into_iter().filter(has_device);
        let mut resources: BTreeSet<_> = of_plugins.map(|one| one.resource_name).collect();
        if let Some(cluster) = self.cluster.get() {
            let path = format!(
                "{API}/resourceslices?fieldSelector=spec.nodeName%3D{}",
                self.node
            );
            // A cluster without DRA has no slices.
            let slices = cluster.read(&path)?.unwrap_or_default();
            resources.extend(claims::resources(&slices));
        }
        Ok(resources)
    }
}

impl NodeDevices {
    /// Returns the kubelet's list, or `None` where it does not listen. A kubelet that listens but does not respond is an error.
    fn listed(&self) -> Result<Option<Vec<PodResources>>, String> {
        let socket = self.kubelet_dir.join(podresources::SOCKET);
        if !self.root.exists(&socket) {
            return Ok(None);
        }
        let listed = self
            .runtime
            .block_on(podresources::list(&self.root, &socket));
        listed
            .map(Some)
            .map_err(|error| format!("{error}: see the kubelet's log"))
    }

    /// Returns the devices in the kubelet's checkpoint file.
    fn checkpointed(&self, pod: &PodView) -> Result<Devices, String> {
        let file = self.kubelet_dir.join(checkpoint::FILE);
        match self.root.read(&file, MAX_CHECKPOINT) {
            Ok(text) => checkpoint::devices(&text, &pod.uid)
                .map_err(|reason| format!("{}: {reason}", file.display())),
            Err(error) if error.is_not_found() => Ok(Devices::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns resource and device of each of the pod's claims, in the pod's order.
    fn claimed(&self, pod: &PodView) -> Result<Vec<(String, String)>, String> {
        let Some(cluster) = self.cluster.get() else {
            return Ok(Vec::new());
        };
        let namespace = &pod.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{}", pod.name);
        let object = cluster.read(&path)?.unwrap_or_default();
        let mut slices: BTreeMap<String, Value> = BTreeMap::new();
        let mut found = Vec::new();
        for claim in claims::pod_claims(&object) {
            let name = &claim.name;
            let path = format!("{API}/namespaces/{namespace}/resourceclaims/{name}");
            let object = cluster.read(&path)?;
            let allocated = object.as_ref().and_then(claims::allocated);
            let allocated = allocated.ok_or_else(|| {
                format!("resource claim {namespace}/{name} does not exist or has no device allocated yet: run `kubectl --namespace {namespace} describe resourceclaim {name}`")
            })?;
            for one in allocated {
                let wanted = claim
                    .extended
                    .iter()
                    .find(|(request, _)| *request == one.request);
                if !claim.extended.is_empty() && wanted.is_none() {
                    continue;
                }
                let known = {
                    if !slices.contains_key(&one.driver) {
                        slices.insert(one.driver.clone(), self.slices(cluster, &one.driver)?);
                    }
                    claims::network_device(&slices[&one.driver], &one)
                };
                match (known, wanted) {
                    (Ok(Some(known)), Some((_, resource))) if known.resource != *resource => {
                        return Err(format!(
                            "device {} of claim {namespace}/{name} is of {}, not of {resource}",
                            one.device, known.resource
                        ));
                    }
                    (Ok(Some(known)), _) => found.push((known.resource, known.id)),
                    (_, Some((_, resource))) => {
                        return Err(format!(
                            "no resource slice of driver {} reports {resource} for device {}",
                            one.driver, one.device
                        ));
                    }
                    (Ok(None), None) => {
                        warn!(
                            claim = name,
                            device = one.device,
                            "ignoring a device without the attributes of networks"
                        );
                    }
                    (Err(()), None) => {
                        warn!(
                            claim = name,
                            device = one.device,
                            "ignoring a device that is in no resource slice"
                        );
                    }
                }
            }
        }
        Ok(found)
    }

    fn slices(&self, cluster: &Cluster, driver: &str) -> Result<Value, String> {
        let node = &self.node;
        let fields = format!("spec.nodeName%3D{node}%2Cspec.driver%3D{driver}");
        let path = format!("{API}/resourceslices?fieldSelector={fields}");
        Ok(cluster.read(&path)?.unwrap_or_default())
    }
}
