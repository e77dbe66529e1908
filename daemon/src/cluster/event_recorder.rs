//! Sends events about pods. A repeated warning raises the count of the first one instead of becoming another object, and warnings whose
//! message always differs do not accumulate. Normal events, of which a node has some for each pod, are not remembered.

use std::{
    collections::{HashMap, VecDeque},
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

/// The warnings that this daemon has sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    known: HashMap<Subject, Shared>,
    /// Each subject with the time at which its age is looked at, the earliest first.
    by_age: VecDeque<(Instant, Subject)>,
}

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
        let is_warning = event.type_.as_deref() == Some("Warning");
        if !is_warning {
            return create(client, &event, timeout).await.map(drop);
        }
        let shared = self.sent_for(&event);
        let mut sent = shared.lock().await;
        sent.last = Instant::now();
        let events = events_of(&event);
        let message = event.message.clone().unwrap_or_default();
        if let Step::Count(index) = step(&sent.events, &message) {
            let known = sent.events[index].clone();
            let count = known.count.saturating_add(1);
            let patch = json!({
                "metadata": {"annotations": event.metadata.annotations},
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
        let created = create(client, &event, timeout).await?;
        sent.events.push(Known {
            name: created.metadata.name,
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
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(subject, Instant::now())
    }
}

impl Memory {
    /// Returns the warnings of a subject, and forgets those that are too old.
    fn get(&mut self, subject: Subject, now: Instant) -> Shared {
        while let Some((_, oldest)) = self.by_age.pop_front_if(|(due, _)| *due <= now) {
            // A subject with a request under way is kept, whatever its age.
            let last = match self.known[&oldest].try_lock() {
                Ok(sent) => sent.last,
                Err(_) => now,
            };
            if last + MEMORY <= now {
                self.known.remove(&oldest);
            } else {
                self.by_age.push_back((now + MEMORY, oldest));
            }
        }
        if let Some(sent) = self.known.get(&subject) {
            return Arc::clone(sent);
        }
        let sent = Arc::new(tokio::sync::Mutex::new(Sent {
            events: Vec::new(),
            last: now,
        }));
        self.by_age.push_back((now + MEMORY, subject.clone()));
        self.known.insert(subject, Arc::clone(&sent));
        sent
    }
}

fn events_of(event: &Event) -> String {
    api_path::events(event.metadata.namespace.as_deref().unwrap_or_default())
}

async fn create(client: &Client, event: &Event, timeout: Duration) -> Result<Created, ApiError> {
    let request = ApiRequest::post(events_of(event), event).metadata();
    with_retries(timeout, |time| client.object(&request, time)).await
}

fn step(known: &[Known], message: &str) -> Step {
    let same = known.iter().position(|known| known.message == message);
    match same {
        Some(index) => Step::Count(index),
        None if known.len() >= MAX_DIFFERENT => Step::Count(known.len() - 1),
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
    fn repeated_warnings_are_counted() {
        assert_eq!(step(&[], "no luck 0"), Step::Create);
        assert_eq!(step(&known(3), "no luck 1"), Step::Count(1));
        assert_eq!(step(&known(3), "no luck 9"), Step::Create);
    }

    #[test]
    fn different_warnings_are_limited() {
        assert_eq!(step(&known(8), "no luck 9"), Step::Count(7));
    }

    #[test]
    fn warnings_are_forgotten_by_their_age() {
        let subject = |pod: &str| Subject {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            uid: String::new(),
            reason: String::new(),
        };
        let (mut memory, start) = (Memory::default(), Instant::now());
        let old = memory.get(subject("old"), start);
        let again = memory.get(subject("again"), start);
        let busy = memory.get(subject("busy"), start);
        assert!(Arc::ptr_eq(&old, &memory.get(subject("old"), start)));
        again.try_lock().unwrap().last = start + MEMORY / 2;
        let _request = busy.try_lock().unwrap();
        memory.get(subject("new"), start + MEMORY);
        let is_known = |pod: &str| memory.known.contains_key(&subject(pod));
        assert_eq!(
            ["old", "again", "busy", "new"].map(is_known),
            [false, true, true, true]
        );
        assert_eq!(memory.by_age.len(), memory.known.len());
    }
}
