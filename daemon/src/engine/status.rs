//! STATUS reports whether an ADD could be served now. Runtimes call it every few seconds, so the plugins' answer is kept for a
//! few seconds, for as long as the default network's configuration stays the same.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cni::chain;
use cni::config::NetworkConfig;
use cni::types::CniError;
use plan::netconf::Netconf;

use super::Engine;

use crate::readiness;

const KEEP_GOOD: Duration = Duration::from_secs(10);
const KEEP_BAD: Duration = Duration::from_secs(2);

/// The last answer of the default network's plugins.
#[derive(Default)]
pub(super) struct Cache(Mutex<Option<CachedStatus>>);

struct CachedStatus {
    config: Vec<u8>,
    path: Vec<PathBuf>,
    until: Instant,
    outcome: Result<(), CniError>,
}

impl Engine {
    /// Returns an error while pods cannot be attached. Only the default network's plugins are asked, and only from CNI 1.1.0 on.
    pub fn status(&self, path: &[PathBuf], netconf: &Netconf) -> Result<(), CniError> {
        if let Some(indicator) = &netconf.readiness_indicator_file
            && !self.is_ready(indicator)
        {
            return Err(CniError::new(
                CniError::PLUGIN_NOT_AVAILABLE,
                readiness::waiting_for(indicator),
            ));
        }
        let plugins = self.plugins(netconf, path);
        let config = plan::default_network_config(self.inputs_with(netconf, &plugins))
            .map_err(|error| CniError::new(CniError::PLUGIN_NOT_AVAILABLE, error.to_string()))?;
        let path = Self::search_path(netconf, path);
        // The lock is held while plugins run, so that concurrent calls get the same answer instead of a second run.
        let mut kept = self.status.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(last)
                if last.config == config.bytes()
                    && last.path == path
                    && Instant::now() < last.until =>
            {
                last.outcome.clone()
            }
            _ => {
                let outcome = self.ask(&config, &path);
                let keep = if outcome.is_ok() { KEEP_GOOD } else { KEEP_BAD };
                *kept = Some(CachedStatus {
                    config: config.bytes().to_vec(),
                    path,
                    until: Instant::now() + keep,
                    outcome: outcome.clone(),
                });
                outcome
            }
        }
    }

    /// Runs STATUS. It fails for a missing plugin whatever the version, as that makes every ADD fail.
    fn ask(&self, config: &NetworkConfig, path: &[PathBuf]) -> Result<(), CniError> {
        for plugin in &config.plugins {
            self.exec.find(&plugin.kind, path).map_err(|error| {
                CniError::new(CniError::PLUGIN_NOT_AVAILABLE, error.to_string())
            })?;
        }
        chain::status(&*self.exec, config, path).map_err(|error| error.to_cni())
    }
}
