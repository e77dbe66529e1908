//! Sends events about pods. A repeated event raises the count of the first one instead of becoming another object, and events whose
//! message always differs do not accumulate.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::{api_path, retry::with_retries};
use crate::access::{ApiError, ApiRequest, Client};

/// How long a sent event is kept in memory. The API server deletes events after an hour by default.
const MEMORY: Duration = Duration::from_mins(55);
/// The number of different warnings of one pod and reason that become objects; further ones overwrite the last object.
const MAX_DIFFERENT: usize = 8;

/// The events that this daemon has sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<HashMap<Subject, Shared>>>);

/// The pod and the reason of an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subject {
    namespace: String,
    pod: String,
    uid: String,
    reason: String,
}

type Shared = Arc<tokio::sync::Mutex<Sent>>;

/// The events of one subject, the oldest first. The lock is held during a request, so that no count is lost.
#[derive(Debug)]
struct Sent {
    events: Vec<Known>,
    last: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    name: String,
    message: String,
    count: i32,
}

/// The API server's response to the creation of an event.
#[derive(Deserialize)]
struct Created {
    metadata: CreatedMetadata,
}

#[derive(Deserialize)]
struct CreatedMetadata {
    name: String,
}

/// The request for an event.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Create an object.
    Create,
    /// Update the event at this position: its count rises by one, and it gets the new message.
    Count(usize),
}

impl Recorder {
    /// Sends an event, or raises the count of the same event.
    pub(super) async fn send(
        &self,
        client: &Client,
        event: Event,
        timeout: Duration,
    ) -> Result<(), ApiError> {
        let shared = self.sent_for(&event);
        let mut sent = shared.lock().await;
        sent.last = Instant::now();
        let events = api_path::events(event.metadata.namespace.as_deref().unwrap_or_default());
        let message = event.message.clone().unwrap_or_default();
        let is_warning = event.type_.as_deref() == Some("Warning");
        if let Step::Count(index) = step(&sent.events, &message, is_warning) {
            let known = sent.events[index].clone();
            let count = known.count.saturating_add(1);
            let patch = json!({
                "count": count, "message": message, "lastTimestamp": Time(Timestamp::now()),
            });
            let request = ApiRequest::patch(format!("{events}/{}", known.name), &patch).metadata();
            let counted = with_retries(timeout, |time| client.send(&request, time)).await;
            match counted {
                Ok(_) => {
                    sent.events[index] = Known {
                        message,
                        count,
                        ..known
                    };
                    return Ok(());
                }
                // The API server has deleted the event, or an old role does not allow the update: a new event will do.
                Err(failure) if failure.code().is_some() => drop(sent.events.remove(index)),
                Err(failure) => return Err(failure),
            }
        }
        let request = ApiRequest::post(events, &event).metadata();
        let created = with_retries(timeout, |time| client.object::<Created>(&request, time));
        sent.events.push(Known {
            name: created.await?.metadata.name,
            message,
            count: 1,
        });
        Ok(())
    }

    fn sent_for(&self, event: &Event) -> Shared {
        let about = &event.involved_object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let subject = Subject {
            namespace: text(&about.namespace),
            pod: text(&about.name),
            uid: text(&about.uid),
            reason: text(&event.reason),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Subjects with a request under way are kept, whatever their age.
        all.retain(|_, sent| {
            sent.try_lock()
                .map_or(true, |sent| sent.last.elapsed() < MEMORY)
        });
        let sent = all.entry(subject).or_insert_with(|| {
            Arc::new(tokio::sync::Mutex::new(Sent {
                events: Vec::new(),
                last: Instant::now(),
            }))
        });
        Arc::clone(sent)
    }
}

fn step(known: &[Known], message: &str, is_warning: bool) -> Step {
    let same = known.iter().position(|known| known.message == message);
    match same {
        Some(index) => Step::Count(index),
        None if is_warning && known.len() >= MAX_DIFFERENT => Step::Count(known.len() - 1),
        None => Step::Create,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(messages: usize) -> Vec<Known> {
        let known = |number| Known {
            name: format!("cart.{number}"),
            message: format!("no luck {number}"),
            count: 1,
        };
        (0..messages).map(known).collect()
    }

    #[test]
    fn repeated_events_are_counted() {
        assert_eq!(step(&[], "no luck 0", true), Step::Create);
        assert_eq!(step(&known(3), "no luck 1", true), Step::Count(1));
        assert_eq!(step(&known(3), "no luck 1", false), Step::Count(1));
        assert_eq!(step(&known(3), "no luck 9", true), Step::Create);
    }

    #[test]
    fn warnings_are_limited_but_normal_events_are_not() {
        assert_eq!(step(&known(8), "no luck 9", true), Step::Count(7));
        assert_eq!(step(&known(8), "no luck 9", false), Step::Create);
    }
}
