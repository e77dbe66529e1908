//! Decides when a DEL that keeps failing is abandoned. A runtime repeats DEL until it succeeds, and the pod stays Terminating until then, so a
//! network that can never be detached is abandoned in the end. This module runs nothing and reads no clock.

use std::time::Duration;

use cni::chain::ChainError;
use cni::exec::ExecError;

/// How long a DEL is retried that cannot succeed in the present state of the node.
pub(super) const HOPELESS: Duration = Duration::from_mins(10);
/// How long a DEL is retried that a plugin refuses: what the plugin needs may come back, such as a network's agent.
pub(super) const REFUSED: Duration = Duration::from_hours(1);

/// Why a network cannot be detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The plugin is no longer installed on the node.
    PluginMissing,
    /// The plugin fails, and the network namespace in which it would work was deleted.
    NetnsDeleted,
    /// The plugin fails in a namespace that still exists.
    Refused,
}

impl Obstacle {
    /// Classifies the error of a DEL in this network namespace.
    pub(super) fn of(error: &ChainError, netns: Option<&str>) -> Self {
        match error {
            ChainError::Plugin {
                source: ExecError::NotFound { .. },
                ..
            } => Self::PluginMissing,
            ChainError::Plugin { .. } if netns.is_none_or(str::is_empty) => Self::NetnsDeleted,
            _ => Self::Refused,
        }
    }

    pub(super) fn retry_period(self) -> Duration {
        match self {
            Self::PluginMissing | Self::NetnsDeleted => HOPELESS,
            Self::Refused => REFUSED,
        }
    }
}

/// The consequence of a failed DEL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The runtime gets the error and sends DEL again.
    Retry,
    /// The network is abandoned, so that its pod can be deleted.
    Abandon,
}

/// Decides by the time of the container's first failed DEL and the present time, both since the kernel was started.
/// A first failure in the future is of another boot and is ignored.
pub(super) fn decide(first_failure: Duration, now: Duration, obstacle: Obstacle) -> Verdict {
    match now.checked_sub(first_failure) {
        Some(failing) if failing >= obstacle.retry_period() => Verdict::Abandon,
        _ => Verdict::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(first: u64, now: u64, obstacle: Obstacle, expected: Verdict) {
        let at = Duration::from_secs;
        assert_eq!(decide(at(first), at(now), obstacle), expected);
    }

    #[test]
    fn hopeless_del_is_abandoned_after_ten_minutes() {
        for obstacle in [Obstacle::PluginMissing, Obstacle::NetnsDeleted] {
            check(100, 100, obstacle, Verdict::Retry);
            check(100, 699, obstacle, Verdict::Retry);
            check(100, 700, obstacle, Verdict::Abandon);
        }
    }

    #[test]
    fn refused_del_is_abandoned_after_an_hour() {
        check(100, 3699, Obstacle::Refused, Verdict::Retry);
        check(100, 3700, Obstacle::Refused, Verdict::Abandon);
    }

    #[test]
    fn first_failure_in_the_future_is_ignored() {
        check(100_000, 5, Obstacle::PluginMissing, Verdict::Retry);
    }
}
