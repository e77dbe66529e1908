//! What a delegate gets: its arguments, capability arguments and directories.

use std::{cell::OnceCell, io, path::PathBuf};

use cni::chain::Invocation;
use cni::types::CniError;
use node::root::{self, Directory, RootError};
use plan::Requested;
use plan::netconf::Netconf;
use plan::{Attachment, Selection, requests};
use serde_json::{Map, Value, json};

use super::{Engine, Interfaces, LinkProbe, Request, device_info};
use crate::state::{Delegate, PodRef, Store};

/// The result cache's directory, usable as a path for as long as this lives.
pub(super) struct CacheDir {
    _open: Directory,
    pub(super) path: PathBuf,
}

/// What all delegates of one call have in common.
pub(super) struct Call<'a> {
    pub(super) request: &'a Request,
    pub(super) pod: &'a PodRef,
    pub(super) path: Vec<PathBuf>,
    pub(super) cache: &'a CacheDir,
    /// The interfaces of the container's network namespace, opened by the first look.
    interfaces: OnceCell<Box<dyn Interfaces>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        request: &'a Request,
        pod: &'a PodRef,
        netconf: &Netconf,
        cache: &'a CacheDir,
    ) -> Self {
        Self {
            request,
            pod,
            path: Engine::search_path(netconf, &request.path),
            cache,
            interfaces: OnceCell::new(),
        }
    }

    /// Returns whether the container's network namespace has an interface of that name.
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

    pub(super) fn invocation(&self, delegate: &Delegate, master: bool) -> Invocation {
        Invocation {
            container_id: self.request.container_id.clone(),
            netns: self.request.netns.clone(),
            ifname: delegate.ifname.clone(),
            args: match &delegate.args {
                Some(kept) => as_at_add(kept, &self.request.args),
                None => args(self.request, self.pod, &delegate.requested, master),
            },
            path: self.path.clone(),
            capability_args: device_info::with_file(delegate, &self.request.container_id),
            cache_dir: self.cache.path.clone(),
        }
    }
}

impl Engine {
    /// Opens the result cache, making it if need be.
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
                format!("the cache of results: {error}"),
            )
        })
    }
}

/// `CNI_ARGS` of an ADD, as they were kept; what was empty then is filled in.
fn as_at_add(kept: &[(String, String)], given: &[(String, String)]) -> Vec<(String, String)> {
    let fill = |(key, value): &(String, String)| match value.as_str() {
        "" => cni::args::get(given, key).unwrap_or_default().to_owned(),
        value => value.to_owned(),
    };
    let filled = |pair: &(String, String)| (pair.0.clone(), fill(pair));
    kept.iter().map(filled).collect()
}

/// `CNI_ARGS` of a delegate: the five that every plugin knows, what else the runtime sent, and what the pod asked for.
fn args(
    request: &Request,
    pod: &PodRef,
    requested: &Requested,
    master: bool,
) -> Vec<(String, String)> {
    const OF_ONE_INTERFACE: [&str; 2] = ["MAC", "IP"];
    let given = |key: &str, other: &str| {
        cni::args::get(&request.args, key)
            .filter(|value| !value.is_empty())
            .unwrap_or(other)
            .to_owned()
    };
    let mut out: Vec<(String, String)> = vec![("IgnoreUnknown".to_owned(), "true".to_owned())];
    for (key, other) in [
        ("K8S_POD_NAMESPACE", pod.namespace.as_str()),
        ("K8S_POD_NAME", &pod.name),
        ("K8S_POD_INFRA_CONTAINER_ID", request.container_id.as_str()),
        ("K8S_POD_UID", &pod.uid),
    ] {
        out.push((key.to_owned(), given(key, other)));
    }
    for (key, value) in &request.args {
        // An address that the runtime asks for is meant for its own interface.
        let foreign = !master && OF_ONE_INTERFACE.contains(&key.as_str());
        if !foreign && !out.iter().any(|(present, _)| present == key) {
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

/// Capability arguments: the runtime's are for the default network, the pod's for the network that it asks for them.
pub(super) fn capability_args(attachment: &Attachment, netconf: &Netconf) -> Map<String, Value> {
    let mut out = Map::new();
    if attachment.master || netconf.runtime_config_for_all {
        out.clone_from(&netconf.runtime_config);
    }
    if let Some(selection) = &attachment.selection {
        out.extend(requests::asked(selection));
    }
    if let (Some(id), false) = (device_id(attachment), attachment.master) {
        out.insert("deviceID".to_owned(), json!(id));
    }
    out
}

/// The device that the pod was given for a network.
fn device_id(attachment: &Attachment) -> Option<&String> {
    attachment.device.as_ref()?.id.as_ref()
}

/// What a selection says besides its names, in a form to compare: a network that says the same is the same attachment.
pub(super) fn wishes(selection: &Selection) -> Map<String, Value> {
    let mut out = requests::asked(selection);
    if let Some(args) = &selection.cni_args {
        out.insert("cni-args".to_owned(), json!(args));
    }
    if let Some(gateways) = &selection.default_route {
        out.insert("default-route".to_owned(), json!(gateways));
    }
    out
}

/// What of a selection has to be known again at DEL.
pub(super) fn requested(attachment: &Attachment) -> Requested {
    let resource_name = attachment.device.as_ref().map(|one| one.resource.clone());
    let given = device_id(attachment).cloned();
    let Some(selection) = &attachment.selection else {
        return Requested {
            device_id: given,
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
        device_id: given.or_else(|| selection.device_id.clone()),
        resource_name,
        wishes: Some(wishes(selection)),
        plugged: false,
    }
}
