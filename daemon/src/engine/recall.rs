//! What the result cache knows of a container beyond its state: the arguments of each ADD, and attachments that state does
//! not list. Those are of a state that is damaged or lost, or of interfaces that upstream plugged into a running pod.

use std::path::Path;

use cni::cache::{self, Entry};
use cni::config::NetworkConfig;
use cni::env::{ContainerId, IfName};
use cni::version::Version;
use serde_json::Value;
use tracing::warn;

use crate::netconf::Netconf;
use crate::state::{Delegate, PodRef, Progress, Requested, State};

/// All that the cache holds of a container, the oldest first.
pub(super) fn entries(cache: &Path, id: &ContainerId) -> Vec<Entry> {
    cache::of_container(cache, id).unwrap_or_else(|error| {
        warn!(%error, "what a container is attached to");
        Vec::new()
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
