//! STATUS: could an ADD be served now? Runtimes ask every few seconds, so the plugins' answer is kept for a moment, for
//! as long as the default network's configuration stays the same.

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
pub(super) struct Cache(Mutex<Option<Answer>>);

struct Answer {
    config: Vec<u8>,
    path: Vec<PathBuf>,
    until: Instant,
    outcome: Result<(), CniError>,
}

impl Engine {
    /// Whether pods can be attached. Only the default network is asked, and only from CNI 1.1.0 on.
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
        let config = plan::primary(self.inputs_with(netconf, &plugins))
            .map_err(|error| CniError::new(CniError::PLUGIN_NOT_AVAILABLE, error.to_string()))?;
        let path = Self::search_path(netconf, path);
        // Held while plugins run: who asks meanwhile gets the same answer instead of a second run.
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
                *kept = Some(Answer {
                    config: config.bytes().to_vec(),
                    path,
                    until: Instant::now() + keep,
                    outcome: outcome.clone(),
                });
                outcome
            }
        }
    }

    /// A plugin that is missing makes every ADD fail, whatever its version.
    fn ask(&self, config: &NetworkConfig, path: &[PathBuf]) -> Result<(), CniError> {
        for plugin in &config.plugins {
            self.exec.find(&plugin.kind, path).map_err(|error| {
                CniError::new(CniError::PLUGIN_NOT_AVAILABLE, error.to_string())
            })?;
        }
        chain::status(&*self.exec, config, path).map_err(|error| error.to_cni())
    }
}
