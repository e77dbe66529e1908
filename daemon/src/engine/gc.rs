//! GC: detach containers that the runtime does not list, then tell each network which attachments are still alive.
//! A container that is busy meanwhile is left alone, and one whose ADD begins later waits until the networks were told.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use cni::cache::Entry;
use cni::chain::{self, Attachment};
use cni::config::{NetworkConfig, Plugin};
use cni::env::ContainerId;
use cni::types::CniError;
use plan::netconf::{Netconf, ValidAttachment};
use serde_json::{Value, json};
use tracing::warn;

use super::del::together;
use super::sweep::{Namespace, default_ifname, in_store, listed};
use super::{Engine, recall};

use crate::state::{Progress, State, Store};

/// The networks in use, and who is validly attached to each: by CNI name, as plugins keep their data under it.
#[derive(Default)]
struct Networks {
    /// One configuration for each set of plugins that a name is used with.
    configs: BTreeMap<(String, String), NetworkConfig>,
    valid: BTreeMap<String, BTreeSet<(String, String)>>,
}

impl Networks {
    fn insert(&mut self, config: &NetworkConfig) {
        let key = (config.name.clone(), holders(config));
        self.configs.entry(key).or_insert_with(|| config.clone());
    }

    fn attach(&mut self, network: &str, id: &str, ifname: &str) {
        let valid = self.valid.entry(network.to_owned()).or_default();
        valid.insert((id.to_owned(), ifname.to_owned()));
    }
}

impl Engine {
    /// Collects what is left of containers that are gone. Goes on after failures and returns all of them.
    pub fn gc(&self, path: &[PathBuf], netconf: &Netconf) -> Result<(), CniError> {
        if netconf.disable_gc {
            return Ok(());
        }
        if let Some(indicator) = &netconf.readiness_indicator_file
            && !self.is_ready(indicator)
        {
            let text = crate::readiness::waiting_for(indicator);
            return Err(CniError::new(CniError::TRY_AGAIN_LATER, text));
        }
        let valid = netconf.valid_attachments.as_deref().ok_or_else(|| {
            CniError::new(
                CniError::INVALID_NETWORK_CONFIG,
                "GC needs the list of valid attachments: the runtime has to send cni.dev/valid-attachments",
            )
        })?;
        let store = self.store(netconf);
        let cache = self.cache_dir(&store)?;
        let alive: HashSet<&str> = valid.iter().map(|v| v.container_id.as_str()).collect();
        let gone = |id: &ContainerId, _: Namespace<'_>| !alive.contains(id.as_str());
        // Who comes later is not in the runtime's list either.
        let mut known = in_store(&store)?;
        known.extend(collectable(&cache.path)?);
        // Nor is who is just being added.
        known
            .retain(|id| gone(id, Namespace::Unknown) && self.locks.try_lock(&store, id).is_some());
        let mut errors = self.detach_all(path, netconf, &known, &gone);

        let _no_add_begins = self.adding.write().unwrap_or_else(PoisonError::into_inner);
        match self.networks(netconf, &store, &cache.path, valid) {
            Ok(networks) => {
                let path = Self::search_path(netconf, path);
                for config in networks.configs.values() {
                    let valid = networks.valid.get(&config.name);
                    let valid: Vec<_> = valid.into_iter().flatten().map(attachment).collect();
                    let gc = || chain::gc(&*self.exec, config, &path, &cache.path, &valid);
                    let collected = self.metrics.timed_delegate(config.kind(), "GC", gc);
                    errors.extend(collected.err().map(|error| {
                        let context = format!("error collecting network \"{}\"", config.name);
                        error.to_cni().context(&context)
                    }));
                }
            }
            // With an incomplete list, plugins would free addresses that are in use.
            Err(error) => errors.push(error),
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(together(errors))
        }
    }

    /// Every network in use with all of its valid attachments.
    fn networks(
        &self,
        netconf: &Netconf,
        store: &Store,
        cache: &Path,
        valid: &[ValidAttachment],
    ) -> Result<Networks, CniError> {
        let mut networks = Networks::default();
        match plan::primary(self.inputs(netconf)) {
            // The runtime's own list counts too: containers may be older than multus on this node.
            Ok(config) => {
                networks.insert(&config);
                for v in valid {
                    networks.attach(&config.name, &v.container_id, &v.ifname);
                }
            }
            Err(error) => warn!(%error, "the default network is not collected"),
        }
        let mut cached: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in listed(cache)? {
            // It was attached, by whomever; what was not detached by now is alive, or has to stay until it can be.
            networks.attach(&entry.network_name, &entry.container_id, &entry.if_name);
            let of_container = cached.entry(entry.container_id.clone()).or_default();
            of_container.push(entry);
        }
        let ids = cached.keys().filter_map(|id| id.parse().ok());
        let ids: BTreeSet<ContainerId> = ids.chain(in_store(store)?).collect();
        for id in ids {
            let asked = valid.iter().find(|v| v.container_id == id.as_str());
            let ifname = asked.and_then(|v| v.ifname.parse().ok());
            let ifname = ifname.unwrap_or_else(default_ifname);
            let mut state = store
                .load(&id, &ifname)?
                .unwrap_or_else(|| State::unknown(&id, &ifname));
            let entries = cached.get(id.as_str()).map_or(&[][..], Vec::as_slice);
            recall::complete(&mut state, entries, netconf);
            for delegate in &state.delegates {
                if delegate.progress != Progress::Removed {
                    networks.insert(&delegate.config);
                    let (network, ifname) = (&delegate.config.name, delegate.ifname.as_str());
                    networks.attach(network, id.as_str(), ifname);
                }
            }
        }
        Ok(networks)
    }
}

/// What decides who keeps data about a network, and where: its plugins, and how they manage addresses.
fn holders(config: &NetworkConfig) -> String {
    let of_plugin = |plugin: &Plugin| json!([plugin.kind, plugin.value.get("ipam")]);
    let plugins: Vec<_> = config.plugins.iter().map(of_plugin).collect();
    Value::from(plugins).to_string()
}

/// The containers that the cache alone would give away, but for networks that are not to be collected.
fn collectable(cache: &Path) -> Result<impl Iterator<Item = ContainerId>, CniError> {
    let may_go = |entry: &Entry| {
        NetworkConfig::parse_named(&entry.config, &entry.network_name)
            .is_ok_and(|config| !config.disable_gc)
    };
    let entries = listed(cache)?.into_iter().filter(may_go);
    Ok(entries.filter_map(|entry| entry.container_id.parse().ok()))
}

fn attachment((container_id, ifname): &(String, String)) -> Attachment {
    Attachment {
        container_id: container_id.clone(),
        ifname: ifname.clone(),
    }
}
