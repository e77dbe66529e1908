//! GC detaches the containers that the runtime does not list, then reports the valid attachments to the plugins of each network.
//! It skips a container that another verb is working on, and an ADD that begins later waits until the report is done, for a limited time.

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

use super::failure::Failure;
use super::stale::{NetnsState, all_entries, default_ifname, in_store};
use super::verb_exec::VerbExec;
use super::{Engine, cached_results};

use crate::state::{Progress, State, Store};

/// The networks in use and the valid attachments of each, by CNI name, since plugins keep their data under that name.
#[derive(Default)]
struct Networks {
    /// One configuration for each name and set of plugins.
    configs: BTreeMap<(String, String), NetworkConfig>,
    valid: BTreeMap<String, BTreeSet<(String, String)>>,
}

impl Networks {
    fn insert(&mut self, config: &NetworkConfig) {
        let key = (config.name.clone(), plugins_and_ipam(config));
        self.configs.entry(key).or_insert_with(|| config.clone());
    }

    fn attach(&mut self, network: &str, id: &str, ifname: &str) {
        let valid = self.valid.entry(network.to_owned()).or_default();
        valid.insert((id.to_owned(), ifname.to_owned()));
    }
}

impl Engine {
    /// Collects what deleted containers left behind. Goes on after failures and returns all of them.
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
        let listed: HashSet<&str> = valid.iter().map(|v| v.container_id.as_str()).collect();
        let is_stale = |id: &ContainerId, _: NetnsState<'_>| !listed.contains(id.as_str());
        // The containers are listed before the first DEL: one that is added later is not in the runtime's list either.
        let mut known = in_store(&store)?;
        known.extend(collectable(&cache.path)?);
        // Nor is a container whose ADD is running.
        known.retain(|id| {
            is_stale(id, NetnsState::Unknown) && self.locks.try_lock(&store, id).is_some()
        });
        let mut errors = self.detach_stale_among(path, netconf, &known, &is_stale);

        let _no_add_begins = self.gc_lock.write().unwrap_or_else(PoisonError::into_inner);
        match self.networks(netconf, &store, &cache.path, valid) {
            Ok(networks) => {
                let path = Self::search_path(netconf, path);
                let exec = VerbExec::collecting(&*self.exec);
                for config in networks.configs.values() {
                    let valid = networks.valid.get(&config.name);
                    let valid: Vec<_> = valid.into_iter().flatten().map(attachment).collect();
                    let gc = || chain::gc(&exec, config, &path, &cache.path, &valid);
                    let collected = self.metrics.timed_delegate(config.kind(), "GC", gc);
                    errors.extend(collected.err().map(|error| {
                        let context = format!("error collecting network \"{}\"", config.name);
                        Failure::from(error.to_cni().context(&context))
                    }));
                }
            }
            // Given an incomplete list, plugins would free addresses that are in use.
            Err(error) => errors.push(error.into()),
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Failure::sum(errors).into())
        }
    }

    fn networks(
        &self,
        netconf: &Netconf,
        store: &Store,
        cache: &Path,
        valid: &[ValidAttachment],
    ) -> Result<Networks, CniError> {
        let mut networks = Networks::default();
        match plan::default_network_config(self.inputs(netconf)) {
            // The runtime's own list counts, too, since containers may be older than multus on this node.
            Ok(config) => {
                networks.insert(&config);
                for v in valid {
                    networks.attach(&config.name, &v.container_id, &v.ifname);
                }
            }
            Err(error) => warn!(%error, "GC skips the default network"),
        }
        let mut cached: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in all_entries(cache)? {
            // A cached attachment that was not detached so far is alive, or has to stay until it can be detached, whichever
            // program made it.
            networks.attach(&entry.network_name, &entry.container_id, &entry.if_name);
            let container_entries = cached.entry(entry.container_id.clone()).or_default();
            container_entries.push(entry);
        }
        let ids = cached.keys().filter_map(|id| id.parse().ok());
        let ids: BTreeSet<ContainerId> = ids.chain(in_store(store)?).collect();
        for id in ids {
            let listed = valid.iter().find(|v| v.container_id == id.as_str());
            let ifname = listed.and_then(|v| v.ifname.parse().ok());
            let ifname = ifname.unwrap_or_else(default_ifname);
            let mut state = store
                .load(&id, &ifname)?
                .unwrap_or_else(|| State::unknown(&id, &ifname));
            let entries = cached.get(id.as_str()).map_or(&[][..], Vec::as_slice);
            cached_results::complete(&mut state, entries, netconf);
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

/// Returns what decides where data of a network is kept: its plugins and their IPAM configuration.
fn plugins_and_ipam(config: &NetworkConfig) -> String {
    let kind_and_ipam = |plugin: &Plugin| json!([plugin.kind, plugin.value.get("ipam")]);
    let plugins: Vec<_> = config.plugins.iter().map(kind_and_ipam).collect();
    Value::from(plugins).to_string()
}

/// Returns the containers in the result cache, without attachments to networks that disable GC.
fn collectable(cache: &Path) -> Result<impl Iterator<Item = ContainerId>, CniError> {
    let has_gc = |entry: &Entry| {
        NetworkConfig::parse_named(&entry.config, &entry.network_name)
            .is_ok_and(|config| !config.disable_gc)
    };
    let entries = all_entries(cache)?.into_iter().filter(has_gc);
    Ok(entries.filter_map(|entry| entry.container_id.parse().ok()))
}

fn attachment((container_id, ifname): &(String, String)) -> Attachment {
    Attachment {
        container_id: container_id.clone(),
        ifname: ifname.clone(),
    }
}
