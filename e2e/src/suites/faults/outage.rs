//! An outage of something that ADD needs: pods of before can go, new ones are refused, and afterwards all works again by itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::{
    container::{Container, Outcome},
    fixture::{FaultsFixture, Pod},
};
use crate::{node::inspect, sh};

/// No ADD takes longer while a daemon serves.
const ADD_WITHIN: Duration = Duration::from_secs(30);
/// No DEL needs the API server.
const DEL_WITHIN: Duration = Duration::from_secs(10);
/// Seconds until a status is written after an outage: the daemon's longest pause before it tries again is a minute.
const WRITTEN_WITHIN: u64 = 90;
/// Seconds until all works after an outage: the API server believes a token for a minute, and watches come back after half of one.
pub(super) const RECOVERED_WITHIN: u64 = 90;

pub(super) type Step = fn(&FaultsFixture) -> anyhow::Result<()>;

/// An outage, and how ADD fails meanwhile.
pub(super) struct Outage {
    /// Completes "an API server that …" or "a clock that …".
    pub(super) name: &'static str,
    pub(super) begin: Step,
    pub(super) end: Step,
    /// Text of the ADD's error, next to the pod's name; `None` when an ADD succeeds during the outage, and its status is written afterwards.
    pub(super) error: Option<&'static str>,
}

impl Outage {
    /// Begins the outage, checks DEL of the pod `existing` and ADD of the pod `new`, ends it, and checks that ADD works again.
    pub(super) fn check(
        &self,
        fixture: &FaultsFixture,
        existing: &Pod,
        new: &Pod,
    ) -> anyhow::Result<()> {
        let before = Container::new(fixture, existing, self.name)?;
        before.add_complete().context("before the outage")?;
        (self.begin)(fixture)?;
        let start = Instant::now();
        before.remove().context("during the outage")?;
        let took = start.elapsed();
        ensure!(took < DEL_WITHIN, "DEL took {took:?}");
        let mut attempt = 0;
        // The daemon may notice an outage a moment later.
        sh::until(60, "ADD ends as it should", || {
            attempt += 1;
            let name = format!("{} during {attempt}", self.name);
            match self.add_meanwhile(fixture, new, &name) {
                Ok(true) => Ok(Ok(())),
                Ok(false) => bail!("ADD succeeded too early"),
                // Another attempt would not make this right.
                Err(wrong) => Ok(Err(wrong)),
            }
        })??;
        let late = Container::new(
            fixture,
            new,
            &format!("{} and waits for its status", self.name),
        )?;
        if self.error.is_none() {
            late.add()?;
        }
        (self.end)(fixture)?;
        if self.error.is_none() {
            let what = "the status of a pod that was attached during the outage";
            sh::until(WRITTEN_WITHIN, what, || late.ensure_status())?;
            late.remove()?;
        }
        sh::until(RECOVERED_WITHIN, "ADD succeeds after the outage", || {
            attempt += 1;
            let name = format!("{} after {attempt}", self.name);
            let container = Container::new(fixture, new, &name)?;
            let added = container.add_complete();
            container.remove()?;
            added
        })?;
        fixture.wait_for_one_ready_daemon()?;
        fixture.is_clean()
    }

    /// Runs one ADD during the outage, which must attach all networks or leave nothing. Returns `false` for an ADD that succeeded
    /// although the outage must refuse it, as before the daemon has noticed.
    fn add_meanwhile(
        &self,
        fixture: &FaultsFixture,
        pod: &Pod,
        name: &str,
    ) -> anyhow::Result<bool> {
        let container = Container::new(fixture, pod, name)?;
        let start = Instant::now();
        let added = container.add()?;
        let took = start.elapsed();
        ensure!(took < ADD_WITHIN, "ADD took {took:?}");
        let is_as_expected = match added {
            Outcome::Done(result) => {
                container.ensure_attached(&result)?;
                self.error.is_none()
            }
            Outcome::Refused { text, .. } => {
                let error = self
                    .error
                    .with_context(|| format!("ADD was refused: {text}"))?;
                for part in [pod.name.as_str(), error] {
                    ensure!(
                        text.contains(part),
                        "the error does not contain `{part}`: {text}"
                    );
                }
                let left = inspect::pod_artifacts(&fixture.single_node.node)?;
                ensure!(left.is_empty(), "a failed ADD left {}", left.join(", "));
                true
            }
            Outcome::Lost(output) => bail!("the shim printed no document: {output}"),
        };
        container.remove().context("during the outage")?;
        Ok(is_as_expected)
    }
}
