//! The error of a verb, with its code in the protocol.

use crate::cache::CacheError;
use crate::config::NetworkConfig;
use crate::convert::ConvertError;
use crate::env::Command;
use crate::exec::ExecError;
use crate::types::CniError;
use crate::version::Version;

/// The reason why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A plugin failed or could not be run.
    #[error("plugin type={plugin:?} of network {network:?} failed ({command}): {source}")]
    Plugin {
        network: String,
        /// The plugin's type.
        plugin: String,
        /// The plugin's position in the chain, from 0.
        index: usize,
        /// The verb.
        command: Command,
        /// The cause.
        source: ExecError,
    },
    /// The output of a plugin's ADD is not a result.
    #[error(
        "plugin type={plugin:?} of network {network:?} answered ADD with an unusable result: {source}"
    )]
    Result {
        network: String,
        /// The plugin's type.
        plugin: String,
        /// The cause.
        source: ConvertError,
    },
    /// The network's version does not have the verb.
    #[error("network {network:?} has cniVersion {version}, which does not know {command}")]
    NotInVersion {
        network: String,
        /// The network's version.
        version: Version,
        /// The verb.
        command: Command,
    },
    /// CHECK has no cached result to compare with.
    #[error("network {network:?} has no cached result for this attachment")]
    NoCachedResult { network: String },
    /// The cache cannot be used.
    #[error("network {network:?}: {source}")]
    Cache {
        network: String,
        /// The cause.
        source: CacheError,
    },
    /// GC continued after failures; these are all of them.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" / "))]
    Several(Vec<ChainError>),
}

impl ChainError {
    /// Returns how many plugins of a failed ADD certainly have something to undo: those before the plugin that failed by itself and so
    /// cleaned up after itself, or was not run. `None` when that is not known, as of a plugin that was killed.
    pub fn attached(&self) -> Option<usize> {
        match self {
            Self::Plugin {
                index,
                source:
                    ExecError::Plugin(_)
                    | ExecError::NotFound { .. }
                    | ExecError::Name(_)
                    | ExecError::Stopped(_),
                ..
            } => Some(*index),
            _ => None,
        }
    }

    /// Returns the error of the protocol with its code; the message names the plugin and the network.
    pub fn to_cni(&self) -> CniError {
        let (code, details) = match self {
            Self::Plugin { source, .. } => {
                let cause = source.to_cni();
                (cause.code, cause.details)
            }
            Self::Result { .. } => (CniError::DECODING_FAILURE, String::new()),
            Self::NotInVersion { .. } => (CniError::INCOMPATIBLE_VERSION, String::new()),
            Self::Cache { .. } => (CniError::IO_FAILURE, String::new()),
            Self::NoCachedResult { .. } => (CniError::INTERNAL, String::new()),
            Self::Several(errors) => match errors.as_slice() {
                [only] => return only.to_cni(),
                _ => (CniError::INTERNAL, String::new()),
            },
        };
        let msg = match self {
            // The details have their own field.
            Self::Plugin {
                network,
                plugin,
                command,
                source:
                    source @ (ExecError::Plugin(_) | ExecError::Killed(_) | ExecError::Stopped(_)),
                ..
            } => {
                let cause = source.to_cni().msg;
                format!("plugin type={plugin:?} of network {network:?} failed ({command}): {cause}")
            }
            other => other.to_string(),
        };
        CniError { code, msg, details }
    }
}

/// Returns an error of the cache for this network.
pub(super) fn cache_error(config: &NetworkConfig, source: CacheError) -> ChainError {
    ChainError::Cache {
        network: config.name.clone(),
        source,
    }
}
