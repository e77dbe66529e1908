//! What the result cache knows of a container beyond its state: the arguments of each ADD, and attachments that state does
//! not list. Those are of a state that is damaged or lost, or of interfaces that upstream plugged into a running pod.

use std::path::Path;

use cni::cache::{self, Entry};
use cni::config::NetworkConfig;
use cni::env::{ContainerId, IfName};
use cni::version::Version;
use node::root::{self, Root};
use plan::Requested;
use plan::netconf::Netconf;
use serde_json::Value;
use tracing::warn;

use crate::state::{Delegate, PodRef, Progress, State};

/// Where the runtime's libcni keeps its results.
pub(super) const RUNTIME_RESULTS: &str = "/var/lib/cni/results";
/// Plugins that lead to a multus.
const SHIMS: [&str; 2] = ["multus-shim", "multus"];

/// All that the cache holds of a container, the oldest first.
pub(super) fn entries(cache: &Path, id: &ContainerId) -> Vec<Entry> {
    cache::of_container(cache, id).unwrap_or_else(|error| {
        warn!(%error, "what a container is attached to");
        Vec::new()
    })
}

/// Takes over what the runtime's own cache holds of a container's interface: an attachment that it made by itself, before our
/// configuration was there, under a network name that it does not use any more. From then on our cache knows of it, so that DEL finds
/// configuration and result, and finds them again when it is repeated.
pub(super) fn adopt(root: &Root, cache: &Path, id: &ContainerId, ifname: &IfName) -> Vec<Entry> {
    let dir = match root.directory(RUNTIME_RESULTS) {
        Ok(dir) => dir,
        Err(error) if error.is_not_found() => return Vec::new(),
        Err(error) => {
            warn!(%error, "what the runtime has cached of a container");
            return Vec::new();
        }
    };
    let theirs = root::proc_path(&dir);
    let mut adopted = entries(&theirs, id);
    adopted.retain(|entry| entry.if_name == ifname.as_str() && !is_ours(entry));
    for entry in &adopted {
        let moved = cache::store(cache, entry)
            .and_then(|()| cache::remove(&theirs, &entry.network_name, id, ifname));
        if let Err(error) = moved {
            warn!(%error, network = entry.network_name, "cannot take over a cached result of the runtime");
        }
    }
    adopted
}

/// Whether an entry is of the runtime's call of a shim, which leads here and which the runtime removes itself.
fn is_ours(entry: &Entry) -> bool {
    let config = NetworkConfig::parse_named(&entry.config, &entry.network_name);
    config.map_or(true, |config| {
        let mut plugins = config.plugins.iter();
        plugins.any(|plugin| SHIMS.contains(&plugin.kind.as_str()))
    })
}

/// Completes a state with what the cache knows, and with what upstream's file does not keep.
pub(super) fn complete(state: &mut State, entries: &[Entry], netconf: &Netconf) {
    for delegate in &mut state.delegates {
        let entry = entries.iter().find(|entry| is_of(entry, delegate));
        remember(delegate, entry, netconf);
    }
    for entry in entries {
        if !state.delegates.iter().any(|known| is_of(entry, known)) {
            match attachment(entry) {
                Ok(delegate) => state.delegates.push(delegate),
                Err(reason) => {
                    warn!(
                        network = entry.network_name,
                        reason, "a cached result is of no use"
                    );
                }
            }
        }
    }
    for delegate in &mut state.delegates {
        let config = &delegate.config;
        if config.is_list
            && config.cni_version.is_empty()
            && let Ok(version) = netconf.cni_version.parse::<Version>()
        {
            delegate.config = config.with_version(version);
        }
    }
    if state.pod == PodRef::default()
        && let Some(args) = state.delegates.iter().find_map(|known| known.args.as_ref())
    {
        let text = |key| cni::args::get(args, key).unwrap_or_default().to_owned();
        state.pod = PodRef {
            namespace: text("K8S_POD_NAMESPACE"),
            name: text("K8S_POD_NAME"),
            uid: text("K8S_POD_UID"),
        };
    }
}

/// The network namespace that the results were made in.
pub(super) fn netns(entries: &[Entry]) -> Option<String> {
    entries.iter().find_map(|entry| {
        let interfaces = entry.result.get("interfaces").and_then(Value::as_array);
        let sandboxes = interfaces
            .into_iter()
            .flatten()
            .filter_map(|interface| interface.get("sandbox").and_then(Value::as_str));
        [entry.netns.as_str()]
            .into_iter()
            .chain(sandboxes)
            .find(|netns| !netns.is_empty())
            .map(str::to_owned)
    })
}

pub(super) fn is_of(entry: &Entry, delegate: &Delegate) -> bool {
    entry.network_name == delegate.config.name && entry.if_name == delegate.ifname.as_str()
}

fn remember(delegate: &mut Delegate, entry: Option<&Entry>, netconf: &Netconf) {
    if let Some(entry) = entry {
        delegate.args = Some(entry.cni_args.clone()).filter(|args| !args.is_empty());
    }
    delegate.progress = match (delegate.progress, entry) {
        // A result is cached when the last plugin has succeeded.
        (Progress::Unknown, Some(entry)) => {
            delegate.capability_args.clone_from(&entry.capability_args);
            Progress::Started
        }
        // Upstream gives the runtime's arguments to all networks.
        (Progress::Unknown, None) => {
            for (key, value) in &netconf.runtime_config {
                let own = &mut delegate.capability_args;
                own.entry(key.as_str()).or_insert_with(|| value.clone());
            }
            Progress::Failed { attached: 0 }
        }
        (Progress::Removed, Some(_)) => Progress::Started,
        (progress, _) => progress,
    };
}

/// An attachment that only the cache knows.
fn attachment(entry: &Entry) -> Result<Delegate, String> {
    Ok(Delegate {
        name: entry.network_name.clone(),
        ifname: IfName::parse(&entry.if_name).map_err(|error| error.to_string())?,
        config: NetworkConfig::parse_named(&entry.config, &entry.network_name)
            .map_err(|error| error.to_string())?,
        requested: Requested::default(),
        capability_args: entry.capability_args.clone(),
        args: Some(entry.cni_args.clone()).filter(|args| !args.is_empty()),
        progress: Progress::Started,
        displaced: Vec::new(),
    })
}
