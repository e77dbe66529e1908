//! A server in the kubelet's place, which reports the devices of pods that a case names, on the pod-resources socket or in the
//! checkpoint. The suite `devices` uses a real kubelet.

use std::fs;

use anyhow::ensure;
use prost::Message as _;
use serde_json::{Value, json};

use super::{Harness, Pod};
use crate::{
    drivers::pod_resources::{LISTED, NAME, SOCKET},
    node::{Node, Service},
    sh,
};

const CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// The server ends, and its files are removed, on drop.
pub(crate) struct FakeKubelet<'a> {
    node: &'a Node,
    serving: Option<Service>,
}

/// A container's name, and its devices by resource.
pub(crate) type Container<'a> = (&'a str, &'a [(&'a str, &'a [&'a str])]);

impl Harness {
    /// Starts a kubelet that reports these pods.
    pub(crate) fn fake_kubelet(&self, pods: &[PodResources]) -> anyhow::Result<FakeKubelet<'_>> {
        let listed = ListResponse {
            pods: pods.to_vec(),
        };
        self.node().write(LISTED, listed.encode_to_vec())?;
        self.failing_kubelet()
    }

    /// Starts a kubelet that listens and answers with errors only.
    pub(crate) fn failing_kubelet(&self) -> anyhow::Result<FakeKubelet<'_>> {
        let node = self.node();
        let own = std::env::current_exe()?;
        let serving = node.serve(NAME, &own, |command| command.arg(NAME))?;
        let kubelet = FakeKubelet {
            node,
            serving: Some(serving),
        };
        sh::until(10, "the kubelet listens", || {
            ensure!(node.path(SOCKET).exists(), "no socket");
            Ok(())
        })?;
        Ok(kubelet)
    }

    /// Writes the checkpoint of a kubelet that does not listen: pod, container, resource, devices by NUMA node.
    pub(crate) fn kubelet_checkpoint(
        &self,
        notes: &[(&Pod, &str, &str, Value)],
    ) -> anyhow::Result<FakeKubelet<'_>> {
        let entries: Vec<_> = notes
            .iter()
            .map(|(pod, container, resource, ids)| {
                json!({"PodUID": pod.uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": ids, "AllocResp": ""})
            })
            .collect();
        let text =
            json!({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1});
        self.node().write(CHECKPOINT, text.to_string())?;
        Ok(FakeKubelet {
            node: self.node(),
            serving: None,
        })
    }
}

impl Drop for FakeKubelet<'_> {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            let _ = self.node.end(serving, "TERM");
        }
        for file in [SOCKET, LISTED, CHECKPOINT] {
            let _ = fs::remove_file(self.node.path(file));
        }
    }
}

impl PodResources {
    /// Describes a pod without claims.
    pub(crate) fn new(namespace: &str, name: &str, containers: &[Container<'_>]) -> Self {
        let part = |(resource, ids): &(&str, &[&str])| ContainerDevices {
            resource: (*resource).to_owned(),
            ids: ids.iter().map(ToString::to_string).collect(),
        };
        let containers = containers.iter().map(|(name, parts)| ContainerResources {
            name: (*name).to_owned(),
            devices: parts.iter().map(part).collect(),
            claims: Vec::new(),
        });
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            containers: containers.collect(),
        }
    }

    /// Adds a claim to the first container, with the CDI names of the claim's devices.
    pub(crate) fn with_claim(mut self, claim: &str, devices: &[&str]) -> Self {
        let devices = devices.iter().map(|name| CdiDevice {
            name: (*name).to_owned(),
        });
        let claim = DynamicResource {
            claim: claim.to_owned(),
            resources: vec![ClaimResource {
                devices: devices.collect(),
            }],
        };
        if let Some(container) = self.containers.first_mut() {
            container.claims.push(claim);
        }
        self
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<PodResources>,
}

/// A pod in the kubelet's report.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<ContainerDevices>,
    #[prost(message, repeated, tag = "5")]
    claims: Vec<DynamicResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerDevices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DynamicResource {
    #[prost(string, tag = "2")]
    claim: String,
    #[prost(message, repeated, tag = "4")]
    resources: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ClaimResource {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CdiDevice {
    #[prost(string, tag = "1")]
    name: String,
}
