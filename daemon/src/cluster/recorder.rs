//! Events about pods, sent so that one that comes again is counted in the first instead of standing beside it, and so that what always
//! comes in other words does not pile up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::{path, retry::patiently};
use crate::access::{Ask, Client, Failure};

/// The API server forgets events after an hour, unless told otherwise.
const REMEMBERED: Duration = Duration::from_mins(55);
/// So many warnings of one pod and reason have objects of their own; the next ones take the place of the last.
const DIFFERENT: usize = 8;

/// One per daemon.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<HashMap<Subject, Shared>>>);

/// Whom an event is about, and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subject {
    namespace: String,
    pod: String,
    uid: String,
    reason: String,
}

type Shared = Arc<tokio::sync::Mutex<Sent>>;

/// What was sent of one reason, the oldest first. Its lock is held while a request is under way, so that no count is lost.
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

/// What the API server says of an event that it took.
#[derive(Deserialize)]
struct Made {
    metadata: MadeMetadata,
}

#[derive(Deserialize)]
struct MadeMetadata {
    name: String,
}

/// What to do about an event.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is new.
    Create,
    /// The event at this position is sent with one more, and these words.
    Count(usize),
}

impl Recorder {
    /// Sends an event, or counts it.
    pub(super) async fn send(
        &self,
        client: &Client,
        event: Event,
        patience: Duration,
    ) -> Result<(), Failure> {
        let shared = self.of(&event);
        let mut sent = shared.lock().await;
        sent.last = Instant::now();
        let events = path::events(event.metadata.namespace.as_deref().unwrap_or_default());
        let message = event.message.clone().unwrap_or_default();
        let is_warning = event.type_.as_deref() == Some("Warning");
        if let Step::Count(index) = step(&sent.events, &message, is_warning) {
            let known = sent.events[index].clone();
            let count = known.count.saturating_add(1);
            let patch = json!({
                "count": count, "message": message, "lastTimestamp": Time(Timestamp::now()),
            });
            let ask = Ask::patch(format!("{events}/{}", known.name), &patch).metadata();
            let counted = patiently(patience, |time| client.send(&ask, time)).await;
            match counted {
                Ok(_) => {
                    sent.events[index] = Known {
                        message,
                        count,
                        ..known
                    };
                    return Ok(());
                }
                // It was forgotten, or a role of old lets nobody count: a new one is as good.
                Err(failure) if failure.code().is_some() => drop(sent.events.remove(index)),
                Err(failure) => return Err(failure),
            }
        }
        let ask = Ask::post(events, &event).metadata();
        let made = patiently(patience, |time| client.object::<Made>(&ask, time));
        sent.events.push(Known {
            name: made.await?.metadata.name,
            message,
            count: 1,
        });
        Ok(())
    }

    fn of(&self, event: &Event) -> Shared {
        let about = &event.involved_object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let subject = Subject {
            namespace: text(&about.namespace),
            pod: text(&about.name),
            uid: text(&about.uid),
            reason: text(&event.reason),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What is being sent is kept, whatever its age.
        all.retain(|_, sent| {
            sent.try_lock()
                .map_or(true, |sent| sent.last.elapsed() < REMEMBERED)
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
        None if is_warning && known.len() >= DIFFERENT => Step::Count(known.len() - 1),
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
    fn what_is_known_is_counted() {
        assert_eq!(step(&[], "no luck 0", true), Step::Create);
        assert_eq!(step(&known(3), "no luck 1", true), Step::Count(1));
        assert_eq!(step(&known(3), "no luck 1", false), Step::Count(1));
        assert_eq!(step(&known(3), "no luck 9", true), Step::Create);
    }

    #[test]
    fn warnings_do_not_pile_up_and_good_news_is_all_told() {
        assert_eq!(step(&known(8), "no luck 9", true), Step::Count(7));
        assert_eq!(step(&known(8), "no luck 9", false), Step::Create);
    }
}
