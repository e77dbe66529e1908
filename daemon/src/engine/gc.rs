//! GC: detach containers that the runtime does not list, then tell each network which attachments are still alive.
//! The specification has the runtime hold back ADD and DEL meanwhile; a container that is busy all the same is left alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use cni::chain::{self, Attachment};
use cni::config::NetworkConfig;
use cni::env::{ContainerId, IfName};
use cni::types::CniError;
use tracing::{info, warn};

use super::add::state_error;
use super::del::{complete, together};
use super::{Engine, Request, Waiting};
use crate::netconf::{Netconf, ValidAttachment};
use crate::plan;
use crate::state::{Progress, Store};

/// A network and who is validly attached to it.
struct Network {
    config: NetworkConfig,
    valid: BTreeSet<(String, String)>,
}

impl Engine {
    /// Collects what is left of containers that are gone. Goes on after failures and returns all of them.
    pub fn gc(&self, path: &[PathBuf], netconf: &Netconf) -> Result<(), CniError> {
        let valid = netconf.valid_attachments.as_deref().ok_or_else(|| {
            CniError::new(
                CniError::INVALID_NETWORK_CONFIG,
                "GC needs the list of valid attachments: the runtime has to send cni.dev/valid-attachments",
            )
        })?;
        let store = self.store(netconf);
        let mut errors = self.detach_unlisted(path, netconf, &store, valid)?;
        match self.networks(netconf, &store, valid) {
            Ok(networks) => {
                let cache = self.cache_dir(&store)?;
                let path = Self::search_path(netconf, path);
                for network in networks.values() {
                    let valid: Vec<_> = network.valid.iter().map(attachment).collect();
                    let collected =
                        chain::gc(&*self.exec, &network.config, &path, &cache.path, &valid);
                    errors.extend(collected.err().map(|error| {
                        let context =
                            format!("error collecting network \"{}\"", network.config.name);
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

    fn detach_unlisted(
        &self,
        path: &[PathBuf],
        netconf: &Netconf,
        store: &Store,
        valid: &[ValidAttachment],
    ) -> Result<Vec<CniError>, CniError> {
        let listed: HashSet<&str> = valid.iter().map(|v| v.container_id.as_str()).collect();
        let known = store.containers().map_err(|error| state_error(&error))?;
        let mut errors = Vec::new();
        for id in known.iter().filter(|id| !listed.contains(id.as_str())) {
            let Some(_guard) = self.locks.try_lock(store, id) else {
                continue;
            };
            info!(container_id = %id, "detaching a container that the runtime does not list");
            errors.extend(self.detach(path, netconf, store, id).err());
        }
        for id in store.orphans().map_err(|error| state_error(&error))? {
            if let Some(_guard) = self.locks.try_lock(store, &id)
                && !store.containers().is_ok_and(|known| known.contains(&id))
                && let Err(error) = store.remove(&id)
            {
                errors.push(state_error(&error));
            }
        }
        Ok(errors)
    }

    fn detach(
        &self,
        path: &[PathBuf],
        netconf: &Netconf,
        store: &Store,
        id: &ContainerId,
    ) -> Result<(), CniError> {
        let default = default_ifname();
        let state = match store.load(id, &default) {
            Ok(Some(state)) => state,
            Ok(None) => return Ok(()),
            Err(error) => {
                warn!(%error, "state of a container that is gone");
                return store.remove(id).map_err(|error| state_error(&error));
            }
        };
        let args = [
            ("K8S_POD_NAMESPACE", &state.pod.namespace),
            ("K8S_POD_NAME", &state.pod.name),
            ("K8S_POD_UID", &state.pod.uid),
        ];
        let request = Request {
            container_id: id.clone(),
            netns: self.netns_left(state.netns.as_deref()),
            ifname: state.ifname.clone(),
            args: args
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.clone()))
                .collect(),
            path: path.to_vec(),
            waiting: Waiting::default(),
        };
        self.remove_known(&request, netconf, store, state)
    }

    /// The namespace of a container that is gone, if it is still there. One that is named by a process id is not taken:
    /// the id may be another process's by now.
    fn netns_left(&self, netns: Option<&str>) -> Option<String> {
        netns
            .filter(|netns| !netns.starts_with("/proc/") && self.root.exists(netns))
            .map(str::to_owned)
    }

    /// Every network in use with all of its valid attachments, by CNI name: that is what plugins keep their data under.
    fn networks(
        &self,
        netconf: &Netconf,
        store: &Store,
        valid: &[ValidAttachment],
    ) -> Result<BTreeMap<String, Network>, CniError> {
        let mut networks = BTreeMap::new();
        match plan::primary(self.inputs(netconf)) {
            // The runtime's own list counts too: containers may be older than multus on this node.
            Ok(config) => {
                let valid = valid
                    .iter()
                    .map(|v| (v.container_id.clone(), v.ifname.clone()));
                let network = Network {
                    valid: valid.collect(),
                    config,
                };
                networks.insert(network.config.name.clone(), network);
            }
            Err(error) => warn!(%error, "the default network is not collected"),
        }
        for id in store.containers().map_err(|error| state_error(&error))? {
            let default = valid
                .iter()
                .find(|v| v.container_id == id.as_str())
                .and_then(|v| v.ifname.parse().ok())
                .unwrap_or_else(default_ifname);
            let state = store
                .load(&id, &default)
                .map_err(|error| state_error(&error))?;
            let Some(mut state) = state else {
                continue;
            };
            complete(&mut state, netconf);
            for delegate in state.delegates {
                if delegate.progress == Progress::Removed {
                    continue;
                }
                let name = delegate.config.name.clone();
                let network = networks.entry(name).or_insert_with(|| Network {
                    config: delegate.config,
                    valid: BTreeSet::new(),
                });
                network
                    .valid
                    .insert((id.to_string(), delegate.ifname.to_string()));
            }
        }
        Ok(networks)
    }
}

fn attachment((container_id, ifname): &(String, String)) -> Attachment {
    Attachment {
        container_id: container_id.clone(),
        ifname: ifname.clone(),
    }
}

fn default_ifname() -> IfName {
    "eth0".parse().expect("a valid interface name")
}
