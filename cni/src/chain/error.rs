//! Why a verb failed, and which code that is.

use crate::cache::CacheError;
use crate::config::NetworkConfig;
use crate::convert::ConvertError;
use crate::env::Command;
use crate::exec::ExecError;
use crate::types::CniError;
use crate::version::Version;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A plugin failed or could not be run.
    #[error("plugin type={plugin:?} of network {network:?} failed ({command}): {source}")]
    Plugin {
        /// The network.
        network: String,
        /// The plugin's type.
        plugin: String,
        /// Its position in the chain, from 0.
        index: usize,
        /// The verb.
        command: Command,
        /// Why.
        source: ExecError,
    },
    /// A plugin answered ADD with something that is no result.
    #[error(
        "plugin type={plugin:?} of network {network:?} answered ADD with an unusable result: {source}"
    )]
    Result {
        /// The network.
        network: String,
        /// The plugin's type.
        plugin: String,
        /// Why.
        source: ConvertError,
    },
    /// The verb does not exist in that version.
    #[error("network {network:?} has cniVersion {version}, which does not know {command}")]
    NotInVersion {
        /// The network.
        network: String,
        /// Its version.
        version: Version,
        /// The verb.
        command: Command,
    },
    /// CHECK without anything to check against.
    #[error("network {network:?} has no cached result for this attachment")]
    NothingCached {
        /// The network.
        network: String,
    },
    /// The cache cannot be used.
    #[error("network {network:?}: {source}")]
    Cache {
        /// The network.
        network: String,
        /// Why.
        source: CacheError,
    },
    /// GC went on after failures; these are all of them.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" / "))]
    Several(Vec<ChainError>),
}

impl ChainError {
    /// Of a failed ADD: how many plugins have something to undo for sure, when the next one gave up by itself and thus
    /// cleaned up after itself. `None` when that cannot be said, as of a plugin that was killed.
    pub fn attached(&self) -> Option<usize> {
        match self {
            Self::Plugin {
                source: ExecError::TimedOut { .. } | ExecError::TooMuchOutput { .. },
                ..
            } => None,
            Self::Plugin { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// The error with its code; the message says which plugin of which network it was.
    pub fn to_cni(&self) -> CniError {
        let (code, details) = match self {
            Self::Plugin { source, .. } => {
                let cause = source.to_cni();
                (cause.code, cause.details)
            }
            Self::Result { .. } => (CniError::DECODING_FAILURE, String::new()),
            Self::NotInVersion { .. } => (CniError::INCOMPATIBLE_VERSION, String::new()),
            Self::Cache { .. } => (CniError::IO_FAILURE, String::new()),
            Self::NothingCached { .. } => (CniError::INTERNAL, String::new()),
            Self::Several(errors) => match errors.as_slice() {
                [only] => return only.to_cni(),
                _ => (CniError::INTERNAL, String::new()),
            },
        };
        let msg = match self {
            // The details travel in their own field.
            Self::Plugin {
                network,
                plugin,
                command,
                source: ExecError::Plugin(error),
                ..
            } => {
                format!(
                    "plugin type={plugin:?} of network {network:?} failed ({command}): {}",
                    error.msg
                )
            }
            other => other.to_string(),
        };
        CniError { code, msg, details }
    }
}

/// An error of the cache, about this network.
pub(super) fn cache_error(config: &NetworkConfig, source: CacheError) -> ChainError {
    ChainError::Cache {
        network: config.name.clone(),
        source,
    }
}
