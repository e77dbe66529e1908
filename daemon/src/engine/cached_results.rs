//! Completes state from the result cache, which knows the arguments of each ADD, and attachments that state does not list: those
//! of a damaged or lost state, and interfaces that upstream plugged into a running pod.

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

/// The directory in which the runtime's libcni caches its results.
pub(super) const RUNTIME_RESULTS: &str = "/var/lib/cni/results";
/// Plugins that call a multus daemon.
const SHIMS: [&str; 2] = ["multus-shim", "multus"];

/// Returns all cached results of a container, the oldest first.
pub(super) fn entries(cache: &Path, id: &ContainerId) -> Vec<Entry> {
    cache::container_entries(cache, id).unwrap_or_else(|error| {
        warn!(%error, "cannot read a container's cached results");
        Vec::new()
    })
}

/// Moves what the runtime's own cache holds of a container's interface into ours. The runtime made that attachment itself, before our
/// configuration was installed, under a network name that it no longer uses. From our cache, DEL and every repeated DEL find
/// configuration and result.
pub(super) fn adopt(root: &Root, cache: &Path, id: &ContainerId, ifname: &IfName) -> Vec<Entry> {
    let dir = match root.directory(RUNTIME_RESULTS) {
        Ok(dir) => dir,
        Err(error) if error.is_not_found() => return Vec::new(),
        Err(error) => {
            warn!(%error, "cannot read the runtime's cached results");
            return Vec::new();
        }
    };
    let runtime_cache = root::proc_path(&dir);
    let mut adopted = entries(&runtime_cache, id);
    adopted.retain(|entry| entry.if_name == ifname.as_str() && !is_ours(entry));
    for entry in &adopted {
        let moved = cache::store(cache, entry)
            .and_then(|()| cache::remove(&runtime_cache, &entry.network_name, id, ifname));
        if let Err(error) = moved {
            warn!(%error, network = entry.network_name, "cannot take over a cached result of the runtime");
        }
    }
    adopted
}

/// Returns whether an entry is the result of a shim, which the runtime removes itself after the shim's DEL.
fn is_ours(entry: &Entry) -> bool {
    let config = NetworkConfig::parse_named(&entry.config, &entry.network_name);
    config.map_or(true, |config| {
        let mut plugins = config.plugins.iter();
        plugins.any(|plugin| SHIMS.contains(&plugin.kind.as_str()))
    })
}

/// Completes a state with the cached results and with what upstream's file does not hold.
pub(super) fn complete(state: &mut State, entries: &[Entry], netconf: &Netconf) {
    for delegate in &mut state.delegates {
        let entry = entries.iter().find(|entry| is_of(entry, delegate));
        complete_delegate(delegate, entry, netconf);
    }
    for entry in entries {
        if !state.delegates.iter().any(|known| is_of(entry, known)) {
            match cached_delegate(entry) {
                Ok(delegate) => state.delegates.push(delegate),
                Err(reason) => {
                    warn!(
                        network = entry.network_name,
                        reason, "ignoring an invalid cached result"
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
            delegate.config = config.with_version(version).into();
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

/// Returns the network namespace that the cached results name.
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

fn complete_delegate(delegate: &mut Delegate, entry: Option<&Entry>, netconf: &Netconf) {
    if let Some(entry) = entry {
        delegate.args = Some(entry.cni_args.clone()).filter(|args| !args.is_empty());
    }
    delegate.progress = match (delegate.progress, entry) {
        // A result is cached when a plugin has succeeded, nearly always the last one.
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

/// Returns the delegate of an attachment that only the cache knows.
fn cached_delegate(entry: &Entry) -> Result<Delegate, String> {
    Ok(Delegate {
        name: entry.network_name.clone(),
        ifname: IfName::parse(&entry.if_name).map_err(|error| error.to_string())?,
        config: NetworkConfig::parse_named(&entry.config, &entry.network_name)
            .map_err(|error| error.to_string())?
            .into(),
        requested: Requested::default(),
        capability_args: entry.capability_args.clone(),
        args: Some(entry.cni_args.clone()).filter(|args| !args.is_empty()),
        progress: Progress::Started,
        displaced: Vec::new(),
    })
}
