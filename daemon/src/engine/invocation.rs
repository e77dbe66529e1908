//! The invocation of a delegate: its `CNI_ARGS`, capability arguments and directories.

use std::{cell::OnceCell, io, path::PathBuf};

use cni::cache;
use cni::chain::Invocation;
use cni::types::CniError;
use node::root::{self, Directory, RootError};
use plan::netconf::Netconf;
use plan::{Attachment, Requested, Selection, requests};
use serde_json::{Map, Value, json};

use super::failure::{Failure, failed};
use super::verb_exec::Deadlines;
use super::{ContainerRequest, Engine, Interfaces, LinkProbe, device_info};
use crate::state::{Delegate, PodRef, Store};

/// The directory of the result cache. Its path is valid for as long as this value lives.
pub(super) struct CacheDir {
    _open: Directory,
    pub(super) path: PathBuf,
}

/// What all delegates of one request have in common.
pub(super) struct DelegateContext<'a> {
    pub(super) request: &'a ContainerRequest,
    pub(super) pod: &'a PodRef,
    pub(super) path: Vec<PathBuf>,
    pub(super) cache: &'a CacheDir,
    pub(super) deadlines: Deadlines,
    /// The interfaces of the container's network namespace, opened when first needed.
    interfaces: OnceCell<Box<dyn Interfaces>>,
}

impl<'a> DelegateContext<'a> {
    pub(super) fn new(
        request: &'a ContainerRequest,
        pod: &'a PodRef,
        netconf: &Netconf,
        cache: &'a CacheDir,
    ) -> Self {
        Self {
            request,
            pod,
            path: Engine::search_path(netconf, &request.path),
            cache,
            deadlines: Deadlines::of(&request.cancellation),
            interfaces: OnceCell::new(),
        }
    }

    pub(super) fn has_interface(&self, probe: &dyn LinkProbe, ifname: &str) -> io::Result<bool> {
        let interfaces = if let Some(open) = self.interfaces.get() {
            open
        } else {
            let netns = self.request.netns.as_deref().unwrap_or_default();
            let open = probe.interfaces(netns)?;
            self.interfaces.get_or_init(|| open)
        };
        interfaces.contains(ifname)
    }

    /// Refuses a network whose results could not be cached.
    pub(super) fn check_name(&self, delegate: &Delegate) -> Result<(), Failure> {
        let (id, ifname) = (&self.request.container_id, &delegate.ifname);
        cache::check_length(&delegate.config.name, id, ifname).map_err(|error| {
            let cause = CniError::new(CniError::INVALID_NETWORK_CONFIG, error.to_string());
            failed(self.pod, delegate, cause.into())
        })
    }

    pub(super) fn invocation(&self, delegate: &Delegate, is_default: bool) -> Invocation {
        Invocation {
            container_id: self.request.container_id.clone(),
            netns: self.request.netns.clone(),
            ifname: delegate.ifname.clone(),
            args: match &delegate.args {
                Some(cached) => args_of_add(cached, &self.request.args),
                None => args(self.request, self.pod, &delegate.requested, is_default),
            },
            path: self.path.clone(),
            capability_args: device_info::with_file(delegate, &self.request.container_id),
            cache_dir: self.cache.path.clone(),
        }
    }
}

impl Engine {
    /// Opens the directory of the result cache, creating it if it does not exist.
    pub(super) fn cache_dir(&self, store: &Store) -> Result<CacheDir, CniError> {
        let dir = store.results_dir();
        let open = || -> Result<CacheDir, RootError> {
            let open = self.root.make_directory(&dir, 0o700)?;
            let path = root::proc_path(&open);
            Ok(CacheDir { _open: open, path })
        };
        open().map_err(|error| {
            CniError::new(
                CniError::IO_FAILURE,
                format!("cannot open the result cache: {error}"),
            )
        })
    }
}

/// Returns the cached `CNI_ARGS` of an ADD; values that were empty then are taken from the present request.
fn args_of_add(cached: &[(String, String)], present: &[(String, String)]) -> Vec<(String, String)> {
    let fill = |(key, value): &(String, String)| match value.as_str() {
        "" => cni::args::get(present, key).unwrap_or_default().to_owned(),
        value => value.to_owned(),
    };
    let filled = |pair: &(String, String)| (pair.0.clone(), fill(pair));
    cached.iter().map(filled).collect()
}

/// Returns the `CNI_ARGS` of a delegate: the five that every plugin knows, the runtime's others, and those that the pod requested.
fn args(
    request: &ContainerRequest,
    pod: &PodRef,
    requested: &Requested,
    is_default: bool,
) -> Vec<(String, String)> {
    const INTERFACE_KEYS: [&str; 2] = ["MAC", "IP"];
    let sent_or = |key: &str, default: &str| {
        cni::args::get(&request.args, key)
            .filter(|value| !value.is_empty())
            .unwrap_or(default)
            .to_owned()
    };
    let mut out: Vec<(String, String)> = vec![("IgnoreUnknown".to_owned(), "true".to_owned())];
    for (key, default) in [
        ("K8S_POD_NAMESPACE", pod.namespace.as_str()),
        ("K8S_POD_NAME", &pod.name),
        ("K8S_POD_INFRA_CONTAINER_ID", request.container_id.as_str()),
        ("K8S_POD_UID", &pod.uid),
    ] {
        out.push((key.to_owned(), sent_or(key, default)));
    }
    for (key, value) in &request.args {
        // An address that the runtime requests is meant only for the default network's interface.
        let is_for_other = !is_default && INTERFACE_KEYS.contains(&key.as_str());
        if !is_for_other && !out.iter().any(|(present, _)| present == key) {
            out.push((key.clone(), value.clone()));
        }
    }
    let ips = Some(requested.ips.join(",")).filter(|ips| !ips.is_empty());
    for (key, value) in [("MAC", requested.mac.clone()), ("IP", ips)] {
        if let Some(value) = value {
            out.retain(|(present, _)| present != key);
            out.push((key.to_owned(), value));
        }
    }
    out
}

/// Returns the capability arguments of a network: the default network gets the runtime's, and each network those that the pod
/// requested for it.
pub(super) fn capability_args(attachment: &Attachment, netconf: &Netconf) -> Map<String, Value> {
    let mut out = Map::new();
    if attachment.is_default || netconf.runtime_config_for_all {
        out.clone_from(&netconf.runtime_config);
    }
    if let Some(selection) = &attachment.selection {
        out.extend(requests::capability_args(selection));
    }
    if let (Some(id), false) = (device_id(attachment), attachment.is_default) {
        out.insert("deviceID".to_owned(), json!(id));
    }
    out
}

fn device_id(attachment: &Attachment) -> Option<&String> {
    attachment.device.as_ref()?.id.as_ref()
}

/// Returns everything that a selection requests besides its names. Two selections of one network with equal values are the
/// same attachment.
pub(super) fn annotation_keys(selection: &Selection) -> Map<String, Value> {
    let mut out = requests::capability_args(selection);
    if let Some(args) = &selection.cni_args {
        out.insert("cni-args".to_owned(), json!(args));
    }
    if let Some(gateways) = &selection.default_route {
        out.insert("default-route".to_owned(), json!(gateways));
    }
    out
}

/// Returns what DEL has to know of an attachment's selection.
pub(super) fn requested(attachment: &Attachment) -> Requested {
    let resource_name = attachment.device.as_ref().map(|one| one.resource.clone());
    let allocated = device_id(attachment).cloned();
    let Some(selection) = &attachment.selection else {
        return Requested {
            device_id: allocated,
            resource_name,
            ..Requested::default()
        };
    };
    Requested {
        interface: selection.interface.clone(),
        mac: selection.mac.clone(),
        infiniband_guid: selection.infiniband_guid.clone(),
        ips: selection.ips.clone(),
        default_route: selection.default_route.clone(),
        device_id: allocated.or_else(|| selection.device_id.clone()),
        resource_name,
        annotation_keys: Some(annotation_keys(selection)),
        plugged: false,
    }
}
