//! The report of one node about one pod's networks, from its state, its result cache and its daemon.
//! `multus-daemon pod` prints it and `kubectl multus` reads it. This module only reads, and takes no locks.

use std::{path::Path, sync::Arc};

use api::pod_report::{Attachment, Container, Step};
use cni::{
    args,
    cache::{self, Entry},
    env::{ContainerId, IfName},
    version::Version,
};
use node::root::{Root, proc_path};

use crate::state::{Delegate, PodRef, Progress, State, StateError, Store};

/// Returns the containers of a pod, and the errors of containers whose state cannot be read.
pub fn containers(
    root: &Arc<Root>,
    cni_dir: &Path,
    (namespace, name): (&str, &str),
) -> Result<(Vec<Container>, Vec<String>), StateError> {
    let store = Store::new(Arc::clone(root), cni_dir);
    let results = store.results_dir();
    let dir = root.open_dir(&results).ok();
    let default_ifname = IfName::parse("eth0").expect("a valid interface name");
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for id in store.known()? {
        let state = match store.load(&id, &default_ifname) {
            Ok(None) => continue,
            Ok(Some(state)) => state,
            Err(StateError::Damaged { partial, .. }) => *partial,
            Err(error) => {
                unread.push(error.to_string());
                continue;
            }
        };
        let is_other = state.pod.namespace != namespace || state.pod.name != name;
        if is_other && state.pod != PodRef::default() {
            continue;
        }
        let entries = dir.as_ref().map_or_else(Vec::new, |dir| {
            cache::container_entries(&proc_path(dir), &id).unwrap_or_default()
        });
        // Upstream's state names no pod, but its result cache has the arguments of its plugins.
        if is_other && !entries.iter().any(|entry| is_of(entry, namespace, name)) {
            continue;
        }
        let since = |delegate: &Delegate| {
            let ifname = &delegate.ifname;
            let path = cache::path(&results, &delegate.config.name, &id, ifname).ok()?;
            u64::try_from(root.modified(path)?).ok()
        };
        found.push(container(&id, &state, &entries, &since));
    }
    Ok((found, unread))
}

fn is_of(entry: &Entry, namespace: &str, name: &str) -> bool {
    let is = |key, expected| args::get(&entry.cni_args, key) == Some(expected);
    is("K8S_POD_NAMESPACE", namespace) && is("K8S_POD_NAME", name)
}

fn container(
    id: &ContainerId,
    state: &State,
    entries: &[Entry],
    since: &dyn Fn(&Delegate) -> Option<u64>,
) -> Container {
    let attachments = state.delegates.iter().map(|delegate| {
        let entry = entries.iter().find(|entry| {
            entry.network_name == delegate.config.name && entry.if_name == delegate.ifname.as_str()
        });
        Attachment {
            network: delegate.name.clone(),
            interface: delegate.ifname.to_string(),
            plugins: delegate
                .config
                .plugins
                .iter()
                .map(|plugin| plugin.kind.clone())
                .collect(),
            progress: step(delegate.progress, entry.is_some()),
            addresses: entry.map(addresses).unwrap_or_default(),
            claim: None,
            since: since(delegate),
            device: delegate.requested.device_id.clone(),
        }
    });
    Container {
        id: id.to_string(),
        uid: state.pod.uid.clone(),
        attachments: attachments.collect(),
    }
}

fn step(progress: Progress, has_result: bool) -> Step {
    match progress {
        Progress::Planned => Step::Planned,
        Progress::Started | Progress::Unknown if has_result => Step::Attached,
        Progress::Started | Progress::Unknown => Step::Started,
        Progress::Failed { .. } => Step::Failed,
        Progress::Removed => Step::Removed,
    }
}

fn addresses(entry: &Entry) -> Vec<String> {
    let result = entry.parse_result(Version::LATEST);
    let ips = result.map(|result| result.ips).unwrap_or_default();
    ips.into_iter().map(|ip| ip.address).collect()
}

#[cfg(test)]
mod tests;
