//! Kubernetes events of a pod.

use anyhow::ensure;
use serde_json::Value;

use super::{Harness, Pod};
use crate::sh;

impl Harness {
    /// Returns the events of all pods of that name and namespace.
    pub(crate) fn events(&self, pod: &Pod) -> anyhow::Result<Vec<Value>> {
        let path = format!(
            "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name={}",
            pod.namespace, pod.name
        );
        let list = self.api("GET", &path, &Value::Null)?.json()?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits for an event with that reason (any, if empty) whose message contains these words; a daemon may send
    /// events after its answer.
    pub(crate) fn wait_for_event(
        &self,
        pod: &Pod,
        reason: &str,
        words: &str,
    ) -> anyhow::Result<()> {
        sh::until(10, "the event", || {
            let events: Vec<_> = self
                .events(pod)?
                .into_iter()
                .map(|event| (event["reason"].clone(), event["message"].clone()))
                .collect();
            let is_there = events.iter().any(|(known, text)| {
                (reason.is_empty() || known == reason)
                    && text.as_str().is_some_and(|text| text.contains(words))
            });
            ensure!(is_there, "no {reason} {words:?} among {events:?}");
            Ok(())
        })
    }
}
