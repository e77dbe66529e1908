//! When a DEL that keeps failing ends. A runtime repeats DEL until it succeeds, and the pod stays Terminating meanwhile, so what can never
//! be detached is given up in the end. This module decides; it runs nothing and reads no clock.

use std::time::Duration;

use cni::chain::ChainError;
use cni::exec::ExecError;

/// For so long a DEL is retried that cannot succeed as things are.
pub(super) const HOPELESS: Duration = Duration::from_mins(10);
/// For so long a DEL is retried that a plugin refuses: what the plugin needs may come back, as the agent of a network.
pub(super) const REFUSED: Duration = Duration::from_hours(1);

/// Why a network cannot be detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The plugin is not installed on the node any more.
    PluginMissing,
    /// The plugin fails, and the network namespace in which it would work is gone.
    NamespaceGone,
    /// The plugin fails in a namespace that still exists.
    Refused,
}

impl Obstacle {
    /// The obstacle behind an error of a DEL with this network namespace.
    pub(super) fn of(error: &ChainError, netns: Option<&str>) -> Self {
        match error {
            ChainError::Plugin {
                source: ExecError::NotFound { .. },
                ..
            } => Self::PluginMissing,
            ChainError::Plugin { .. } if netns.is_none_or(str::is_empty) => Self::NamespaceGone,
            _ => Self::Refused,
        }
    }

    /// How long a DEL with this obstacle is retried.
    pub(super) fn patience(self) -> Duration {
        match self {
            Self::PluginMissing | Self::NamespaceGone => HOPELESS,
            Self::Refused => REFUSED,
        }
    }
}

/// What follows from a failed DEL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The runtime gets the error and asks again.
    Retry,
    /// The network is given up, and its pod can go.
    GiveUp,
}

/// Decides by the times of the container's first failed DEL and of now, both since the kernel was started.
/// A first failure in the future is of another boot and counts for nothing.
pub(super) fn decide(first_failure: Duration, now: Duration, obstacle: Obstacle) -> Verdict {
    match now.checked_sub(first_failure) {
        Some(failing) if failing >= obstacle.patience() => Verdict::GiveUp,
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
    fn hopeless_dels_end_after_ten_minutes() {
        for obstacle in [Obstacle::PluginMissing, Obstacle::NamespaceGone] {
            check(100, 100, obstacle, Verdict::Retry);
            check(100, 699, obstacle, Verdict::Retry);
            check(100, 700, obstacle, Verdict::GiveUp);
        }
    }

    #[test]
    fn refused_dels_end_after_an_hour() {
        check(100, 3699, Obstacle::Refused, Verdict::Retry);
        check(100, 3700, Obstacle::Refused, Verdict::GiveUp);
    }

    #[test]
    fn a_first_failure_in_the_future_counts_for_nothing() {
        check(100_000, 5, Obstacle::PluginMissing, Verdict::Retry);
    }
}
